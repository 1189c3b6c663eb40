// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "requests.h"
#include "support.h"

using namespace minim;
using namespace minim::test;
using engine::Engine;
using engine::EngineParams;
using engine::Finish;
using engine::GenerateParams;
using engine::Request;
using engine::RequestParams;
using engine::RequestState;

namespace {

const Logger k_silent;

// Returns a model whose steps are so slow that a test can act while one runs.
std::shared_ptr<const model::Model> slow_model() {
    return bundled_model("reference");
}

std::vector<int32_t> alone_on_slow(const std::vector<int32_t>& ids, const RequestParams& params) {
    engine::SessionParams settings;
    settings.n_context = 4096;
    engine::Session session(slow_model(), settings, k_silent);
    return answer(session, ids, params.generate).ids;
}

}  // namespace

TEST_CASE("a request is answered as a session would answer it") {
    Engine engine(bundled_model(), engine_params(), k_silent);
    const auto request = engine.submit(prompt(), {});
    const Result result = result_of(*request);
    CHECK(result.ids == greedy().ids);
    CHECK(result.text == greedy().text);
    CHECK(result.state.finish == Finish::end);
    CHECK(result.state.stop_token == k_end_of_turn);
    CHECK(result.state.n_prompt == std::ssize(prompt()));
    CHECK(result.state.n_generated == std::ssize(greedy().ids));
    CHECK(result.state.n_cached == 0);
    CHECK(result.state.prompt_us > 0);
    CHECK(result.state.generate_us > 0);
}

TEST_CASE("many requests at once are answered like each alone") {
    const int64_t n_batch = GENERATE(8, 33, 512);
    Engine engine(bundled_model(), engine_params(8192, 8, n_batch), k_silent);
    std::vector<std::vector<int32_t>> prompts;
    std::vector<RequestParams> params;
    std::vector<std::shared_ptr<Request>> requests;
    for (size_t i = 0; i < 24; ++i) {
        prompts.push_back(some_ids(1 + i * 13 % 150, static_cast<int32_t>(i) * 101));
        params.push_back(tokens_wanted(1 + static_cast<int64_t>(i * 7 % 20)));
        if (i % 3 == 1) {  // a seed gives the same draws in any batch
            params[i].generate.sampling.temperature = 0.9F;
            params[i].generate.sampling.seed = i;
            params[i].generate.has_seed = true;
        }
        requests.push_back(engine.submit(prompts[i], params[i]));
    }
    for (size_t i = 0; i < requests.size(); ++i) {
        INFO("request " << i);
        const Result result = result_of(*requests[i]);
        const Answer expected = alone(prompts[i], params[i]);
        CHECK(result.ids == expected.ids);
        CHECK(result.text == expected.text);
        CHECK(result.state.finish == expected.state.finish);
    }
    wait_until_idle(engine);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
}

TEST_CASE("a prompt that begins like an earlier text takes over its KV cache") {
    Engine engine(bundled_model(), engine_params(), k_silent);
    const auto first = some_ids(300);
    const RequestParams params = tokens_wanted(5);
    const Result once = result_of(*engine.submit(first, params));
    CHECK(once.state.n_cached == 0);
    const Result again = result_of(*engine.submit(first, params));
    CHECK(again.state.n_cached == 299);  // the last token gives the logits
    CHECK(again.ids == once.ids);

    auto longer = first;
    longer.insert(longer.end(), once.ids.begin(), once.ids.end());
    longer.insert(longer.end(), {7, 8, 9});
    const Result next_turn = result_of(*engine.submit(longer, params));
    CHECK(next_turn.state.n_cached == 304);  // the last token of an answer is never evaluated
    CHECK(next_turn.ids == alone(longer, params).ids);

    auto other = std::vector<int32_t>(first.begin(), first.begin() + 100);
    other.insert(other.end(), {1, 2, 3});
    const Result branch = result_of(*engine.submit(other, params));
    CHECK(branch.state.n_cached == 100);
    CHECK(branch.ids == alone(other, params).ids);
}

