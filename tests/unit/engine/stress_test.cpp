// SPDX-License-Identifier: Apache-2.0
// Many random requests and sessions run at once: each must give the answer that it would give alone.
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "engine/engine.h"
#include "requests.h"
#include "support.h"

using namespace minim;
using namespace minim::test;
using engine::Engine;
using engine::EngineParams;
using engine::Finish;
using engine::GenerateParams;
using engine::Generation;
using engine::Request;
using engine::RequestParams;
using engine::Session;

namespace {

const Logger k_silent;

class Dice {
  public:
    explicit Dice(uint32_t seed) : random_(seed) {}
    int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  private:
    std::mt19937 random_;
};

// Appends the prompt and answers with `count` tokens, cancelled by another thread now and then and begun
// again from where it was.
std::vector<int32_t> answer_with_interruptions(Session& session, std::vector<int32_t> prompt, int64_t count,
                                               Dice& dice) {
    std::vector<int32_t> ids;
    while (std::ssize(ids) < count) {
        CancelToken cancel;
        const bool is_cancelled = dice.below(3) == 0;
        const auto delay = std::chrono::microseconds(dice.below(4000));
        std::thread canceller([&, is_cancelled, delay] {
            std::this_thread::sleep_for(delay);
            if (is_cancelled) cancel.trigger();
        });
        try {
            Generation generation(session, tokens_wanted(count - std::ssize(ids)).generate, prompt, nullptr);
            prompt.clear();
            while (const auto event = generation.next(&cancel)) ids.push_back(event->choice.token);
        } catch (const Error& error) {
            if (error.status() != Status::cancelled) throw;
        }
        canceller.join();
    }
    return ids;
}

}  // namespace

TEST_CASE("64 requests of random arrival, length and end answer as each alone") {
    constexpr size_t k_requests = 64;
    EngineParams params = engine_params(2048, 16, 96);  // 32 pages: less than all want together
    Engine engine(bundled_model(), params, k_silent);
    Dice dice(7);
    const auto below = [&](int n) { return dice.below(n); };
    struct Plan {
        std::vector<int32_t> ids;
        RequestParams params;
        bool cancels = false;
    };
    std::vector<Plan> plans;
    for (size_t i = 0; i < k_requests; ++i) {
        Plan plan;
        plan.ids = some_ids(static_cast<size_t>(1 + below(220)), below(4) * 50);
        // Several prompts begin with the same text and go on differently.
        if (below(2) == 0) plan.ids.push_back(below(1900));
        plan.params = tokens_wanted(1 + below(60));
        plan.params.priority = below(3);
        plan.cancels = below(5) == 0;
        plans.push_back(plan);
    }
    std::vector<Result> results(k_requests);
    std::vector<std::thread> owners;
    for (size_t t = 0; t < 8; ++t) {
        owners.emplace_back([&, t] {
            for (size_t i = t; i < k_requests; i += 8) {
                std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
                const auto request = engine.submit(plans[i].ids, plans[i].params);
                if (plans[i].cancels) {
                    engine::TokenEvent event;
                    if (request->take(event, Request::Clock::now() + std::chrono::milliseconds(i % 20)) ==
                        Request::Take::token)
                        results[i].ids.push_back(event.choice.token);
                    request->cancel();
                }
                Result rest = result_of(*request);
                results[i].ids.insert(results[i].ids.end(), rest.ids.begin(), rest.ids.end());
                results[i].state = rest.state;
            }
        });
    }
    for (std::thread& owner : owners) owner.join();
    for (size_t i = 0; i < k_requests; ++i) {
        INFO("request " << i);
        const std::vector<int32_t> expected = alone(plans[i].ids, plans[i].params).ids;
        if (plans[i].cancels) {
            REQUIRE(results[i].ids.size() <= expected.size());
            CHECK(std::equal(results[i].ids.begin(), results[i].ids.end(), expected.begin()));
        } else {
            CHECK(results[i].ids == expected);
            CHECK(results[i].state.finish == Finish::length);
        }
    }
    wait_until_idle(engine);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
}

TEST_CASE("64 sessions of random length, forks and cancellation answer as each alone, beside an engine") {
    constexpr size_t k_families = 16;
    Engine engine(bundled_model(), engine_params(1024, 4, 32), k_silent);
    std::vector<std::shared_ptr<Request>> requests;
    for (int32_t i = 0; i < 4; ++i) requests.push_back(engine.submit(some_ids(40, 7 * i), tokens_wanted(50)));

    struct Member {
        std::vector<int32_t> before;  // all tokens ahead of its answer
        int64_t n_wanted = 0;
        std::vector<int32_t> ids;
    };
    std::vector<std::vector<Member>> families(k_families);
    const auto live = [&](size_t family) {
        Dice dice(static_cast<uint32_t>(100 + family));
        auto& members = families[family];
        members.resize(4);
        const auto common = some_ids(static_cast<size_t>(1 + dice.below(150)), 90 * dice.below(5));
        Session root = make_session(512);
        root.eval(common, false, {}, nullptr);
        std::vector<std::unique_ptr<Session>> forks;
        forks.push_back(root.fork());
        forks.push_back(forks[0]->fork());
        // A fork that goes back into the part that it shares.
        forks.push_back(root.fork());
        const auto n_kept = static_cast<int64_t>(1 + dice.below(static_cast<int>(common.size())));
        forks.back()->truncate(n_kept);
        for (size_t m = 0; m < members.size(); ++m) {
            members[m].before = common;
            if (m == 3) members[m].before.resize(static_cast<size_t>(n_kept));
            members[m].before.push_back(dice.below(1900));
            members[m].n_wanted = 1 + dice.below(25);
        }
        // Each fork runs on a thread of its own; the root's session ends first.
        std::vector<std::thread> threads;
        for (size_t m = 1; m < members.size(); ++m) {
            const auto seed = static_cast<uint32_t>(dice.below(10000));
            threads.emplace_back([&members, &forks, m, seed] {
                Dice own(seed);
                members[m].ids = answer_with_interruptions(*forks[m - 1], {members[m].before.back()},
                                                           members[m].n_wanted, own);
                forks[m - 1].reset();
            });
        }
        members[0].ids =
            answer_with_interruptions(root, {members[0].before.back()}, members[0].n_wanted, dice);
        for (std::thread& thread : threads) thread.join();
    };
    std::vector<std::thread> owners;
    for (size_t t = 0; t < 4; ++t) {
        owners.emplace_back([&, t] {
            for (size_t family = t; family < k_families; family += 4) live(family);
        });
    }
    for (std::thread& owner : owners) owner.join();
    for (size_t family = 0; family < k_families; ++family) {
        for (const Member& member : families[family]) {
            INFO("family " << family);
            CHECK(member.ids == alone(member.before, tokens_wanted(member.n_wanted)).ids);
        }
    }
    for (int32_t i = 0; i < 4; ++i)
        CHECK(result_of(*requests[static_cast<size_t>(i)]).ids ==
              alone(some_ids(40, 7 * i), tokens_wanted(50)).ids);
}
