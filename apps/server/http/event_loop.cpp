// SPDX-License-Identifier: Apache-2.0
#include "http/event_loop.h"

#include <csignal>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

namespace server {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

struct Repetition {
    asio::steady_timer timer;
    std::chrono::milliseconds interval;
    std::function<void()> task;
};

void run_again(Repetition& repetition) {
    repetition.timer.expires_after(repetition.interval);
    repetition.timer.async_wait([&repetition](const error_code& error) {
        if (error) return;
        repetition.task();
        run_again(repetition);
    });
}

}  // namespace

struct EventLoop::State {
    asio::io_context context{1};
    asio::signal_set signals{context};
    std::vector<std::unique_ptr<Repetition>> repetitions;
    std::function<void()> on_termination;

    void wait_for_signal() {
        signals.async_wait([this](const error_code& error, int) {
            if (error) return;
            on_termination();
            wait_for_signal();
        });
    }
};

EventLoop::EventLoop() : state_(std::make_unique<State>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() {
    const auto work = asio::make_work_guard(state_->context);
    state_->context.run();
}

void EventLoop::stop() {
    state_->context.stop();
}

void EventLoop::post(std::function<void()> task) {
    asio::post(state_->context, std::move(task));
}

void EventLoop::every(std::chrono::milliseconds interval, std::function<void()> task) {
    state_->repetitions.push_back(std::make_unique<Repetition>(
        Repetition{asio::steady_timer(state_->context), interval, std::move(task)}));
    run_again(*state_->repetitions.back());
}

void EventLoop::on_termination(std::function<void()> task) {
    state_->on_termination = std::move(task);
    state_->signals.add(SIGTERM);
    state_->signals.add(SIGINT);
    state_->wait_for_signal();
}

asio::io_context& EventLoop::context() {
    return state_->context;
}

}  // namespace server