TEST_CASE("a beginning that many prompts share is read once, also when they come together") {
    Engine engine(bundled_model(), engine_params(16384, 16, 64), k_silent);
    const auto common = some_ids(640);
    std::vector<std::shared_ptr<Request>> requests;
    std::vector<std::vector<int32_t>> prompts;
    for (int32_t i = 0; i < 16; ++i) {
        auto ids = common;
        ids.insert(ids.end(), {i, i + 1, i + 2});
        prompts.push_back(ids);
        requests.push_back(engine.submit(ids, tokens_wanted(2)));
    }
    for (size_t i = 0; i < requests.size(); ++i)
        CHECK(result_of(*requests[i]).ids == alone(prompts[i], tokens_wanted(2)).ids);
    wait_until_idle(engine);
    CHECK(engine.state().n_rows < 640 + 16 * (64 + 5));
}

TEST_CASE("answers to one prompt read it once, each with a seed of its own") {
    EngineParams settings = engine_params(16384, 8, 64);
    settings.keep_prefixes = GENERATE(true, false);
    Engine engine(bundled_model(), settings, k_silent);
    const auto ids = some_ids(200);
    RequestParams params = tokens_wanted(12);
    params.generate.sampling.temperature = 1.3F;
    params.generate.sampling.seed = 5;
    params.generate.has_seed = true;
    const auto requests = engine.submit(ids, params, 6);
    REQUIRE(requests.size() == 6);
    for (size_t i = 0; i < requests.size(); ++i) {
        INFO("answer " << i);
        RequestParams own = params;
        own.generate.sampling.seed += i;
        const Result result = result_of(*requests[i]);
        CHECK(result.ids == alone(ids, own).ids);
        CHECK(result.state.seed == 5 + i);
        CHECK(result.state.n_prompt == 200);
    }
    wait_until_idle(engine);
    // The rows are the prompt once, its last token for each of the other answers, and the generated tokens.
    CHECK(engine.state().n_rows <= 200 + 5 + 6 * 11);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
}

TEST_CASE("answers to one short prompt share its page, also if the first one is cancelled") {
    Engine engine(bundled_model(), engine_params(8192, 4, 64), k_silent);
    const auto ids = some_ids(40);
    const auto requests = engine.submit(ids, tokens_wanted(30), 9);
    requests[0]->cancel();
    for (size_t i = 1; i < requests.size(); ++i)
        CHECK(result_of(*requests[i]).ids == alone(ids, tokens_wanted(30)).ids);
    wait_until_idle(engine);
    CHECK(engine.state().n_rows <= 2 * 40 + 9 * 31);
}

TEST_CASE("without kept prefixes every prompt is read, and no page stays") {
    EngineParams params = engine_params();
    params.keep_prefixes = false;
    Engine engine(bundled_model(), params, k_silent);
    const Result once = result_of(*engine.submit(some_ids(200), tokens_wanted(3)));
    const Result again = result_of(*engine.submit(some_ids(200), tokens_wanted(3)));
    CHECK(again.state.n_cached == 0);
    CHECK(again.ids == once.ids);
    wait_until_idle(engine);
    CHECK(engine.state().n_pages_held == 0);
}

TEST_CASE("requests that outgrow the memory together are preempted, and answer the same") {
    // 10 pages; six answers that take 4 pages each.
    EngineParams engine_settings = engine_params(640, 6, 64);
    engine_settings.keep_prefixes = GENERATE(true, false);
    Engine engine(bundled_model(), engine_settings, k_silent);
    std::vector<std::shared_ptr<Request>> requests;
    for (int32_t i = 0; i < 6; ++i)
        requests.push_back(engine.submit(some_ids(50, 300 * i), tokens_wanted(180)));
    int64_t n_preempted = 0;
    for (int32_t i = 0; i < 6; ++i) {
        const Result result = result_of(*requests[static_cast<size_t>(i)]);
        INFO("request " << i);
        CHECK(result.ids == alone(some_ids(50, 300 * i), tokens_wanted(180)).ids);
        n_preempted += result.state.n_preempted;
    }
    CHECK(n_preempted > 0);
    wait_until_idle(engine);
    CHECK(engine.state().n_preempted == n_preempted);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
}

