// SPDX-License-Identifier: Apache-2.0
#include "cuda/exchange.h"

#include <chrono>
#include <thread>

#include "base/pause.h"
#include "cuda/taker.h"

namespace minim::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// How a host waits: it spins first. A device that decodes posts a layer's inputs some 100 us after those of the layer
// before; a sleep, which takes at least 60 us, would lengthen every layer. In longer waits the host leaves the core to
// other threads.
constexpr std::chrono::microseconds k_spin{50};
constexpr std::chrono::microseconds k_yield{1000};
constexpr std::chrono::microseconds k_nap{10};
// How often a host that waits asks whether the device is still there. The driver may make that call wait for all work of the
// device, for example while another thread gives memory back, and that work may wait for this host. So the host asks rarely.
constexpr std::chrono::milliseconds k_look_interval{100};

uint32_t load_flag(uint32_t& flag) noexcept {
    return std::atomic_ref(flag).load(std::memory_order_acquire);
}

void store_flag(uint32_t& flag, uint32_t value) noexcept {
    std::atomic_ref(flag).store(value, std::memory_order_release);
}

struct Layout {
    fast::Flag* to_host;
    fast::Flag* to_device;
    fast::Flag* late;
    float* h;
    int32_t* ids;
    float* out;
    uint64_t bytes;

    Layout(std::byte* base, const backend::StepLimits& limits, int64_t n_turns) {
        const int64_t n_slots = limits.n_rows * limits.n_expert_used;
        Taker taker(base);
        taker.take(to_host, n_turns);
        taker.take(to_device, n_turns);
        taker.take(late, 1);
        taker.take(h, limits.n_rows * limits.hidden);
        taker.take(ids, n_slots);
        taker.take(out, n_slots * limits.hidden);
        bytes = taker.bytes();
    }
};

}  // namespace

uint64_t HostExchange::bytes(const backend::StepLimits& limits, int64_t n_turns) {
    return Layout(nullptr, limits, n_turns).bytes;
}

HostExchange::HostExchange(std::shared_ptr<backend::Memory> memory, const backend::StepLimits& limits,
                           int64_t n_turns, std::function<void()> check)
    : memory_(std::move(memory)), n_turns_(n_turns), check_(std::move(check)) {
    const Layout layout(memory_->data(), limits, n_turns);
    to_host_ = layout.to_host;
    to_device_ = layout.to_device;
    late_ = {memory_, &layout.late->value};
    h_ = layout.h;
    ids_ = layout.ids;
    out_ = layout.out;
    begin();
}

void HostExchange::begin() {
    for (int64_t turn = 0; turn < n_turns_; ++turn) {
        store_flag(to_host_[turn].value, fast::k_flag_clear);
        store_flag(to_device_[turn].value, fast::k_flag_clear);
    }
    store_flag(*late_, fast::k_flag_clear);
    is_given_up_ = false;
}

bool HostExchange::wait(int64_t turn, const CancelToken* cancel) {
    const auto start = Clock::now();
    auto next_look = start + k_look_interval;
    while (load_flag(to_host_[turn].value) == fast::k_flag_clear) {
        if (is_given_up_) return false;
        const auto now = Clock::now();
        if (now - start < k_spin) {
            pause_core();
            continue;
        }
        if (is_cancelled(cancel)) {
            give_up();
            return false;
        }
        if (now - start < k_yield) {
            std::this_thread::yield();
            continue;
        }
        if (now >= next_look) {
            check_();
            next_look = now + k_look_interval;
        }
        std::this_thread::sleep_for(k_nap);
    }
    return !is_given_up_;
}

void HostExchange::answer(int64_t turn) noexcept {
    store_flag(to_device_[turn].value, fast::k_flag_set);
}

void HostExchange::give_up() noexcept {
    is_given_up_ = true;
    for (int64_t turn = 0; turn < n_turns_; ++turn) store_flag(to_device_[turn].value, fast::k_flag_given_up);
}

fast::Posted HostExchange::posted(int64_t turn) const noexcept {
    return {h_, ids_, &to_host_[turn].value};
}

const uint32_t* HostExchange::answered(int64_t turn) const noexcept {
    return &to_device_[turn].value;
}

}  // namespace minim::cuda
