// SPDX-License-Identifier: Apache-2.0
// Reasoning budgets, and the detection of texts that repeat themselves.
#include "engine/reasoning.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "constraint/json_schema.h"
#include "constraint/regex.h"
#include "engine/engine.h"
#include "engine/loop_detector.h"
#include "engine/tool_block.h"
#include "requests.h"
#include "support.h"
#include "support/tiny_tokenizer.h"

using namespace minim;
using namespace minim::test;
using engine::Finish;
using engine::GenerateParams;
using engine::LoopDetector;

namespace {

std::vector<int32_t> encode(const std::string& text) {
    return bundled_model()->text().tokenizer().encode(text, tokenizer::Specials::exact);
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

// The tokens of markup.
struct Markup {
    int32_t think = encode("<think>")[0];
    int32_t end_think = encode("</think>")[0];
    int32_t call = encode("<minimax:tool_call>")[0];
    int32_t end_call = encode("</minimax:tool_call>")[0];
    std::vector<int32_t> invoke = encode("\n<invoke name=\"f\">");
};

// Checks that no block of an answer to prompt() is longer than what the budget leaves it, and that none is begun after it.
void check_blocks(const std::vector<int32_t>& ids, int64_t budget) {
    const Markup markup;
    int64_t n_left = budget + 1;  // with the line end that closes
    bool is_open = true;
    for (const int32_t id : ids) {
        if (id == markup.think) CHECK(n_left > 1);
        if (is_open && id != markup.think && id != markup.end_think) --n_left;
        CHECK(n_left >= 0);
        if (id == markup.think || id == markup.end_think) is_open = id == markup.think;
    }
}

engine::Reasoning after(const std::vector<int32_t>& text, int64_t budget) {
    engine::Reasoning reasoning(bundled_model()->text().tokenizer(), budget);
    for (const int32_t id : text) reasoning.follow(id);
    return reasoning;
}

// Adds tokens of an answer.
void accept(engine::Reasoning& reasoning, const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) reasoning.accept(id);
}

std::vector<int32_t> due(const engine::Reasoning& reasoning) {
    const std::span<const int32_t> ids = reasoning.due();
    return {ids.begin(), ids.end()};
}

std::shared_ptr<const constraint::Constraint> constraint_of(constraint::Grammar grammar) {
    const auto model = bundled_model();
    const std::shared_ptr<const tokenizer::Tokenizer> tokenizer(model, &model->text().tokenizer());
    return std::make_shared<const constraint::Constraint>(
        std::move(grammar), tokenizer, model->text().token_trie(), constraint::ConstraintStart{});
}

}  // namespace

TEST_CASE("a block of reasoning after the first one gets what the budget has left") {
    const Markup markup;
    const std::vector<int32_t> closing = encode("\n</think>\n\n");
    engine::Reasoning reasoning = after({50, markup.think, 51}, 5);
    CHECK(reasoning.n_tokens() == 0);
    accept(reasoning, {60, 61, markup.end_think, 62, 63});
    CHECK(reasoning.n_tokens() == 2);
    CHECK_FALSE(reasoning.barred());
    accept(reasoning, {markup.think, 64, 65});
    CHECK(due(reasoning).empty());
    accept(reasoning, {66});
    CHECK(due(reasoning) == closing);
    for (size_t i = 0; i < closing.size(); ++i) {
        CHECK(due(reasoning) == std::vector(closing.begin() + static_cast<std::ptrdiff_t>(i), closing.end()));
        reasoning.accept(closing[i]);
    }
    CHECK(due(reasoning).empty());
    CHECK(reasoning.barred() == markup.think);
    CHECK(reasoning.n_tokens() == 5);
    // A block that begins all the same is closed at once, each time.
    for (int i = 0; i < 3; ++i) {
        accept(reasoning, {70, markup.think});
        CHECK(due(reasoning) == closing);
        accept(reasoning, closing);
        CHECK(due(reasoning).empty());
        CHECK(reasoning.n_tokens() == 5);
    }
}

TEST_CASE("any tokens may come, also while reasoning is being closed") {
    const Markup markup;
    const std::vector<int32_t> closing = encode("\n</think>\n\n");
    const std::vector<int32_t> some = {markup.think, markup.think,     markup.end_think,
                                       markup.call,  markup.end_call,  k_end_of_turn,
                                       closing[0],   closing[2],       50,
                                       51,           markup.invoke[0], markup.invoke[1]};
    std::mt19937 random(5);
    for (int round = 0; round < 300; ++round) {
        engine::Reasoning reasoning = after({markup.think}, 1 + round % 4);
        for (int i = 0; i < 60; ++i) {
            const std::vector<int32_t> next = due(reasoning);
            REQUIRE(next.size() <= closing.size());
            CHECK(std::equal(next.begin(), next.end(), closing.end() - std::ssize(next)));
            const bool obeys = !next.empty() && random() % 4 != 0;
            reasoning.accept(obeys ? next[0] : some[random() % some.size()]);
        }
    }
}

