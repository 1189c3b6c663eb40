// SPDX-License-Identifier: Apache-2.0
// The host's side of an exchange with a GPU (backend/exchange.h), and the addresses for the GPU's side. Both sides use
// the same pinned memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "cuda/fast/operations.h"

namespace minim::cuda {

class HostExchange : public backend::Exchange {
  public:
    // Returns the bytes of memory for n_turns turns of steps within the limits.
    static uint64_t bytes(const backend::StepLimits& limits, int64_t n_turns);

    // `memory`: bytes() of pinned memory. `check` throws device_lost.
    HostExchange(std::shared_ptr<backend::Memory> memory, const backend::StepLimits& limits, int64_t n_turns,
                 std::function<void()> check);

    void begin() override;
    bool wait(int64_t turn, const CancelToken* cancel) override;
    Turn turn() const noexcept override { return {h_, ids_, out_}; }
    void answer(int64_t turn) noexcept override;
    void give_up() noexcept override;

    // Return the addresses for kernels, which are those of the host.
    fast::Posted posted(int64_t turn) const noexcept;
    const uint32_t* answered(int64_t turn) const noexcept;
    // Returns the flag that a kernel sets if it has waited for an answer in vain. begin() clears it.
    std::shared_ptr<uint32_t> late() const noexcept { return late_; }

  private:
    const std::shared_ptr<backend::Memory> memory_;  // the pointers below point into it
    const int64_t n_turns_;
    const std::function<void()> check_;
    fast::Flag* to_host_;    // [n_turns]
    fast::Flag* to_device_;  // [n_turns]
    std::shared_ptr<uint32_t> late_;
    float* h_;      // [n_rows, hidden]
    int32_t* ids_;  // [n_rows, n_used]
    float* out_;    // [n_rows * n_used, hidden]
    std::atomic<bool> is_given_up_ = false;
};

}  // namespace minim::cuda
