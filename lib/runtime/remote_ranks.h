// SPDX-License-Identifier: Apache-2.0
// The ranks of other processes, as the process that leads them drives them.
#pragma once

#include <cstdint>
#include <span>

namespace minim::runtime {

struct StepRow;  // forward_pass.h

// Any thread. Calls take effect in their order in every other process.
class RemoteRanks {
  public:
    virtual ~RemoteRanks() = default;

    // Makes a StepSpace in every other process, and returns its number. Throws what a process refuses with, with its rank's name in
    // front.
    virtual uint32_t make_space(int64_t n_rows, int64_t n_context) = 0;
    virtual void end_space(uint32_t space) noexcept = 0;

    // Sends a step. Returns before it is computed.
    virtual void start(uint32_t space, std::span<const StepRow> rows) = 0;
};

}  // namespace minim::runtime
