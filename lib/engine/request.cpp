// SPDX-License-Identifier: Apache-2.0
#include "engine/request.h"

#include <utility>

namespace minim::engine {

Request::Take Request::take(TokenEvent& event, Clock::time_point deadline) {
    require_home();
    std::unique_lock lock(mutex_);
    const auto has_news = [&] { return !events_.empty() || ended_; };
    if (deadline == Clock::time_point::max()) {
        changed_.wait(lock, has_news);
    } else if (!has_news() && deadline <= Clock::now()) {
        return Take::nothing_yet;  // even a wait of no time sleeps for some 50 us
    } else if (!changed_.wait_until(lock, deadline, has_news)) {
        return Take::nothing_yet;
    }
    if (!events_.empty()) {
        event = std::move(events_.front());
        events_.pop_front();
        return Take::token;
    }
    if (error_) throw Error(*error_);
    return Take::ended;
}

void Request::cancel() {
    if (is_left()) return;
    {
        const std::lock_guard lock(mutex_);
        cancelled_ = true;
        if (!ended_) state_.finish = Finish::stopped;
        ended_ = true;
    }
    changed_.notify_all();
    if (notifier_ == std::this_thread::get_id()) return;  // called by `notify`, which returns after this
    const std::lock_guard lock(notifying_);               // wait until a running one returns
}

void Request::notify() noexcept {
    if (!params_.notify) return;
    const std::lock_guard lock(notifying_);
    if (cancelled_) return;
    notifier_ = std::this_thread::get_id();
    try {
        params_.notify();
    } catch (...) {
        // The engine's thread cannot handle it; the request goes on.
    }
    notifier_ = std::thread::id();
}

RequestState Request::state() const {
    require_home();
    const std::lock_guard lock(mutex_);
    RequestState state = state_;
    if (!events_.empty()) state.finish = Finish::none;
    return state;
}

void Request::report(std::vector<TokenEvent>& events, const RequestState& state) {
    {
        const std::lock_guard lock(mutex_);
        if (ended_) return;
        for (TokenEvent& event : events) events_.push_back(std::move(event));
        state_ = state;
    }
    changed_.notify_all();
    if (!events.empty()) notify();
}

void Request::end(const RequestState& state, const std::optional<Error>& error) {
    {
        const std::lock_guard lock(mutex_);
        if (ended_) return;
        state_ = state;
        ended_ = true;
        error_ = error;
    }
    changed_.notify_all();
    notify();
}

}  // namespace minim::engine