TEST_CASE("a request that waits for memory costs the prefix cache nothing") {
    Engine engine(bundled_model(), engine_params(640, 4), k_silent);
    result_of(*engine.submit(some_ids(128), tokens_wanted(1)));
    wait_until_idle(engine);
    REQUIRE(engine.state().n_pages_cached == 2);
    const auto running = engine.submit(some_ids(10, 3), tokens_wanted(0));
    engine::TokenEvent event;
    REQUIRE(running->take(event, Request::Clock::time_point::max()) == Request::Take::token);
    const auto waiting = engine.submit(some_ids(600, 5), tokens_wanted(1));
    for (int i = 0; i < 20; ++i)
        REQUIRE(running->take(event, Request::Clock::time_point::max()) == Request::Take::token);
    CHECK(waiting->state().queue_us == 0);
    CHECK(engine.state().n_pages_cached >= 2);
    running->cancel();
    CHECK(result_of(*waiting).ids.size() == 1);
}

TEST_CASE("drafts change no answer of an engine") {
    std::vector<int32_t> repeating;
    for (int i = 0; i < 8; ++i) repeating.insert(repeating.end(), {20, 21, 22, 23, 24, 25, 26});
    for (const auto& ids : {prompt(), repeating, some_ids(90)}) {
        RequestParams params = tokens_wanted(200);
        params.generate.n_draft = 16;
        Engine engine(bundled_model(), engine_params(1024, 16, 64), k_silent);
        const Result drafted = result_of(*engine.submit(ids, params));
        CHECK(drafted.ids == alone(ids, tokens_wanted(200)).ids);
        CHECK(drafted.state.finish == Finish::length);
        CHECK(drafted.state.n_drafts_accepted <= drafted.state.n_drafted);
        // Two requests run at once, and one of them runs alone at the end.
        const auto first = engine.submit(ids, params);
        params.generate.max_tokens = 20;
        const auto second = engine.submit(ids, params);
        CHECK(result_of(*first).ids == drafted.ids);
        CHECK(result_of(*second).ids.size() == 20);
        wait_until_idle(engine);
    }
}

TEST_CASE("drafts work beside other requests, and change no answer") {
    constexpr int64_t k_tokens = 150;
    // There are rows of logits for a draft of each request; for drafts of some; and hardly any rows in a step beside a prompt.
    const auto [n_requests, n_batch] = GENERATE(std::pair(4, 64), std::pair(40, 64), std::pair(4, 5));
    Engine engine(bundled_model(), engine_params(8192, n_requests, n_batch), k_silent);
    std::vector<std::vector<int32_t>> prompts;
    std::vector<RequestParams> params;
    std::vector<std::shared_ptr<Request>> requests;
    for (int32_t i = 0; i < 4; ++i) {
        std::vector<int32_t> ids;  // a text that repeats itself
        for (int32_t j = 0; j < 60; ++j) ids.push_back(20 + 30 * i + j % (5 + i));
        params.push_back(tokens_wanted(k_tokens));
        params.back().generate.n_draft = i == 3 ? 0 : 4 << i;
        requests.push_back(engine.submit(ids, params.back()));
        prompts.push_back(ids);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
        params[i].generate.n_draft = 0;
        CHECK(result_of(*requests[i]).ids == alone(prompts[i], params[i]).ids);
    }
    wait_until_idle(engine);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
}

