// SPDX-License-Identifier: Apache-2.0
#include "http/event_loop.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
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

constexpr int k_ends[] = {SIGTERM, SIGINT};

struct SignalNote {
    int signal = 0;
    pid_t sender = 0;  // 0: a terminal
};

std::atomic<int> signal_pipe = -1;  // the end that note_signal() writes to
static_assert(std::atomic<int>::is_always_lock_free);

// A handler of signals: asio has none that says who has sent one.
void note_signal(int signal, siginfo_t* info, void* /*context*/) {
    const int kept = errno;
    const SignalNote note{signal, info->si_code == SI_USER ? info->si_pid : 0};
    [[maybe_unused]] const ssize_t n_written = write(signal_pipe, &note, sizeof note);  // full: enough wait
    errno = kept;
}

void catch_signal(int signal) {
    struct sigaction action = {};
    action.sa_sigaction = note_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(signal, &action, nullptr);
}

}  // namespace

struct EventLoop::State {
    asio::io_context context{1};
    asio::posix::stream_descriptor signals{context};
    SignalNote note;  // of the read under way
    std::vector<std::unique_ptr<Repetition>> repetitions;
    std::function<void(pid_t)> on_termination;
    std::function<void(pid_t)> on_hangup;

    ~State() {
        if (!signals.is_open()) return;
        if (on_termination)
            for (const int signal : k_ends) std::signal(signal, SIG_DFL);
        // Until the process has ended, SIGHUP is for a server that is there.
        if (on_hangup) std::signal(SIGHUP, SIG_IGN);
        close(signal_pipe.exchange(-1));
    }

    void open_signal_pipe() {
        if (signals.is_open()) return;
        int ends[2] = {-1, -1};
        if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0)
            throw std::system_error(errno, std::generic_category(), "no pipe for signals");
        signals.assign(ends[0]);
        signal_pipe = ends[1];
        wait_for_signal();
    }

    // Writes of a few bytes to a pipe are read as they were written.
    void wait_for_signal() {
        signals.async_read_some(asio::buffer(&note, sizeof note), [this](const error_code& error, size_t) {
            if (error) return;
            const auto& task = note.signal == SIGHUP ? on_hangup : on_termination;
            task(note.sender);
            wait_for_signal();
        });
    }
};

EventLoop::EventLoop() : state_(std::make_unique<State>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() {
    const auto work = asio::make_work_guard(state_->context);
    state_->context.restart();
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

void EventLoop::on_termination(std::function<void(pid_t)> task) {
    state_->on_termination = std::move(task);
    state_->open_signal_pipe();
    for (const int signal : k_ends) catch_signal(signal);
}

void EventLoop::on_hangup(std::function<void(pid_t)> task) {
    state_->on_hangup = std::move(task);
    state_->open_signal_pipe();
    catch_signal(SIGHUP);
}

asio::io_context& EventLoop::context() {
    return state_->context;
}

}  // namespace server
