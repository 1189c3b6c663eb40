// SPDX-License-Identifier: Apache-2.0
// The space of a stream of steps on every rank of a process, and its number in other processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/top_k.h"
#include "runtime/forward_pass.h"
#include "runtime/rank_space.h"

namespace minim::runtime {

// The maximum number of rows of a step: the grids of GPU kernels are limited to four times that.
inline constexpr int64_t k_max_step_rows = int64_t{1} << 16;
// The maximum number of rows of a step with a prompt, if the caller does not state them.
inline constexpr int64_t k_default_step_rows = 512;

// Returns the bytes of each device's memory that a StepSpace of these arguments allocates in this process, without allocating any.
// Throws as the other step_bytes().
std::map<const backend::Backend*, uint64_t> step_bytes(const ForwardPass& forward, int64_t n_rows,
                                                       int64_t n_context);

// The space of steps of at most n_rows rows that attend to at most n_context positions. Threads must not share it. The
// devices, and the forward pass if it is one of several ranks, must outlive it.
class StepSpace {
  public:
    // Throws out_of_memory, out_of_device_memory, what another process refuses with, and peer_lost.
    StepSpace(const ForwardPass& forward, int64_t n_rows, int64_t n_context);
    // Makes space for a rank that is alone.
    StepSpace(std::span<const Stage> stages, const backend::StepLimits& shape, int64_t n_rows,
              int64_t n_context);
    // Makes space for all layers on one device.
    StepSpace(const backend::Backend& backend, const backend::StepLimits& shape, int64_t n_rows,
              int64_t n_context);
    ~StepSpace();
    StepSpace(const StepSpace&) = delete;
    StepSpace& operator=(const StepSpace&) = delete;

    int64_t n_rows() const noexcept { return ranks_.front()->n_rows(); }

    // Returns whether the logits of a step stay on the device until the next one, with top-k available.
    bool keeps_logits() const noexcept { return ranks_.front()->keeps_logits(); }

    // Returns the top-k of a row of the last step; rows are counted among those that requested logits.
    TopK top_k(int64_t wanted_row) const { return ranks_.front()->top_k(wanted_row); }

  private:
    friend class ForwardPass;
    std::vector<std::unique_ptr<RankSpace>> ranks_;  // of this process
    RemoteRanks* remote_ = nullptr;                  // null: there are no other processes
    uint32_t number_ = 0;                            // in other processes
};

}  // namespace minim::runtime