TEST_CASE("drafts that are right save steps beside other requests") {
    constexpr int64_t k_tokens = 150;
    Engine engine(bundled_model(), engine_params(), k_silent);
    std::vector<std::shared_ptr<Request>> requests;
    for (int32_t i = 0; i < 3; ++i) {
        RequestParams params = tokens_wanted(k_tokens);
        params.generate.n_draft = 8;
        params.generate.sampling.logit_bias = {{40 + i, 1000.0F}};  // always the same token
        requests.push_back(engine.submit(some_ids(9, 7 * i), params));
    }
    int64_t n_accepted = 0;
    for (int32_t i = 0; i < 3; ++i) {
        const Result result = result_of(*requests[static_cast<size_t>(i)]);
        CHECK(result.ids == std::vector<int32_t>(k_tokens, 40 + i));
        CHECK(result.state.n_drafts_accepted <= result.state.n_drafted);
        CHECK(result.state.n_drafts_accepted < k_tokens);
        n_accepted = std::max(n_accepted, result.state.n_drafts_accepted);
    }
    wait_until_idle(engine);
    CHECK(engine.state().n_steps < k_tokens);
    // Every step gives a request at most one token that was not drafted.
    CHECK(n_accepted >= k_tokens - engine.state().n_steps);
}

namespace {

struct Scores {
    std::vector<engine::TokenEvent> events;  // of prompt tokens
    Result answer;
};

Scores scores_of(Request& request) {
    Scores scores;
    take_all(request, [&](const engine::TokenEvent& event) {
        if (event.prompt_rank == 0) {
            scores.answer.ids.push_back(event.choice.token);
        } else {
            CHECK(scores.answer.ids.empty());
            scores.events.push_back(event);
        }
    });
    scores.answer.state = request.state();
    return scores;
}

// Checks the log-probabilities of a prompt against the logits of a session.
void check_scores(const std::vector<int32_t>& ids, const std::vector<engine::TokenEvent>& events,
                  int32_t n_top) {
    engine::Session session = make_session(4096);
    const int64_t n_vocab = session.model().config().n_vocab;
    std::vector<float> logits(ids.size() * static_cast<size_t>(n_vocab));
    session.eval(ids, true, logits, nullptr);
    REQUIRE(events.size() == ids.size() - 1);
    for (size_t i = 0; i < events.size(); ++i) {
        const auto row = std::span<const float>(logits).subspan(i * static_cast<size_t>(n_vocab),
                                                                static_cast<size_t>(n_vocab));
        const sampling::LogNormaliser normaliser = sampling::log_normaliser(row);
        const std::vector<sampling::TokenProbability> top = sampling::top_logprobs(row, normaliser, n_top);
        INFO("token " << i + 1);
        CHECK(events[i].choice.token == ids[i + 1]);
        CHECK(events[i].choice.logprob == normaliser.logprob(row[static_cast<size_t>(ids[i + 1])]));
        CHECK(events[i].prompt_rank == sampling::rank_of(row, ids[i + 1]));
        REQUIRE(events[i].choice.top.size() == top.size());
        for (size_t j = 0; j < top.size(); ++j) {
            CHECK(events[i].choice.top[j].token == top[j].token);
            CHECK(events[i].choice.top[j].logprob == top[j].logprob);
        }
    }
}

}  // namespace

TEST_CASE("log-probabilities of a prompt are those of a session's logits, however many rows a step has") {
    const auto [n_requests, n_batch] =
        GENERATE(std::pair(1, 1), std::pair(2, 3), std::pair(8, 64), std::pair(8, 512));
    const std::vector<int32_t> ids = some_ids(300);
    Engine engine(bundled_model(), engine_params(4096, n_requests, n_batch), k_silent);
    result_of(*engine.submit(ids, tokens_wanted(1)));  // the prefix cache has the prompt
    RequestParams params = tokens_wanted(5);
    for (const int32_t n_top : {0, 3}) {
        params.generate.n_prompt_logprobs = n_top;
        const Scores scores = scores_of(*engine.submit(ids, params));
        check_scores(ids, scores.events, n_top);
        CHECK(scores.answer.ids == alone(ids, tokens_wanted(5)).ids);
        CHECK(scores.answer.state.n_cached == 0);
        CHECK(scores.answer.state.n_generated == 5);
    }
    CHECK(scores_of(*engine.submit({5}, params)).events.empty());
    CHECK(scores_of(*engine.submit({5, 6}, params)).events.size() == 1);
    wait_until_idle(engine);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
}

