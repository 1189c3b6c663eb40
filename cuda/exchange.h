// SPDX-License-Identifier: Apache-2.0
// The host's side of an exchange with a GPU (backend/exchange.h), and where the GPU finds its own: pinned memory that both see.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "cuda/fast/operations.h"

namespace minim::cuda {

class HostExchange : public backend::Exchange {
  public:
    // Bytes of memory for n_turns of steps within the limits.
    static uint64_t bytes(const backend::StepLimits& limits, int64_t n_turns);

    // `memory`: pinned, bytes() of it. `check` throws device_lost.
    HostExchange(std::shared_ptr<backend::Memory> memory, const backend::StepLimits& limits, int64_t n_turns,
                 std::function<void()> check);

    void begin() override;
    bool wait(int64_t turn, const CancelToken* cancel) override;
    Turn turn() const noexcept override { return {h_, ids_, out_}; }
    void answer(int64_t turn) noexcept override;
    void give_up() noexcept override;

    // Of kernels, which have the same addresses.
    fast::Posted posted(int64_t turn) const noexcept;
    const uint32_t* answered(int64_t turn) const noexcept;
    // Set by a kernel that has waited for an answer in vain; clear again at begin().
    std::shared_ptr<uint32_t> late() const noexcept { return late_; }

  private:
    const std::shared_ptr<backend::Memory> memory_;  // of the pointers below
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
