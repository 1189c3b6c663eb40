// SPDX-License-Identifier: Apache-2.0
#include "base/own_thread.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace minim {
namespace {

// Blocks the signals that a new thread must not get, in the thread that starts it, while this object exists: a new thread
// inherits the mask.
class BlockedSignals {
  public:
    BlockedSignals() noexcept {
        sigset_t blocked;
        ::sigfillset(&blocked);
        for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
            ::sigdelset(&blocked, signal);
        ::pthread_sigmask(SIG_SETMASK, &blocked, &before_);
    }
    ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

  private:
    sigset_t before_;
};

// The number of fork() calls between the process that loaded the library and this one.
std::atomic<uint32_t> g_n_forks{0};

void count_fork() noexcept {
    g_n_forks.fetch_add(1, std::memory_order_relaxed);
}

// Counts forks instead of calling getpid(), a system call that is too slow before each job of some microseconds.
void watch_forks() {
    static const bool is_watched = [] {
        const int code = ::pthread_atfork(nullptr, nullptr, count_fork);
        if (code != 0) fail(Status::out_of_memory, "cannot watch for fork(): {}", std::strerror(code));
        return true;
    }();
    static_cast<void>(is_watched);
}

}  // namespace

std::thread start_thread(std::string_view name, std::string_view what, std::function<void()> body) {
    constexpr size_t k_max_characters = 15;
    std::string kept(name.substr(0, k_max_characters));
    const BlockedSignals blocked;
    try {
        return std::thread([kept = std::move(kept), body = std::move(body)] {
            ::pthread_setname_np(::pthread_self(), kept.c_str());
            body();
        });
    } catch (const std::system_error& error) {
        ErrorFacts facts;
        facts.os_code = error.code().value();
        throw Error(
            Status::out_of_memory, Reason::none,
            format_text("cannot start {}: {} (errno {}); the process may be at a limit of threads or memory "
                        "(ulimit -u, ulimit -v, the cgroup's pids.max)",
                        what, std::strerror(error.code().value()), error.code().value()),
            facts);
    }
}

HomeProcess::HomeProcess() {
    watch_forks();
    n_forks_ = g_n_forks.load(std::memory_order_relaxed);
}

bool HomeProcess::is_left() const noexcept {
    return g_n_forks.load(std::memory_order_relaxed) != n_forks_;
}

void HomeProcess::require(std::string_view what) const {
    if (is_left())
        fail(Status::invalid,
             "{} was made before fork(), and its threads are not in this child process: create a runtime and "
             "open the "
             "model here",
             what);
}

}  // namespace minim