TEST_CASE(
    "log-probabilities of the last tokens of a prompt take the tokens before them from the prefix cache") {
    const std::vector<int32_t> ids = some_ids(150);
    Engine engine(bundled_model(), engine_params(4096, 4, 64), k_silent);
    RequestParams params = tokens_wanted(2);
    params.generate.n_prompt_logprobs = 1;
    const Scores all = scores_of(*engine.submit(ids, params));
    for (const int64_t first :
         {int64_t{1}, int64_t{64}, int64_t{65}, int64_t{100}, int64_t{149}, int64_t{150}, int64_t{1000}}) {
        CAPTURE(first);
        params.generate.first_prompt_logprob = first;
        const Scores scores = scores_of(*engine.submit(ids, params));
        CHECK(scores.answer.ids == all.answer.ids);
        CHECK(scores.answer.state.n_cached == std::min<int64_t>(first - 1, 149));
        REQUIRE(std::ssize(scores.events) == std::max<int64_t>(150 - first, 0));
        for (size_t i = 0; i < scores.events.size(); ++i) {
            const engine::TokenEvent& expected = all.events[all.events.size() - scores.events.size() + i];
            CHECK(scores.events[i].choice.token == expected.choice.token);
            CHECK(scores.events[i].choice.logprob == expected.choice.logprob);
        }
    }
}

TEST_CASE("log-probabilities of prompts beside answers, drafts and other prompts") {
    const int64_t n_batch = GENERATE(8, 40, 128);
    Engine engine(bundled_model(), engine_params(8192, 6, n_batch), k_silent);
    RequestParams other = tokens_wanted(120);
    other.generate.n_draft = 16;
    std::vector<int32_t> repeating;
    for (int i = 0; i < 8; ++i) repeating.insert(repeating.end(), {20, 21, 22, 23, 24, 25, 26});
    const auto drafting = engine.submit(repeating, other);
    const auto reading = engine.submit(some_ids(200), tokens_wanted(3));  // begins like the others
    RequestParams params = tokens_wanted(2);
    params.generate.n_prompt_logprobs = 1;
    std::vector<std::shared_ptr<Request>> scoring;
    for (int64_t i = 0; i < 4; ++i) scoring.push_back(engine.submit(some_ids(100 + 30 * i), params));
    for (int64_t i = 0; i < 4; ++i) {
        const Scores scores = scores_of(*scoring[static_cast<size_t>(i)]);
        check_scores(some_ids(100 + 30 * i), scores.events, 1);
        CHECK(scores.answer.ids == alone(some_ids(100 + 30 * i), tokens_wanted(2)).ids);
    }
    other.generate.n_draft = 0;
    CHECK(result_of(*drafting).ids == alone(repeating, other).ids);
    CHECK(result_of(*reading).ids == alone(some_ids(200), tokens_wanted(3)).ids);
}

TEST_CASE("a prompt that is preempted reports each log-probability once") {
    Engine engine(slow_model(), engine_params(640, 1, 16), k_silent);
    RequestParams params = tokens_wanted(2);
    params.generate.n_prompt_logprobs = 0;
    const std::vector<int32_t> ids = some_ids(200);
    const auto scoring = engine.submit(ids, params);
    engine::TokenEvent first;
    REQUIRE(scoring->take(first, Request::Clock::time_point::max()) == Request::Take::token);
    RequestParams urgent = tokens_wanted(1);
    urgent.priority = 1;
    result_of(*engine.submit(some_ids(20, 5), urgent));
    Scores scores = scores_of(*scoring);
    scores.events.insert(scores.events.begin(), first);
    CHECK(scores.answer.state.n_preempted == 1);
    REQUIRE(scores.events.size() == ids.size() - 1);
    for (size_t i = 0; i < scores.events.size(); ++i) CHECK(scores.events[i].choice.token == ids[i + 1]);
    CHECK(scores.answer.ids == alone_on_slow(ids, tokens_wanted(2)));
}

