// SPDX-License-Identifier: Apache-2.0
// The ranks that compute the same layers, as one of them sees it. A rank is one device with its share of these layers. All ranks
// call the same functions in the same order; each has a Group of its own, used by one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "backend/device.h"
#include "base/cancel.h"
#include "base/error.h"

namespace minim::backend {

// The sizes of the largest exchange.
struct GroupLimits {
    int64_t n_sum = 0;    // floats of a sum
    int64_t n_slots = 0;  // slots of share_slots(), of `hidden` floats each
    int64_t hidden = 0;
    int64_t n_gather = 0;  // floats of gather_rows() on all ranks together
};

// The part of a large sum that one rank adds and sends to all. Chunks end at multiples of 256 bytes; the last ones may be empty.
struct SumChunk {
    int64_t begin, end;
    int64_t size() const noexcept { return end - begin; }
};

inline constexpr int64_t k_chunk_floats = 64;

// Returns chunk `rank` of a sum of `count` floats over n_ranks ranks.
inline SumChunk chunk_of_sum(int64_t count, int32_t rank, int32_t n_ranks) noexcept {
    const int64_t each =
        ((count + n_ranks - 1) / n_ranks + k_chunk_floats - 1) / k_chunk_floats * k_chunk_floats;
    const int64_t begin = std::min(rank * each, count);
    return {begin, rank + 1 == n_ranks ? count : std::min(begin + each, count)};
}

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

// Bytes between the ranks of a group, on the host, as one of them sees it: with them devices find one another. Used by one thread at a
// time, but for the last two functions, which any thread may call.
class GroupChannel {
  public:
    virtual ~GroupChannel() = default;

    virtual int32_t rank() const noexcept = 0;
    virtual int32_t size() const noexcept = 0;
    // Returns whether all ranks are in this process: addresses are then those of all.
    virtual bool is_one_process() const noexcept = 0;
    // Returns how long another rank may not answer within a step.
    virtual std::chrono::milliseconds timeout() const noexcept = 0;

    // Sets all [size() * own.size()] to the bytes of all ranks in rank order. All ranks call it, each with as many bytes. Throws the
    // error that a rank has abandoned the group with.
    virtual void exchange(std::span<const std::byte> own, std::span<std::byte> all) = 0;

    virtual void throw_if_abandoned() const = 0;
    virtual void abandon(const Error& error) noexcept = 0;
};

// Connects a rank's device with those of the other ranks without the host in between. It is made when a model is opened, all ranks
// together, and serves the groups of all spaces of steps; groups of one link do not work at the same time.
class GroupLink {
  public:
    virtual ~GroupLink() = default;

    // Returns the names of the ways in which small sums can be computed; the same on all ranks, at least one.
    virtual std::span<const std::string_view> ways() const noexcept = 0;
    // Sets the way of small sums from now on; all ranks set the same one. The first one unless it is set.
    virtual void use_way(size_t way) noexcept = 0;

    // Returns the bytes of the device's memory that make_group() allocates.
    virtual uint64_t group_bytes(const GroupLimits& limits) const = 0;
    // Returns the limits of `over_host` that make_group() needs.
    virtual GroupLimits over_host(const GroupLimits& limits) const = 0;
    // Makes the group of a space. What the link itself cannot do goes over `over_host`. Throws out_of_memory and
    // out_of_device_memory. The link must outlive the group and the streams that it has been used with.
    virtual std::unique_ptr<Group> make_group(std::unique_ptr<Group> over_host,
                                              const GroupLimits& limits) = 0;

    // Ends the waits of the devices of this process, now and later: their results are garbage. The group has been abandoned. Any
    // thread.
    virtual void end_waits() noexcept = 0;
};

}  // namespace minim::backend
