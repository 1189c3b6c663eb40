// SPDX-License-Identifier: Apache-2.0
#include "engine/step_planner.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/session.h"
#include "requests.h"

using namespace minim;
using namespace minim::test;
using engine::RequestParams;
using engine::Work;

namespace {

// A planner without an engine: nothing runs the steps that it plans.
struct Planning {
    explicit Planning(int64_t n_requests) : params(engine_params(4096, n_requests, 128)) {
        params.n_prompt_rows = 64;
        params.n_context = 1024;
        pool->keep_pages(64);
    }

    Work& add(int64_t n_tokens, int32_t priority = 0, const engine::GenerateParams& generate = {}) {
        RequestParams wanted;
        wanted.generate = generate;
        wanted.priority = priority;
        engine::WorkList submitted;
        submitted.push_back(std::make_unique<Work>(std::make_shared<engine::Request>(
            some_ids(n_tokens, static_cast<int32_t>(n_added) * 101), std::move(wanted))));
        Work& work = *submitted.back();
        work.order = n_added++;
        lists.add(submitted);
        return work;
    }

    int64_t n_added = 0;
    engine::EngineParams params;
    std::shared_ptr<kv::PagePool> pool = engine::make_pool(*bundled_model(), std::nullopt, std::nullopt);
    engine::RequestLists lists;
    engine::Scheduler scheduler{bundled_model(), 128, 1024, 40};
    engine::StepPlanner planner{bundled_model()->text(), params, pool, lists, scheduler};
};

}  // namespace

TEST_CASE("requests start by priority and age, and only those that start have an answer in memory") {
    Planning planning(2);
    const Work& first = planning.add(100);
    const Work& second = planning.add(100);
    const Work& urgent = planning.add(100, 1);
    planning.planner.admit();
    CHECK(urgent.answer.has_value());
    CHECK(first.answer.has_value());
    CHECK_FALSE(second.answer.has_value());
    REQUIRE(planning.lists.waiting.size() == 1);
    CHECK(planning.lists.waiting.front().get() == &second);
    CHECK(planning.lists.running.front().get() == &urgent);
}

TEST_CASE("prompts of a step have equal shares, and a short one leaves its rest to the others") {
    Planning planning(4);
    const Work& first = planning.add(300);
    const Work& second = planning.add(200);
    const Work& third = planning.add(8);
    planning.planner.admit();
    planning.planner.plan();
    CHECK(planning.scheduler.n_planned() == engine::k_first_prompt_rows);
    CHECK(third.sequence.n_rows == 8);
    CHECK(first.sequence.n_rows == 32);
    CHECK(second.sequence.n_rows == 24);
}

TEST_CASE("steps take more prompt rows if they were short, and half of them after an early end") {
    using std::chrono::milliseconds;
    Planning planning(1);
    const Work& work = planning.add(500);
    planning.planner.admit();
    const auto rows = [&] {
        planning.planner.plan();
        return work.sequence.n_rows;
    };
    CHECK(rows() == 64);
    planning.planner.follow_step_time(milliseconds(20));
    CHECK(rows() == 128);
    planning.planner.follow_step_time(milliseconds(160));
    CHECK(rows() == 64);
    planning.planner.shorten_steps();
    CHECK(rows() == 32);
}

TEST_CASE("a request whose answer cannot be made starts with a failure and keeps nobody else waiting") {
    Planning planning(2);
    engine::GenerateParams impossible;
    impossible.stop_tokens = {-1};
    const Work& bad = planning.add(10, 0, impossible);
    const Work& good = planning.add(10);
    planning.planner.admit();
    REQUIRE(bad.failure);
    CHECK(bad.failure->status() == Status::invalid);
    CHECK_FALSE(good.failure);
    CHECK(good.answer.has_value());
}
