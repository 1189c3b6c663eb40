// SPDX-License-Identifier: Apache-2.0
#include "base/own_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "base/thread_pool.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

namespace {

// Returns the result of `body` in a child of fork(), or -1 if the child is killed, as after 20 s.
template <typename Body>
int in_child(const Body& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);
        ::_exit(body());
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a thread of the library has a name, and leaves all signals but those of faults to others") {
    sigset_t blocked;
    sigset_t before;
    REQUIRE(::pthread_sigmask(SIG_SETMASK, nullptr, &before) == 0);
    std::string name(32, '\0');
    std::thread thread = start_thread("minim-and-many-more", "a thread", [&] {
        ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    });
    thread.join();
    CHECK(std::string(name.c_str()) == "minim-and-many-");
    for (const int signal : {SIGTERM, SIGINT, SIGCHLD, SIGALRM, SIGHUP, SIGUSR1, SIGPIPE, SIGRTMAX}) {
        // An emulator keeps some real-time signals for itself.
        if (signal == SIGRTMAX && std::getenv("MINIM_TEST_EMULATED") != nullptr) continue;
        CHECK(::sigismember(&blocked, signal) == 1);
    }
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
        CHECK(::sigismember(&blocked, signal) == 0);
    // The blocked signals of the starting thread are unchanged.
    sigset_t after;
    REQUIRE(::pthread_sigmask(SIG_SETMASK, nullptr, &after) == 0);
    for (int signal = 1; signal < 32; ++signal)
        CHECK(::sigismember(&after, signal) == ::sigismember(&before, signal));
}

TEST_CASE("a process knows whether it is the one something was made in") {
    const HomeProcess home;
    CHECK_FALSE(home.is_left());
    home.require("this");
    const int found = in_child([&] {
        const HomeProcess own;
        if (!home.is_left() || own.is_left()) return 1;
        try {
            home.require("the pool");
        } catch (const Error& error) {
            const std::string text = error.what();
            return error.status() == Status::invalid && text.starts_with("the pool was made before fork()")
                       ? 0
                       : 2;
        }
        return 3;
    });
    CHECK(found == 0);
    CHECK_FALSE(home.is_left());
}

TEST_CASE("a child of fork() can end a pool of the parent's, and is told that it has no threads") {
    auto pool = std::make_unique<const ThreadPool>(3);
    pool->run(10, [](int64_t, int32_t) {});
    const ThreadPool alone(1);
    const int found = in_child([&] {
        if (!pool->is_left() || alone.is_left()) return 1;
        int n_runs = 0;
        alone.run(5, [&](int64_t, int32_t) { ++n_runs; });
        if (n_runs != 5) return 2;
        { const ThreadPool::Awake awake(*pool); }
        try {
            pool->run(10, [](int64_t, int32_t) {});
            return 3;
        } catch (const Error& error) {
            if (error.status() != Status::invalid) return 4;
        }
        pool.reset();
        return 0;
    });
    CHECK(found == 0);
    int64_t sum = 0;
    pool->run(1, [&](int64_t, int32_t) { ++sum; });
    CHECK(sum == 1);
}
