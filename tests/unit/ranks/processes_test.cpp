// SPDX-License-Identifier: Apache-2.0
#include "ranks/processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "base/error.h"
#include "ranks/ended_processes.h"
#include "ranks/tags.h"
#include "reference/reference_backend.h"
#include "runtime/host_group.h"
#include "support/helpers.h"
#include "unit/ranks/support.h"

using namespace minim;
using namespace minim::ranks;
using namespace minim::test;
using std::chrono::milliseconds;

namespace {

using Bytes = std::vector<std::byte>;

Bytes text_bytes(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

std::string text_of(const Bytes& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The numbers of a rank: sums of them depend on the order of the additions.
std::vector<float> rank_numbers(int32_t rank, int64_t count) {
    std::mt19937 random(static_cast<uint32_t>(rank) + 100);
    std::vector<float> values(count);
    for (float& value : values)
        value =
            std::ldexp(static_cast<float>(random() % 65536) - 32768.0F, static_cast<int>(random() % 24) - 12);
    return values;
}

// Runs a function on a thread for each rank of a process. A rank that throws abandons the group.
void run_local_ranks(Processes& processes,
                     const std::function<void(runtime::HostGroup&, backend::Scratch&)>& rank) {
    constexpr runtime::GroupLimits k_limits = {
        .n_sum = 200'000, .n_slots = 16, .hidden = 8, .n_gather = 1000};
    const auto backend = reference::make_reference_backend();
    auto ends = connect_ranks(processes);
    std::vector<std::optional<Error>> errors(ends.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ends.size(); ++i)
        threads.emplace_back([&, i] {
            runtime::HostGroup group(*backend, *ends[i], k_limits);
            const auto scratch = backend->reserve({});
            try {
                rank(group, *scratch);
            } catch (const Error& error) {
                errors[i].emplace(error);
                group.abandon(error);
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::optional<Error>& error : errors)
        if (error) throw Error(*error);
}

// A process that does nothing until it is killed.
class Sleeper {
  public:
    Sleeper() : pid_(::fork()) {
        if (pid_ != 0) return;
        while (true) ::pause();
    }
    ~Sleeper() { end(); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    int64_t pid() const { return pid_; }
    void end() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    pid_t pid_;
};

}  // namespace

TEST_CASE("control messages arrive in their order, whatever their size") {
    for (const int32_t n : {1, 2, 3}) {
        expect_no_errors(run_processes(n, k_options, [&](Processes& processes) {
            const int32_t own = processes.process();
            for (int i = 0; i < 50; ++i)
                for (int32_t p = 0; p < n; ++p)
                    if (p != own)
                        processes.send(
                            p, text_bytes(std::string(i * i * 5, 'a') + std::to_string(i * 10 + own)));
            for (int i = 0; i < 50; ++i)
                for (int32_t p = 0; p < n; ++p) {
                    if (p == own) continue;
                    const std::string expected = std::string(i * i * 5, 'a') + std::to_string(i * 10 + p);
                    if (text_of(processes.receive(p)) != expected) fail_internal("message {} of {}", i, p);
                }
        }));
    }
}

TEST_CASE("ranks of several processes and devices sum in rank order") {
    constexpr int64_t k_counts[] = {1, 37, 5000, 131'075};
    for (const auto& [n, n_devices] : {std::pair{2, 1}, std::pair{3, 1}, std::pair{2, 2}, std::pair{2, 3}}) {
        std::atomic<int> n_wrong = 0;
        expect_no_errors(run_processes(
            n, {.n_devices = n_devices, .lead = {}}, [&, size = n * n_devices](Processes& processes) {
                run_local_ranks(processes, [&](runtime::HostGroup& group, backend::Scratch& scratch) {
                    if (group.size() != size) fail_internal("{} ranks, not {}", group.size(), size);
                    for (const int64_t count : k_counts) {
                        std::vector<float> expected = rank_numbers(0, count);
                        for (int32_t r = 1; r < size; ++r) {
                            const std::vector<float> term = rank_numbers(r, count);
                            for (int64_t i = 0; i < count; ++i) expected[i] += term[i];
                        }
                        std::vector<float> data = rank_numbers(group.rank(), count);
                        group.sum(scratch, data.data(), count);
                        if (std::memcmp(data.data(), expected.data(), data.size() * 4) != 0) ++n_wrong;
                    }
                });
            }));
        CHECK(n_wrong == 0);
    }
}

TEST_CASE("the error of a rank ends the waits of all processes, with the rank's name") {
    for (const int32_t failing : {0, 1, 3, 5}) {
        const auto errors = run_processes(3, {.n_devices = 2, .lead = {}}, [&](Processes& processes) {
            run_local_ranks(processes, [&](runtime::HostGroup& group, backend::Scratch& scratch) {
                std::vector<float> data(50'000, 1.0F);
                for (int i = 0; i < 20; ++i) {
                    if (i == 11 && group.rank() == failing)
                        fail(Status::out_of_device_memory, "sim:0: no memory");
                    group.sum(scratch, data.data(), i % 2 == 0 ? 10 : std::ssize(data));
                }
            });
        });
        expect_errors(errors, Status::out_of_device_memory, "sim:0: no memory");
        for (int32_t p = 0; p < 3; ++p) {
            const std::string text = errors[p]->what();
            const bool has_name = text.starts_with("rank " + std::to_string(failing) + " (host ");
            CHECK(has_name == (p != failing / 2));
        }
    }
}

TEST_CASE("an abandoned process fails at once at every later call, also while it waits for messages") {
    const auto errors = run_processes(3, k_options, [](Processes& processes) {
        if (processes.process() == 1) fail(Status::device_lost, "cuda:0: lost");
        const auto error = error_of([&] { processes.receive(1); });
        require_here(error.has_value(), "a wait ends");
        const auto end = processes.connect(0);
        Bytes bytes(4);
        const std::function<void()> calls[] = {[&] { processes.require(); },
                                               [&] { processes.send(2 - processes.process(), {}); },
                                               [&] { processes.receive(2 - processes.process()); },
                                               [&] { end->receive(1, bytes); },
                                               [&] { end->send(1, bytes); },
                                               [&] { end->count_unfinished({}); }};
        for (const auto& call : calls) {
            const auto again = error_of(call);
            require_here(again && again->what() == std::string(error->what()), "later calls throw the same");
        }
        throw Error(*error);
    });
    expect_errors(errors, Status::device_lost, "cuda:0: lost");
    CHECK(std::string(errors[0]->what()).starts_with("rank 1 ("));
}

TEST_CASE("a process that closes the model without leaving ends the others' waits") {
    auto links = connect_processes(2);
    std::optional<Error> error;
    std::thread other([&] { const Processes processes(std::move(links[1]), k_options); });
    Processes processes(std::move(links[0]), k_options);
    error = error_of([&] { processes.receive(1); });
    other.join();
    REQUIRE(error);
    CHECK(error->status() == Status::peer_lost);
    CHECK(std::string(error->what()).ends_with("has closed the model"));
}

TEST_CASE("a rank that does not answer within the limit is lost, by name") {
    constexpr milliseconds k_limit{800};
    const auto errors = run_processes(3, {.timeout = k_limit, .lead = {}}, [&](Processes& processes) {
        if (processes.process() == 2) {
            // Stands still, until the others have given up.
            while (!error_of([&] { processes.require(); })) std::this_thread::sleep_for(milliseconds(5));
            processes.require();
        }
        run_local_ranks(processes, [&](runtime::HostGroup& group, backend::Scratch& scratch) {
            std::vector<float> data(50'000, 1.0F);
            const auto start = std::chrono::steady_clock::now();
            const auto error = error_of([&] { group.sum(scratch, data.data(), std::ssize(data)); });
            const auto waited = std::chrono::steady_clock::now() - start;
            require_here(waited >= k_limit, "the limit is waited for");
            require_here(waited < k_limit + milliseconds(2000), "the wait ends");
            require_here(error.has_value(), "the wait fails");
            throw Error(*error);
        });
    });
    expect_errors(errors, Status::peer_lost, "has not answered for 0.8 s");
    for (const auto& error : errors) CHECK(std::string(error->what()).starts_with("rank 2 ("));
}

TEST_CASE("a message of another size than the receiver's is an error on both sides") {
    const auto errors = run_processes(2, k_options, [](Processes& processes) {
        const auto end = processes.connect(0);
        Bytes bytes(processes.process() == 0 ? 10'000 : 10'001);
        const int32_t peer = 1 - processes.process();
        const runtime::Transport::Ticket tickets[] = {end->receive(peer, bytes), end->send(peer, bytes)};
        try {
            end->wait(tickets);
        } catch (const Error& error) {
            end->abandon(error);
            throw;
        }
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->status() == Status::internal);
    }
}

TEST_CASE("the end of a process is seen at once") {
    EndedProcesses ended;
    Sleeper first;
    Sleeper second;
    ended.add(7, first.pid());
    ended.add(9, second.pid());
    CHECK(ended.wait(milliseconds(10)).empty());
    second.end();
    CHECK(ended.wait(milliseconds(1000)) == std::vector<int32_t>{9});
    CHECK(ended.wait(milliseconds(10)).empty());
    first.end();
    CHECK(ended.wait(milliseconds(1000)) == std::vector<int32_t>{7});
}

TEST_CASE("a process that had ended before it was watched is seen too") {
    Sleeper sleeper;
    const int64_t pid = sleeper.pid();
    sleeper.end();
    EndedProcesses ended;
    ended.add(3, pid);
    CHECK(ended.wait(milliseconds(1000)) == std::vector<int32_t>{3});
}

TEST_CASE("a wait for the end of processes can be woken") {
    EndedProcesses ended;
    ended.wake();
    const auto start = std::chrono::steady_clock::now();
    CHECK(ended.wait(milliseconds(10'000)).empty());
    CHECK(std::chrono::steady_clock::now() - start < milliseconds(5'000));
}
