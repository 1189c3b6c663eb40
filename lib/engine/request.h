// A request to an engine as both sides see it: the engine fills it, its owner reads and cancels.
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
    int64_t timeout_ms = 0;  // from submission on; then the text ends where it is. 0: none
    // Called on the engine's thread when there is something to take. Must not block or call the engine; may cancel requests. What it
    // throws is dropped.
    std::function<void()> notify;
};

using RequestState = AnswerState;

class Request {
  public:
    using Clock = std::chrono::steady_clock;

    Request(std::vector<int32_t> prompt, RequestParams params)
        : prompt_(std::move(prompt)), params_(std::move(params)) {}

    enum class Take { token, ended, nothing_yet };

    // Whether this process is a child of the one that has the engine's thread. Then take() and state() throw invalid, cancel()
    // does nothing, and the request must not be destroyed: its locks may stay locked.
    bool is_left() const noexcept { return home_.is_left(); }
    void require_home() const { home_.require("the engine"); }

    // The next token. Waits until there is one, the text has ended, or `deadline`; one owner at a time.
    // Throws what ended the request where that was an error.
    Take take(TokenEvent& event, Clock::time_point deadline);

    // Ends the text after what was reported, at once; `notify` is not called any more: one that runs on another thread is waited for.
    // Any thread.
    void cancel();

    // Any thread. `finish` is none until the last token was taken.
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
    std::atomic<std::thread::id> notifier_ = {};  // who runs it just now
};

}  // namespace minim::engine