TEST_CASE("the log-probability of the end token is reported with the end") {
    Engine engine(bundled_model(), engine_params(), k_silent);
    RequestParams params;
    CHECK(result_of(*engine.submit(prompt(), params)).state.stop_logprob == 0.0F);
    params.generate.sampling.logprobs = true;
    const Result result = result_of(*engine.submit(prompt(), params));
    CHECK(result.state.stop_token == k_end_of_turn);
    engine::Session session = make_session(4096);
    std::vector<int32_t> ids = prompt();
    ids.insert(ids.end(), result.ids.begin(), result.ids.end());
    std::vector<float> logits(static_cast<size_t>(session.model().config().n_vocab));
    session.eval(ids, false, logits, nullptr);
    CHECK(result.state.stop_logprob ==
          sampling::log_normaliser(logits).logprob(logits[static_cast<size_t>(k_end_of_turn)]));
}

TEST_CASE("an answer ends where the memory of the engine does") {
    Engine engine(bundled_model(), engine_params(128), k_silent);
    const Result result = result_of(*engine.submit(some_ids(100), tokens_wanted(0)));
    CHECK(result.state.finish == Finish::context_full);
    CHECK(result.ids.size() == 28);
}

TEST_CASE("requests that make no sense are refused") {
    Engine engine(bundled_model(), engine_params(128), k_silent);
    expect_error(Status::invalid, "empty", [&] { engine.submit({}, {}); });
    expect_error(Status::invalid, "token 1 is -1", [&] { engine.submit({5, -1}, {}); });
    expect_error(Status::invalid, "token 0 is 2048", [&] { engine.submit({2048}, {}); });
    expect_error(Status::context_full, "128 tokens", [&] { engine.submit(some_ids(128), {}); });
    RequestParams params;
    params.generate.stop_tokens = {-3};
    expect_error(Status::invalid, "-3", [&] { engine.submit({5}, params); });
    params = {};
    params.timeout_ms = -1;
    expect_error(Status::invalid, "timeout", [&] { engine.submit({5}, params); });
    CHECK(result_of(*engine.submit(some_ids(127), tokens_wanted(0))).ids.size() == 1);
}

TEST_CASE("engine settings out of range are refused") {
    const auto refuse = [](auto change) {
        EngineParams params = engine_params();
        change(params);
        const auto error = error_of([&] { const Engine engine(bundled_model(), params, k_silent); });
        REQUIRE(error);
        return error->status();
    };
    CHECK(refuse([](auto& p) { p.n_kv_tokens = -1; }) == Status::invalid);
    CHECK(refuse([](auto& p) { p.n_kv_tokens = int64_t{1} << 50; }) == Status::invalid);
    CHECK(refuse([](auto& p) { p.n_kv_tokens = int64_t{1} << 38; }) == Status::out_of_memory);
    CHECK(refuse([](auto& p) { p.n_requests = 0; }) == Status::invalid);
    CHECK(refuse([](auto& p) { p.n_batch = p.n_requests - 1; }) == Status::invalid);
    CHECK(refuse([](auto& p) { p.n_prompt_rows = -1; }) == Status::invalid);
    CHECK(refuse([](auto& p) { p.n_context = -1; }) == Status::invalid);
    CHECK(refuse([](auto& p) { p.n_context = int64_t{1} << 40; }) == Status::invalid);
    CHECK(refuse([](auto& p) { p.k_format = Format::q6_k; }) == Status::unsupported);
}

TEST_CASE("a cancelled request ends at once, in whatever state it is") {
    Engine engine(bundled_model(), engine_params(4096, 1), k_silent);
    const auto running = engine.submit(some_ids(20), tokens_wanted(0));
    const auto waiting = engine.submit(some_ids(20), tokens_wanted(0));
    engine::TokenEvent event;
    REQUIRE(running->take(event, Request::Clock::time_point::max()) == Request::Take::token);
    waiting->cancel();
    CHECK(result_of(*waiting).ids.empty());
    CHECK(waiting->state().finish == Finish::stopped);
    running->cancel();
    const Result result = result_of(*running);
    CHECK(result.state.finish == Finish::stopped);
    CHECK(result.state.n_generated == std::ssize(result.ids) + 1);
    running->cancel();
    wait_until_idle(engine);
}

