// SPDX-License-Identifier: Apache-2.0
// A request to stop. It is checked between read blocks on load, between layers in prefill and between tokens in
// decode.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "base/error.h"

namespace minim {

// trigger() is callable from any thread and from a signal handler: the flag is a lock-free atomic.
class CancelToken {
  public:
    CancelToken() = default;
    // Makes a token that also calls `check` (must not throw), on the thread that calls triggered().
    explicit CancelToken(std::function<bool()> check) : check_(std::move(check)) {}

    void trigger() noexcept { flag_.store(true, std::memory_order_relaxed); }
    void reset() noexcept { flag_.store(false, std::memory_order_relaxed); }
    bool triggered() const noexcept { return flag_.load(std::memory_order_relaxed) || (check_ && check_()); }

    static_assert(std::atomic<bool>::is_always_lock_free);

  private:
    std::atomic<bool> flag_{false};
    const std::function<bool()> check_;
};

inline bool is_cancelled(const CancelToken* token) noexcept {
    return token != nullptr && token->triggered();
}

inline void throw_if_cancelled(const CancelToken* token, const char* during) {
    if (is_cancelled(token)) fail(Status::cancelled, "cancelled during {}", during);
}

}  // namespace minim
