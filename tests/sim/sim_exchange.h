// SPDX-License-Identifier: Apache-2.0
// The exchange of a simulated device: both sides in the process, a mutex in place of flags.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "backend/exchange.h"

namespace minim::sim {

class SimExchange : public backend::Exchange {
  public:
    // `check` throws device_lost if the device is lost; `is_lost` returns it without throwing.
    SimExchange(int64_t n_rows, int64_t n_used, int64_t hidden, int64_t n_turns, std::function<void()> check,
                std::function<bool()> is_lost);

    void begin() override;
    bool wait(int64_t turn, const CancelToken* cancel) override;
    Turn turn() const noexcept override;
    void answer(int64_t turn) noexcept override;
    void give_up() noexcept override;

    // The device's side, in tasks of its stream.
    void post(int64_t turn, std::span<const float> h, std::span<const int32_t> ids);
    // Returns the host's outputs, or null if none will come.
    const float* collect(int64_t turn);

  private:
    struct State {
        bool is_posted = false;
        bool is_answered = false;
    };

    const std::function<void()> check_;
    const std::function<bool()> is_lost_;
    std::vector<float> h_;
    std::vector<int32_t> ids_;
    std::vector<float> out_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<State> turns_;
    bool is_given_up_ = false;
};

}  // namespace minim::sim