TEST_CASE("a timeout ends an answer where it is") {
    Engine engine(bundled_model(), engine_params(4096, 1), k_silent);
    RequestParams params = tokens_wanted(0);
    params.timeout_ms = 50;
    const auto slow = engine.submit(some_ids(20), params);
    const auto never_started = engine.submit(some_ids(20, 50), params);
    CHECK(result_of(*slow).state.finish == Finish::timeout);
    CHECK(result_of(*never_started).state.finish == Finish::timeout);
}

TEST_CASE("waiting for a token ends at its deadline") {
    Engine engine(bundled_model(), engine_params(4096, 1), k_silent);
    const auto running = engine.submit(some_ids(20), tokens_wanted(0));
    const auto waiting = engine.submit(some_ids(20), tokens_wanted(1));
    engine::TokenEvent event;
    CHECK(waiting->take(event, Request::Clock::now()) == Request::Take::nothing_yet);
    CHECK(waiting->state().finish == Finish::none);
    running->cancel();
    CHECK(result_of(*waiting).ids.size() == 1);
}

TEST_CASE("a request of higher priority goes first and preempts others") {
    Engine engine(bundled_model(), engine_params(4096, 1), k_silent);
    const auto low = engine.submit(some_ids(20), tokens_wanted(400));
    engine::TokenEvent event;
    REQUIRE(low->take(event, Request::Clock::time_point::max()) == Request::Take::token);
    RequestParams urgent = tokens_wanted(3);
    urgent.priority = 1;
    const Result result = result_of(*engine.submit(some_ids(30, 7), urgent));
    CHECK(result.ids == alone(some_ids(30, 7), urgent).ids);
    CHECK(low->state().finish == Finish::none);
    const int32_t first = event.choice.token;
    Result rest = result_of(*low);
    rest.ids.insert(rest.ids.begin(), first);
    CHECK(rest.state.n_preempted == 1);
    CHECK(rest.ids == alone(some_ids(20), tokens_wanted(400)).ids);
}

TEST_CASE("a cancelled prompt keeps the pages that are read") {
    Engine engine(slow_model(), engine_params(4096, 4, 512), k_silent);
    const auto ids = some_ids(4000);
    const auto reading = engine.submit(ids, tokens_wanted(1));
    while (engine.state().n_pages_cached < 2) std::this_thread::yield();
    CHECK(engine.state().n_running == 1);  // also while a step is under way
    CHECK(engine.state().n_waiting == 0);
    reading->cancel();
    wait_until_idle(engine);
    const int64_t n_cached = engine.state().n_pages_cached;
    CHECK(n_cached < 60);
    CHECK(engine.state().n_pages_held == n_cached);
    const auto beginning = std::vector<int32_t>(ids.begin(), ids.begin() + 140);
    const Result result = result_of(*engine.submit(beginning, tokens_wanted(3)));
    CHECK(result.state.n_cached >= 128);
    CHECK(result.ids == alone_on_slow(beginning, tokens_wanted(3)));
}

TEST_CASE("a timeout ends one of several requests while a prompt is read") {
    Engine engine(slow_model(), engine_params(8192, 4, 512), k_silent);
    const auto reading = engine.submit(some_ids(3000), tokens_wanted(0));
    std::atomic<bool> is_notified = false;
    RequestParams params = tokens_wanted(0);
    params.timeout_ms = 20;
    params.notify = [&] { is_notified = true; };
    const auto late = engine.submit(some_ids(3000, 9), params);
    CHECK(result_of(*late).state.finish == Finish::timeout);
    while (engine.state().n_running == 0) std::this_thread::yield();
    CHECK(result_of(*engine.submit(some_ids(9), params)).state.finish == Finish::timeout);
    CHECK(reading->state().finish == Finish::none);
    reading->cancel();
    wait_until_idle(engine);
    CHECK(is_notified);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
}

