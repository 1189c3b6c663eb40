// SPDX-License-Identifier: Apache-2.0
// A request to an engine, shared by both sides: the engine adds tokens, the owner reads them and may cancel.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/own_thread.h"
#include "engine/answer.h"

namespace minim::engine {

struct RequestParams {
    GenerateParams generate;
    int32_t priority = 0;    // higher ones go first
    int64_t timeout_ms = 0;  // from submission on; then the text is ended. 0: none
    // Called on the engine's thread if there is something to read. It must not block or call the engine, but may
    // cancel requests. Its exceptions are dropped.
    std::function<void()> notify;
};

using RequestState = AnswerState;

class Request {
  public:
    using Clock = std::chrono::steady_clock;

    Request(std::vector<int32_t> prompt, RequestParams params)
        : prompt_(std::move(prompt)), params_(std::move(params)) {}

    enum class Take { token, ended, nothing_yet };

    // Returns whether this process is a child of the one with the engine's thread. Then take() and state() throw
    // invalid, cancel() does nothing, and the request must not be destroyed: its locks may stay locked.
    bool is_left() const noexcept { return home_.is_left(); }
    void require_home() const { home_.require("the engine"); }

    // Waits for the next token until there is one, the text has ended, or `deadline`; one thread at a time. Throws
    // the error that ended the request, if any.
    Take take(TokenEvent& event, Clock::time_point deadline);

    // Ends the text after the reported tokens, at once. `notify` is not called any more; if it runs on another
    // thread, waits until it returns. Any thread.
    void cancel();

    // Returns the state. Any thread. `finish` is none until the last token was read.
    RequestState state() const;

    // ---- for the engine ----
    std::span<const int32_t> prompt() const noexcept { return prompt_; }
    const RequestParams& params() const noexcept { return params_; }
    bool is_cancelled() const noexcept { return cancelled_; }
    // Both do nothing once the request was cancelled.
    void report(std::vector<TokenEvent>& events, const RequestState& state);
    void end(const RequestState& state, const std::optional<Error>& error);

  private:
    void notify() noexcept;

    const std::vector<int32_t> prompt_;
    const RequestParams params_;
    const HomeProcess home_;
    std::atomic<bool> cancelled_{false};

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<TokenEvent> events_;
    RequestState state_;
    bool ended_ = false;
    std::optional<Error> error_;
    std::mutex notifying_;                        // locked while `notify` runs
    std::atomic<std::thread::id> notifier_ = {};  // the thread that runs it now
};

}  // namespace minim::engine