TEST_CASE("a tool call ends reasoning, and its text is none; a tag without a call does not") {
    const Markup markup;
    const std::vector<int32_t> closing = encode("\n</think>\n\n");
    std::vector<int32_t> begun = {markup.think, 50, markup.call};
    begun.insert(begun.end(), markup.invoke.begin(), markup.invoke.end());
    engine::Reasoning in_call = after(begun, 2);
    accept(in_call, {60, 61, markup.think, 62, 63, 64, markup.end_think});
    CHECK(due(in_call).empty());
    CHECK_FALSE(in_call.barred());
    CHECK(in_call.n_tokens() == 0);
    accept(in_call, {markup.end_call, markup.think, 65, 66});
    CHECK(due(in_call) == closing);

    // The call begins in the answer, after one token of reasoning.
    engine::Reasoning begins = after({markup.think}, 2);
    accept(begins, {50, markup.call});
    accept(begins, markup.invoke);
    accept(begins, {60, 61, 62, 63});
    CHECK(due(begins).empty());
    CHECK(begins.n_tokens() == 1);

    engine::Reasoning mentioned = after({markup.think}, 4);
    accept(mentioned, {50, markup.call, closing[0]});
    CHECK(mentioned.n_tokens() == 1);
    mentioned.accept(51);
    CHECK(mentioned.n_tokens() == 4);
    CHECK(due(mentioned) == closing);
    engine::Reasoning closed = after({markup.think}, 9);
    accept(closed, {50, markup.call, markup.end_think, 51, 52});
    CHECK(closed.n_tokens() == 2);
}

TEST_CASE("reasoning of M3 is closed by its tag alone, and ended by a block of calls") {
    for (const bool has_block_tokens : {true, false}) {
        const auto tokenizer = tiny_m3_tokenizer(has_block_tokens);
        const auto ids = [&](std::string_view text) {
            return tokenizer->encode(text, tokenizer::Specials::exact);
        };
        const std::string mark = "]<]minimax[>[";
        const std::string block = mark + "<tool_call>\n" + mark + "<invoke name=\"f\">";
        const int32_t think = ids("<mm:think>")[0];

        engine::Reasoning closed(*tokenizer, 2);
        for (const int32_t id : ids("]~b]ai\n<mm:think>a</mm:think>b[e~[\n]~b]ai\n<mm:think>"))
            closed.follow(id);
        accept(closed, {50, 51});
        CHECK(due(closed) == ids("</mm:think>"));
        accept(closed, due(closed));
        CHECK(due(closed).empty());
        CHECK(closed.barred() == think);
        CHECK(closed.n_tokens() == 2);

        engine::Reasoning in_call(*tokenizer, 2);
        in_call.follow(think);
        accept(in_call, {50});
        accept(in_call, ids(block + mark + "<s>a b c d" + mark + "</s>" + mark + "</invoke>\n"));
        CHECK(due(in_call).empty());
        CHECK(in_call.n_tokens() == 1);
        accept(in_call, ids(mark + "</tool_call>"));
        accept(in_call, {think, 52});
        CHECK(due(in_call) == ids("</mm:think>"));

        // Neither a mark nor the block's tag alone is a call.
        for (const std::string& text :
             {mark + " b", mark + "<tool_call> b", mark + "<tool_call>" + mark + "<x>"}) {
            engine::Reasoning mentioned(*tokenizer, 100);
            mentioned.follow(think);
            accept(mentioned, ids(text));
            CHECK(mentioned.n_tokens() == std::ssize(ids(text)));
        }
    }
}

TEST_CASE("a block of calls of M3 begins and ends with a mark and its tag") {
    for (const bool has_block_tokens : {true, false}) {
        const auto tokenizer = tiny_m3_tokenizer(has_block_tokens);
        engine::ToolBlock block(*tokenizer);
        const auto follow = [&](const std::string& text) {
            for (const int32_t id : tokenizer->encode(text, tokenizer::Specials::exact)) block.follow(id);
            return block.is_open();
        };
        CHECK(!follow("a ]<]minimax[>[ b <tool_call> ]<]minimax[>[<x>"));
        CHECK(follow("]<]minimax[>[<tool_call>\n"));
        CHECK(follow("]<]minimax[>[<invoke name=\"f\">]<]minimax[>[</invoke>\n</tool_call>"));
        CHECK(!follow("]<]minimax[>[ </tool_call>"));
    }
}

TEST_CASE("a model that thinks again once its budget is used up is not let, in a session and an engine") {
    const Markup markup;
    for (const float bias : {12.0F, 1000.0F}) {
        for (const int64_t budget : {1, 2, 7}) {
            INFO("bias " << bias << ", budget " << budget);
            GenerateParams params;
            params.sampling.logit_bias = {{markup.think, bias}};
            params.sampling.temperature = budget == 7 ? 0.8F : 0.0F;
            params.sampling.seed = 3;
            params.has_seed = true;
            params.max_reasoning = budget;
            params.max_tokens = 40;
            params.ignore_end = true;
            const Answer plain = answer(prompt(), params);
            check_blocks(plain.ids, budget);
            params.n_draft = 8;
            CHECK(answer(prompt(), params).ids == plain.ids);
            engine::Engine engine(bundled_model(), engine_params(), Logger());
            engine::RequestParams request;
            request.generate = params;
            const auto several = engine.submit(prompt(), request, 3);
            CHECK(result_of(*several[0]).ids == plain.ids);
            for (const auto& one : several) check_blocks(result_of(*one).ids, budget);
        }
    }
}

TEST_CASE("a constraint that has started goes before the budget") {
    const auto schema =
        json::parse(R"({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})",
                    "schema", json::Source::argument);
    for (const int64_t budget : {1, 3}) {
        for (const int64_t n_draft : {0, 8}) {
            GenerateParams params;
            params.max_reasoning = budget;
            params.max_tokens = 60;
            params.n_draft = n_draft;
            for (const auto& made : {constraint_of(constraint::grammar_of_schema(schema)),
                                     constraint_of(constraint::grammar_of_regex("[A-Z][a-z ]{3,20}\\."))}) {
                params.constraint = made;
                const Answer constrained = answer(prompt(), params);
                INFO(constrained.text);
                CHECK(made->matches(constrained.text));
            }
        }
    }
}

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
