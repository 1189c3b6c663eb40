// SPDX-License-Identifier: Apache-2.0
#include "ranks/leader.h"

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "ranks/follower.h"
#include "runtime/forward_pass.h"
#include "support/helpers.h"
#include "unit/ranks/support.h"

using namespace minim;
using namespace minim::ranks;
using namespace minim::test;
using backend::KvPage;

namespace {

using Bytes = std::vector<std::byte>;

// Notes the calls, and fails at some of them.
class NotedCalls final : public FollowerCalls {
  public:
    std::vector<std::string> calls;
    std::string refused;  // the call that is refused
    std::string fails;    // the call that fails
    Status status = Status::out_of_memory;

    void make_space(uint32_t space, int64_t n_rows, int64_t n_context) override {
        note(fmt::format("make_space {} {} {}", space, n_rows, n_context));
    }
    void end_space(uint32_t space) noexcept override { calls.push_back(fmt::format("end_space {}", space)); }
    void step(const StepMessage& step) override {
        note(fmt::format("step {} of {}", step.rows[0].token, step.space));
        last_step = step;
    }
    void make_pool(uint32_t pool, const backend::KvLayout& whole) override {
        note(fmt::format("make_pool {} {}", pool, whole.n_layer));
    }
    void end_pool(uint32_t pool) noexcept override { calls.push_back(fmt::format("end_pool {}", pool)); }
    void add_slab(uint32_t pool, int32_t slab, int64_t n_pages) override {
        note(fmt::format("add_slab {} {} {}", pool, slab, n_pages));
    }
    void drop_slab(uint32_t pool, int32_t slab) noexcept override {
        calls.push_back(fmt::format("drop_slab {} {}", pool, slab));
    }
    void copy(uint32_t pool, KvPage from, KvPage to) noexcept override {
        calls.push_back(fmt::format("copy {} {}.{} {}.{}", pool, from.slab, from.index, to.slab, to.index));
    }
    Bytes read(uint32_t pool, KvPage page) override {
        note(fmt::format("read {} {}.{}", pool, page.slab, page.index));
        return stored;
    }
    void write(uint32_t pool, KvPage page, std::span<const std::byte> bytes) override {
        note(fmt::format("write {} {}.{}", pool, page.slab, page.index));
        stored.assign(bytes.begin(), bytes.end());
    }

    StepMessage last_step;
    Bytes stored;

  private:
    void note(const std::string& call) {
        calls.push_back(call);
        if (!refused.empty() && call.starts_with(refused)) fail(status, "{} refused", call);
        if (!fails.empty() && call.starts_with(fails)) fail(status, "{} failed", call);
    }
};

// A sequence with pages on the leader.
struct TestSequence {
    std::vector<KvPage> numbers;
    std::vector<std::byte*> places;
    backend::KvSequence view;

    TestSequence(uint32_t pool, std::vector<KvPage> pages)
        : numbers(std::move(pages)), places(numbers.size(), nullptr) {
        view.pages = places;
        view.numbers = numbers;
        view.pool = pool;
    }
};

// Runs a leader's function, and followers. Returns the errors of all.
template <typename Lead>
std::vector<std::optional<Error>> run_leader(std::vector<NotedCalls>& followers, const Lead& lead) {
    const auto n = static_cast<int32_t>(followers.size()) + 1;
    return run_processes(n, k_options, [&](Processes& processes) {
        if (processes.process() > 0) {
            follow(processes, followers[processes.process() - 1]);
            return;
        }
        Leader leader(processes);
        lead(leader);
    });
}

}  // namespace