TEST_CASE("urgent requests end steps of a prompt, which comes to its end all the same") {
    EngineParams settings = engine_params(8192, 2, 512);
    settings.keep_prefixes = GENERATE(true, false);
    Engine engine(slow_model(), settings, k_silent);
    RequestParams wanted = tokens_wanted(2);
    const auto reading = engine.submit(some_ids(700), wanted);
    wanted.priority = 3;
    for (int32_t i = 0; i < 12; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        const auto ids = some_ids(10, 11 * i);
        CHECK(result_of(*engine.submit(ids, wanted)).ids == alone_on_slow(ids, wanted));
    }
    CHECK(result_of(*reading).ids == alone_on_slow(some_ids(700), wanted));
    wait_until_idle(engine);
    CHECK(engine.state().n_pages_held == engine.state().n_pages_cached);
}

TEST_CASE("answers go on while a long prompt is read") {
    EngineParams params = engine_params(8192, 4, 64);
    params.n_prompt_rows = 8;
    params.keep_prefixes = false;
    Engine engine(bundled_model(), params, k_silent);
    const auto answering = engine.submit(some_ids(10), tokens_wanted(0));
    engine::TokenEvent event;
    REQUIRE(answering->take(event, Request::Clock::time_point::max()) == Request::Take::token);
    const int64_t n_before = answering->state().n_generated;
    const auto reading = engine.submit(some_ids(1600), tokens_wanted(1));
    result_of(*reading);
    CHECK(answering->state().n_generated - n_before >= 1600 / 8 - 1);
    answering->cancel();
}

TEST_CASE("a short prompt does not wait for a long one") {
    EngineParams params = engine_params(8192, 4, 64);
    Engine engine(bundled_model(), params, k_silent);
    const auto reading = engine.submit(some_ids(3000), tokens_wanted(1));
    result_of(*engine.submit(some_ids(20, 5), tokens_wanted(2)));
    CHECK(reading->state().finish == Finish::none);
    CHECK(reading->state().n_generated == 0);
}

TEST_CASE("an engine that drains takes no more requests and ends those it has") {
    Engine engine(bundled_model(), engine_params(), k_silent);
    const auto long_one = engine.submit(some_ids(10), tokens_wanted(0));
    const auto short_one = engine.submit(some_ids(10, 3), tokens_wanted(5));
    CHECK_FALSE(engine.drain(Request::Clock::now()));
    expect_error(Status::invalid, "no more requests", [&] { engine.submit({5}, {}); });
    long_one->cancel();
    CHECK(engine.drain(Request::Clock::time_point::max()));
    CHECK(result_of(*short_one).ids.size() == 5);
}

TEST_CASE("requests outlive their engine") {
    std::vector<std::shared_ptr<Request>> requests;
    {
        Engine engine(bundled_model(), engine_params(4096, 2), k_silent);
        for (int32_t i = 0; i < 5; ++i) requests.push_back(engine.submit(some_ids(40, i), tokens_wanted(0)));
        engine::TokenEvent event;
        REQUIRE(requests[0]->take(event, Request::Clock::time_point::max()) == Request::Take::token);
    }
    for (const auto& request : requests) CHECK(result_of(*request).state.finish == Finish::stopped);
}

TEST_CASE("whoever asks is notified of every change") {
    std::atomic<int> n_notified{0};
    std::promise<void> first;
    Engine engine(bundled_model(), engine_params(), k_silent);
    RequestParams params = tokens_wanted(4);
    params.notify = [&] {
        if (n_notified++ == 0) first.set_value();
    };
    const auto request = engine.submit(some_ids(10), params);
    first.get_future().wait();
    CHECK(result_of(*request).ids.size() == 4);
    wait_until_idle(engine);
    CHECK(n_notified >= 2);
}

TEST_CASE("sessions and an engine share a model's threads") {
    Engine engine(bundled_model(), engine_params(), k_silent);
    const auto request = engine.submit(some_ids(30), tokens_wanted(40));
    const Answer beside = alone(some_ids(31), tokens_wanted(40));
    CHECK(result_of(*request).ids == alone(some_ids(30), tokens_wanted(40)).ids);
    CHECK(beside.ids.size() == 40);
}
