// SPDX-License-Identifier: Apache-2.0
// Reasoning budgets, and the detection of texts that repeat themselves.
#include "engine/reasoning.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/loop_detector.h"
#include "requests.h"
#include "support.h"

using namespace minim;
using namespace minim::test;
using engine::Finish;
using engine::GenerateParams;
using engine::LoopDetector;

namespace {

std::vector<int32_t> encode(const std::string& text) {
    return bundled_model()->tokenizer().encode(text, tokenizer::Specials::exact);
}

// Returns parameters with which the model can neither close its reasoning nor end.
GenerateParams thinking_for_ever(int64_t budget) {
    GenerateParams params;
    params.sampling.logit_bias = {{encode("</think>")[0], -INFINITY}};
    params.ignore_end = true;
    params.max_reasoning = budget;
    params.max_tokens = 40;
    return params;
}

int64_t first_loop(LoopDetector& loops, const std::vector<int32_t>& text) {
    for (size_t i = 0; i < text.size(); ++i)
        if (loops.add(text[i])) return static_cast<int64_t>(i) + 1;
    return -1;
}

}  // namespace

TEST_CASE("reasoning is closed after the budget, whatever the model wants") {
    const std::vector<int32_t> closing = encode("\n</think>\n\n");
    REQUIRE(closing.size() == 3);
    for (const int64_t budget : {1, 2, 9}) {
        for (const int64_t n_draft : {0, 8}) {
            GenerateParams params = thinking_for_ever(budget);
            params.n_draft = n_draft;
            const Answer answer = test::answer(prompt(), params);
            INFO(budget << " tokens, drafts of " << n_draft);
            REQUIRE(answer.ids.size() == 40);
            CHECK(std::equal(closing.begin(), closing.end(), answer.ids.begin() + budget));
            CHECK(answer.state.n_reasoning == budget);
            CHECK(std::ranges::count(answer.ids, closing[1]) == 1);
            engine::Engine engine(bundled_model(), engine_params(), Logger());
            engine::RequestParams request;
            request.generate = params;
            CHECK(result_of(*engine.submit(prompt(), request)).ids == answer.ids);
        }
    }
}

TEST_CASE("a budget that is not used up changes nothing, and reasoning is counted without one") {
    GenerateParams params;
    const Answer free = answer(prompt(), params);
    const auto end = std::ranges::find(free.ids, encode("</think>")[0]);
    REQUIRE(end != free.ids.end());
    CHECK(free.state.n_reasoning == end - free.ids.begin());
    params.max_reasoning = free.state.n_reasoning + 1;
    CHECK(answer(prompt(), params).ids == free.ids);
}

TEST_CASE("an answer whose reasoning is over already has no reasoning to close") {
    auto ids = prompt();
    const auto closing = encode("\n</think>\n\n");
    ids.insert(ids.end(), closing.begin(), closing.end());
    const Answer answer = test::answer(ids, thinking_for_ever(1));
    CHECK(answer.state.n_reasoning == 0);
    CHECK(std::ranges::find(answer.ids, closing[1]) == answer.ids.end());
}

TEST_CASE("tokens that were forced have log-probabilities") {
    GenerateParams params = thinking_for_ever(2);
    params.sampling.logit_bias.clear();
    params.sampling.logprobs = true;
    params.sampling.n_top_logprobs = 2;
    const Answer answer = test::answer(prompt(), params);
    for (size_t i = 2; i < 5; ++i) {
        CHECK(answer.choices[i].logprob < 0.0F);
        REQUIRE(answer.choices[i].top.size() == 2);
        CHECK(answer.choices[i].top[0].logprob >= answer.choices[i].logprob);
    }
}

TEST_CASE("a loop is a block at least four times in a row, over so many tokens") {
    LoopDetector single(8);
    CHECK(first_loop(single, {1, 7, 7, 7, 7, 7, 7, 7, 7}) == 9);
    LoopDetector pairs(8);
    CHECK(first_loop(pairs, {5, 1, 2, 1, 2, 1, 2, 1, 2}) == 9);
    LoopDetector threes(8);
    CHECK(first_loop(threes, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}) == -1);
    LoopDetector longer(12);
    CHECK(first_loop(longer, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}) == 12);
    LoopDetector broken(12);
    CHECK(first_loop(broken, {1, 2, 3, 1, 2, 3, 1, 2, 9, 1, 2, 3, 1, 2, 3, 1, 2, 3}) == -1);
    LoopDetector off(0);
    CHECK(first_loop(off, std::vector<int32_t>(100, 1)) == -1);
}

TEST_CASE("an answer that loops ends there") {
    GenerateParams params;
    params.ignore_end = true;
    params.n_loop = 20;
    params.sampling.logit_bias = {{50, 1000.0F}};
    const Answer looped = answer(prompt(), params);
    CHECK(looped.state.finish == Finish::loop);
    CHECK(looped.ids == std::vector<int32_t>(20, 50));
    params.n_loop = 0;
    params.max_tokens = 60;
    CHECK(answer(prompt(), params).state.finish == Finish::length);
}

TEST_CASE("a request tells how far its prompt is read, and which stop text ended it") {
    engine::Engine engine(bundled_model("reference"), engine_params(4096, 2, 64), Logger());
    engine::RequestParams params = tokens_wanted(2);
    const auto request = engine.submit(some_ids(600), params);
    int64_t n_done = 0;
    bool was_between = false;
    bool went_back = false;
    while (request->state().finish == Finish::none && request->state().n_generated == 0) {
        const int64_t now = request->state().n_prompt_done;
        went_back = went_back || now < n_done;
        n_done = now;
        was_between = was_between || (now > 0 && now < 600);
    }
    CHECK(was_between);
    CHECK_FALSE(went_back);
    CHECK(result_of(*request).state.n_prompt_done == 600);
    CHECK(request->state().stop_text == -1);
}