TEST_CASE("followers do what the leader says, in its order") {
    std::vector<NotedCalls> followers(2);
    Bytes page(100'000, std::byte(9));
    Bytes read;
    TestSequence a(7, {{0, 3}, {0, 4}});
    TestSequence b(8, {{2, 1}});
    expect_no_errors(run_leader(followers, [&](Leader& leader) {
        const uint32_t space = leader.make_space(16, 256);
        const uint32_t pool = leader.make_pool({.n_layer = 4, .n_head_kv = 1, .head_dim = 64});
        leader.add_slab(pool, 0, 10);
        const std::array<runtime::StepRow, 3> rows = {
            {{5, {&a.view, 100}, false}, {6, {&b.view, 3}, true}, {7, {&a.view, 101}, true}}};
        leader.start(space, rows);
        leader.copy(pool, {0, 1}, {0, 2});
        leader.write(pool, {0, 2}, 1, page);
        read = leader.read(pool, {0, 2}, 1);
        leader.drop_slab(pool, 0);
        leader.end_pool(pool);
        leader.end_space(space);
    }));
    CHECK(read == page);
    std::vector<std::string> expected = {"make_space 1 16 256", "make_pool 1 4",  "add_slab 1 0 10",
                                         "step 5 of 1",         "copy 1 0.1 0.2", "drop_slab 1 0",
                                         "end_pool 1",          "end_space 1"};
    CHECK(followers[1].calls == expected);
    expected.insert(expected.begin() + 5, {"write 1 0.2", "read 1 0.2"});
    CHECK(followers[0].calls == expected);
    const StepMessage& step = followers[1].last_step;
    REQUIRE(step.rows.size() == 3);
    REQUIRE(step.sequences.size() == 2);
    CHECK(step.rows[2].sequence == 0);
    CHECK(step.rows[2].position == 101);
    CHECK(step.rows[1].wants_logits == 1);
    CHECK(step.sequences[1].pool == 8);
    CHECK(step.sequences[1].first_page == 2);
    CHECK(step.pages[1].index == 4);
}

TEST_CASE("what a follower refuses is thrown on the leader, and undone on the others") {
    struct Case {
        const char* refused;
        const char* undone;
        void (*call)(Leader&);
    };
    const Case cases[] = {
        {"make_space", "end_space 1", [](Leader& leader) { leader.make_space(16, 256); }},
        {"make_pool", "end_pool 1",
         [](Leader& leader) { leader.make_pool({.n_layer = 4, .n_head_kv = 1, .head_dim = 64}); }},
        {"add_slab", "drop_slab 1 0", [](Leader& leader) { leader.add_slab(1, 0, 10); }},
    };
    for (const Case& refusal : cases)
        for (const size_t refusing : {0U, 1U}) {
            std::vector<NotedCalls> followers(2);
            followers[refusing].refused = refusal.refused;
            std::optional<Error> error;
            expect_no_errors(run_leader(followers, [&](Leader& leader) {
                error = error_of([&] { refusal.call(leader); });
                leader.copy(1, {0, 1}, {0, 2});  // all go on
            }));
            REQUIRE(error);
            CHECK(error->status() == Status::out_of_memory);
            const std::string text = error->what();
            INFO(text);
            CHECK(text.starts_with("rank " + std::to_string(refusing + 1) + " (host "));
            CHECK(text.find(std::string("): ") + refusal.refused) != std::string::npos);
            CHECK(followers[refusing].calls.size() == 2);
            REQUIRE(followers[1 - refusing].calls.size() == 3);
            CHECK(followers[1 - refusing].calls[1] == refusal.undone);
        }
}

TEST_CASE("a page that a follower cannot read is refused, and the follower goes on") {
    std::vector<NotedCalls> followers(1);
    followers[0].refused = "read";
    followers[0].status = Status::device_lost;
    expect_no_errors(run_leader(followers, [&](Leader& leader) {
        const auto error = error_of([&] { leader.read(1, {0, 0}, 1); });
        require_here(error && error->status() == Status::device_lost, "the refusal is the leader's");
        leader.drop_slab(1, 0);
    }));
    CHECK(followers[0].calls.back() == "drop_slab 1 0");
}

TEST_CASE("a step that fails on a follower ends the work of all, with its rank's name") {
    for (const char* const failing : {"step", "write"}) {
        std::vector<NotedCalls> followers(3);
        followers[1].fails = failing;
        TestSequence sequence(1, {{0, 0}});
        const auto errors = run_leader(followers, [&](Leader& leader) {
            const std::array<runtime::StepRow, 1> rows = {{{5, {&sequence.view, 0}, true}}};
            leader.start(1, rows);
            leader.write(1, {0, 0}, 2, Bytes(10));
            leader.read(1, {0, 0}, 2);  // never answered
        });
        expect_errors(errors, Status::out_of_memory,
                      std::string(failing) == "step" ? "step 5 of 1 failed" : "write 1 0.0 failed");
        for (const size_t p : {0U, 1U, 3U})
            CHECK(std::string(errors[p]->what()).starts_with("rank 2 (host "));
    }
}

TEST_CASE("a cancelled step is an ordinary one for followers") {
    std::vector<NotedCalls> followers(2);
    for (NotedCalls& calls : followers) {
        calls.fails = "step";
        calls.status = Status::cancelled;
    }
    TestSequence sequence(1, {{0, 0}});
    expect_no_errors(run_leader(followers, [&](Leader& leader) {
        const std::array<runtime::StepRow, 1> rows = {{{5, {&sequence.view, 0}, true}}};
        for (int i = 0; i < 3; ++i) leader.start(1, rows);
    }));
    CHECK(followers[1].calls.size() == 3);
}

TEST_CASE("many threads of the leader give one order to all followers") {
    constexpr int k_threads = 4;
    constexpr int k_calls = 200;
    std::vector<NotedCalls> followers(2);
    TestSequence sequence(1, {{0, 0}});
    std::atomic<int> n_wrong = 0;
    expect_no_errors(run_leader(followers, [&](Leader& leader) {
        std::vector<std::thread> threads;
        threads.reserve(k_threads);
        for (int t = 0; t < k_threads; ++t)
            threads.emplace_back([&, t] {
                const auto error = error_of([&] {
                    for (int i = 0; i < k_calls; ++i) {
                        const std::array<runtime::StepRow, 1> rows = {{{t, {&sequence.view, 0}, true}}};
                        if (i % 4 == 0) leader.start(1, rows);
                        if (i % 4 == 1) leader.copy(1, {t, i}, {0, 0});
                        if (i % 4 == 2) leader.add_slab(1, t, i);
                        if (i % 4 == 3) leader.read(1, {t, i}, 1 + i % 2);
                    }
                });
                if (error) ++n_wrong;
            });
        for (std::thread& thread : threads) thread.join();
    }));
    CHECK(n_wrong == 0);
    const auto without_reads = [](const std::vector<std::string>& calls) {
        std::vector<std::string> rest;
        for (const std::string& call : calls)
            if (!call.starts_with("read")) rest.push_back(call);
        return rest;
    };
    CHECK(without_reads(followers[0].calls) == without_reads(followers[1].calls));
    CHECK(followers[0].calls.size() + followers[1].calls.size() == k_threads * k_calls * 7 / 4);
}

TEST_CASE("more bytes than may be under way are sent after one another") {
    std::vector<NotedCalls> followers(1);
    const Bytes page(std::size_t{1} << 20);
    expect_no_errors(run_leader(followers, [&](Leader& leader) {
        for (int i = 0; i < 100; ++i) leader.write(1, {0, i}, 1, page);
    }));
    CHECK(followers[0].calls.size() == 100);
}

TEST_CASE("a message that was altered on its way ends the work with its rank's name") {
    std::vector<NotedCalls> followers(1);
    const auto errors = run_processes(2, k_options, [&](Processes& processes) {
        if (processes.process() == 1) follow(processes, followers[0]);
        processes.send(1, Bytes(100));
        processes.receive(1);
    });
    expect_errors(errors, Status::format, "a message begins with 0x00000000");
    CHECK(std::string(errors[0]->what()).starts_with("rank 1 ("));
}

TEST_CASE("a step without numbers of pages is refused before it is sent") {
    const backend::KvSequence sequence;
    const std::array<runtime::StepRow, 1> rows = {{{5, {&sequence, 0}, true}}};
    expect_error(Status::internal, "no numbers of pages", [&] { make_step(1, rows); });
}
