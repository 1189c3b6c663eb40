// SPDX-License-Identifier: Apache-2.0
// The ranks of other processes, as the process that plans the steps drives them.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/step_row.h"

namespace minim::runtime {

// Any thread. After the loss of a process, calls that throw throw peer_lost.
class RemoteRanks {
  public:
    virtual ~RemoteRanks() = default;

    // Makes the space of steps (StepSpace) in every other process. Returns its number. Throws what a process refuses with,
    // with its rank's name in front.
    virtual uint32_t make_space(int64_t n_rows, int64_t n_context) = 0;
    virtual void end_space(uint32_t space) noexcept = 0;

    // Sends a step to every other process. Returns before it is computed.
    virtual void start(uint32_t space, std::span<const StepRow> rows) = 0;
};

}  // namespace minim::runtime
