// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_exchange.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace minim::sim {
namespace {

// How often a side that waits looks whether the other is still there.
constexpr std::chrono::milliseconds k_look_interval{1};

}  // namespace

SimExchange::SimExchange(int64_t n_rows, int64_t n_used, int64_t hidden, int64_t n_turns,
                         std::function<void()> check, std::function<bool()> is_lost)
    : check_(std::move(check)),
      is_lost_(std::move(is_lost)),
      h_(static_cast<size_t>(n_rows * hidden)),
      ids_(static_cast<size_t>(n_rows * n_used)),
      out_(static_cast<size_t>(n_rows * n_used * hidden)),
      turns_(static_cast<size_t>(n_turns)) {}

void SimExchange::begin() {
    const std::lock_guard lock(mutex_);
    std::ranges::fill(turns_, State{});
    is_given_up_ = false;
}

bool SimExchange::wait(int64_t turn, const CancelToken* cancel) {
    const State& state = turns_[static_cast<size_t>(turn)];
    std::unique_lock lock(mutex_);
    while (!state.is_posted) {
        if (is_given_up_) return false;
        check_();
        if (is_cancelled(cancel)) {
            lock.unlock();
            give_up();
            return false;
        }
        changed_.wait_for(lock, k_look_interval);
    }
    return !is_given_up_;
}

SimExchange::Turn SimExchange::turn() const noexcept {
    return {h_.data(), ids_.data(), const_cast<float*>(out_.data())};
}

void SimExchange::answer(int64_t turn) noexcept {
    {
        const std::lock_guard lock(mutex_);
        turns_[static_cast<size_t>(turn)].is_answered = true;
    }
    changed_.notify_all();
}

void SimExchange::give_up() noexcept {
    {
        const std::lock_guard lock(mutex_);
        is_given_up_ = true;
    }
    changed_.notify_all();
}

void SimExchange::post(int64_t turn, std::span<const float> h, std::span<const int32_t> ids) {
    {
        const std::lock_guard lock(mutex_);
        if (is_given_up_)
            return;  // the host may still read the last turn, which a real device would overwrite
        std::ranges::copy(h, h_.begin());
        std::ranges::copy(ids, ids_.begin());
        turns_[static_cast<size_t>(turn)].is_posted = true;
    }
    changed_.notify_all();
}

const float* SimExchange::collect(int64_t turn) {
    const State& state = turns_[static_cast<size_t>(turn)];
    std::unique_lock lock(mutex_);
    while (!state.is_answered) {
        if (is_given_up_ || is_lost_()) return nullptr;
        changed_.wait_for(lock, k_look_interval);
    }
    return out_.data();
}

}  // namespace minim::sim
