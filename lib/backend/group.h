// SPDX-License-Identifier: Apache-2.0
// The ranks that compute the same layers, as one of them sees it. A rank is one device with its share of these layers. All ranks
// call the same functions in the same order; each has a Group of its own, used by one thread at a time.
#pragma once

#include <cstdint>

#include "backend/device.h"
#include "base/cancel.h"
#include "base/error.h"

namespace minim::backend {

class Group {
  public:
    virtual ~Group() = default;

    virtual int32_t rank() const noexcept = 0;
    virtual int32_t size() const noexcept = 0;

    // Returns whether the functions below, go_on() excepted, may come between begin_step() and end_step().
    virtual bool records() const noexcept = 0;
    // Returns whether the outputs of experts are sent slot by slot (share_slots), which keeps the additions of a single device.
    // Otherwise they are summed.
    virtual bool shares_slots() const noexcept = 0;

    // The three functions of a step work in the order of the rank's stream, on its device's memory. They throw the error that a
    // rank has abandoned the group with, and device_lost.

    // Sets data [count] to the sum over the ranks, added in rank order: the same bits on every rank.
    virtual void sum(Scratch& scratch, float* data, int64_t count) = 0;
    // Sends out[slot], [hidden] floats, to all ranks from the rank that has the slot's expert: id % size().
    virtual void share_slots(Scratch& scratch, const int32_t* ids, int64_t n_slots, int64_t hidden,
                             float* out) = 0;
    // Sets, on rank 0, whole [n, size() * width] to the parts [n, width] of all ranks, side by side in rank order. `whole` is not
    // used on other ranks.
    virtual void gather_rows(Scratch& scratch, const float* part, int64_t n, int64_t width, float* whole) = 0;

    // On the host: throws cancelled on all ranks if the token of rank 0 is triggered, else on none. Tokens of other ranks are not
    // looked at.
    virtual void go_on(const CancelToken* cancel) = 0;

    // Ends the waits of all ranks, now and later, with this error. Any thread.
    virtual void abandon(const Error& error) noexcept = 0;
};

}  // namespace minim::backend
