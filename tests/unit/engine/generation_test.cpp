// SPDX-License-Identifier: Apache-2.0
// How generations begin, choose and end. What happens to their text is in generation_text_test.cpp.
#include "engine/generation.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support.h"

using namespace minim;
using namespace minim::test;
using engine::Finish;
using engine::GenerateParams;
using engine::Generation;
using engine::Session;

namespace {

std::vector<int32_t> first_of(const std::vector<int32_t>& ids, size_t count) {
    return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(std::min(count, ids.size()))};
}

GenerateParams sampled(uint64_t seed, float temperature = 1.0F) {
    GenerateParams params;
    params.sampling.temperature = temperature;
    params.sampling.seed = seed;
    params.has_seed = true;
    params.max_tokens = 40;
    return params;
}

}  // namespace

TEST_CASE("a greedy answer ends with the end token, which is not part of it") {
    CHECK(greedy().text.find("Lima") != std::string::npos);
    CHECK(greedy().state.finish == Finish::end);
    CHECK(greedy().state.stop_token == k_end_of_turn);
    CHECK(greedy().state.n_prompt == static_cast<int64_t>(prompt().size()));
    CHECK(greedy().state.n_generated == static_cast<int64_t>(greedy().ids.size()));
    CHECK(std::ranges::find(greedy().ids, k_end_of_turn) == greedy().ids.end());
    CHECK(answer(prompt()).ids == greedy().ids);
}

TEST_CASE("the session holds the prompt and the answer") {
    Session session = make_session();
    const Answer whole = answer(session, prompt());
    auto expected = prompt();
    expected.insert(expected.end(), whole.ids.begin(), whole.ids.end());
    CHECK(tokens_of(session) == expected);
}

TEST_CASE("max_tokens ends an answer after so many tokens") {
    for (const size_t n : std::vector<size_t>{1, 2, 5}) {
        GenerateParams params;
        params.max_tokens = static_cast<int64_t>(n);
        Session session = make_session();
        const Answer cut = answer(session, prompt(), params);
        CHECK(cut.ids == first_of(greedy().ids, n));
        CHECK(cut.state.finish == Finish::length);
        CHECK(cut.state.stop_token == -1);
        CHECK(session.n_tokens() == static_cast<int64_t>(prompt().size() + n));
    }
}

TEST_CASE("min_tokens puts off the end") {
    GenerateParams params;
    params.min_tokens = static_cast<int64_t>(greedy().ids.size()) + 3;
    params.max_tokens = params.min_tokens + 20;
    const Answer longer = answer(prompt(), params);
    CHECK(static_cast<int64_t>(longer.ids.size()) >= params.min_tokens);
    CHECK(first_of(longer.ids, greedy().ids.size()) == greedy().ids);
    CHECK(std::ranges::find(longer.ids, k_end_of_turn) == longer.ids.end());
}

TEST_CASE("ignore_end makes the end token one like any other") {
    GenerateParams params;
    params.ignore_end = true;
    params.max_tokens = static_cast<int64_t>(greedy().ids.size()) + 4;
    const Answer longer = answer(prompt(), params);
    CHECK(longer.state.finish == Finish::length);
    REQUIRE(longer.ids.size() == greedy().ids.size() + 4);
    CHECK(longer.ids[greedy().ids.size()] == k_end_of_turn);
    CHECK(longer.texts[greedy().ids.size()].empty());
}

TEST_CASE("a stop token ends the answer like the model's own") {
    GenerateParams params;
    params.stop_tokens = {greedy().ids[4]};
    const auto first = std::ranges::find(greedy().ids, greedy().ids[4]) - greedy().ids.begin();
    const Answer cut = answer(prompt(), params);
    CHECK(cut.ids == first_of(greedy().ids, static_cast<size_t>(first)));
    CHECK(cut.state.finish == Finish::end);
    CHECK(cut.state.stop_token == greedy().ids[4]);
}

TEST_CASE("a stop token outside the vocabulary is invalid") {
    Session session = make_session();
    for (const int32_t id : {-1, 2048}) {
        GenerateParams params;
        params.stop_tokens = {id};
        expect_error(Status::invalid, std::to_string(id),
                     [&] { const Generation generation(session, params, prompt(), nullptr); });
    }
    CHECK(session.n_tokens() == 0);
}

TEST_CASE("an answer ends where the context is full") {
    Session session = make_session(static_cast<int64_t>(prompt().size()) + 5);
    const Answer cut = answer(session, prompt());
    CHECK(cut.ids == first_of(greedy().ids, 5));
    CHECK(cut.state.finish == Finish::context_full);
    CHECK(session.n_tokens() == session.n_context());
    const Answer nothing = answer(session, {});
    CHECK(nothing.ids.empty());
    CHECK(nothing.state.finish == Finish::context_full);
}

TEST_CASE("an empty prompt continues what the session holds") {
    Session session = make_session();
    GenerateParams params;
    params.max_tokens = 5;
    Answer whole = answer(session, prompt(), params);
    const Answer more = answer(session, {}, {});
    CHECK(more.state.n_prompt == 0);
    CHECK(more.state.finish == Finish::end);
    whole.ids.insert(whole.ids.end(), more.ids.begin(), more.ids.end());
    CHECK(whole.ids == greedy().ids);
    CHECK(whole.text + more.text == greedy().text);
}

TEST_CASE("a finished answer can be followed by the next question") {
    Session session = make_session();
    answer(session, prompt());
    const auto before = tokens_of(session);
    auto next = bundled_model()->text().tokenizer().encode(
        "[e~[\n]~b]user\nWhat is 2 + 2?[e~[\n]~b]ai\n<think>\n", tokenizer::Specials::exact);
    const Answer second = answer(session, next);
    auto whole = before;
    whole.insert(whole.end(), next.begin(), next.end());
    CHECK(second.ids == answer(whole).ids);
}

TEST_CASE("a prompt that cannot be evaluated leaves the session as it was") {
    Session session = make_session(static_cast<int64_t>(prompt().size()) + 1);
    session.eval(std::vector<int32_t>{1, 2, 3}, false, {}, nullptr);
    const auto begin = [&](std::span<const int32_t> ids, const CancelToken* cancel) {
        const Generation generation(session, {}, ids, cancel);
    };
    CancelToken cancel;
    cancel.trigger();
    expect_error(Status::context_full, "do not fit", [&] { begin(prompt(), nullptr); });
    expect_error(Status::invalid, "5000", [&] { begin(std::vector<int32_t>{5000}, nullptr); });
    expect_error(Status::cancelled, "", [&] { begin(first_of(prompt(), 4), &cancel); });
    CHECK(tokens_of(session) == std::vector<int32_t>{1, 2, 3});
    Session empty = make_session();
    expect_error(Status::invalid, "empty", [&] { const Generation generation(empty, {}, {}, nullptr); });
}

TEST_CASE("settings out of range are refused before the prompt is evaluated") {
    Session session = make_session();
    GenerateParams params;
    params.sampling.top_p = 2.0F;
    expect_error(Status::invalid, "top_p",
                 [&] { const Generation generation(session, params, prompt(), nullptr); });
    params = {};
    params.n_prompt_logprobs = 0;
    expect_error(Status::invalid, "prompt_logprobs",
                 [&] { const Generation generation(session, params, prompt(), nullptr); });
    params = {};
    params.stop_texts = {""};
    expect_error(Status::invalid, "stop string",
                 [&] { const Generation generation(session, params, prompt(), nullptr); });
    CHECK(session.n_tokens() == 0);
}

TEST_CASE("stop() keeps the reported tokens and no others") {
    Session session = make_session();
    Generation generation(session, {}, prompt(), nullptr);
    for (int i = 0; i < 3; ++i) REQUIRE(generation.next(nullptr));
    generation.stop();
    CHECK(generation.state().finish == Finish::stopped);
    CHECK(generation.state().n_generated == 3);
    CHECK_FALSE(generation.next(nullptr));
    auto expected = prompt();
    expected.insert(expected.end(), greedy().ids.begin(), greedy().ids.begin() + 3);
    CHECK(tokens_of(session) == expected);
}

TEST_CASE("stop() after the end changes nothing") {
    Session session = make_session();
    Generation generation(session, {}, prompt(), nullptr);
    rest_of(generation);
    const auto before = tokens_of(session);
    generation.stop();
    CHECK(generation.state().finish == Finish::end);
    CHECK(generation.state().stop_token == k_end_of_turn);
    CHECK(tokens_of(session) == before);
}

TEST_CASE("a cancelled generation keeps the reported tokens, and another goes on from there") {
    Session session = make_session();
    Generation generation(session, {}, prompt(), nullptr);
    CancelToken cancel;
    for (int i = 0; i < 4; ++i) REQUIRE(generation.next(&cancel));
    cancel.trigger();
    expect_error(Status::cancelled, "generation", [&] { generation.next(&cancel); });
    CHECK(generation.state().finish == Finish::stopped);
    CHECK_FALSE(generation.next(nullptr));
    CHECK(session.n_tokens() == static_cast<int64_t>(prompt().size()) + 4);
    const Answer more = answer(session, {});
    CHECK(more.ids == std::vector<int32_t>(greedy().ids.begin() + 4, greedy().ids.end()));
}

TEST_CASE("log-probabilities are those of the model's own distribution") {
    const float temperature = GENERATE(0.0F, 1.0F);
    GenerateParams params = sampled(3, temperature);
    params.sampling.logprobs = true;
    params.sampling.n_top_logprobs = 4;
    params.sampling.repetition_penalty = 1.2F;
    params.max_tokens = 12;
    const Answer some = answer(prompt(), params);
    auto all = prompt();
    all.insert(all.end(), some.ids.begin(), some.ids.end());
    const auto n_vocab = static_cast<size_t>(bundled_model()->config().n_vocab);
    std::vector<float> logits(all.size() * n_vocab);
    Session session = make_session();
    session.eval(all, true, logits, nullptr);

    for (size_t i = 0; i < some.ids.size(); ++i) {
        const float* row = logits.data() + (prompt().size() + i - 1) * n_vocab;
        const double largest = static_cast<double>(*std::max_element(row, row + n_vocab));
        double sum = 0.0;
        for (size_t id = 0; id < n_vocab; ++id) sum += std::exp(static_cast<double>(row[id]) - largest);
        const auto logprob = [&](int32_t id) {
            return static_cast<double>(row[id]) - largest - std::log(sum);
        };
        CHECK(static_cast<double>(some.choices[i].logprob) == Approx(logprob(some.ids[i])).margin(1e-5));
        const auto& top = some.choices[i].top;
        REQUIRE(top.size() == 4);
        CHECK(static_cast<double>(row[top[0].token]) == largest);
        for (size_t t = 0; t < top.size(); ++t) {
            CHECK(static_cast<double>(top[t].logprob) == Approx(logprob(top[t].token)).margin(1e-5));
            if (t > 0) CHECK(top[t].logprob <= top[t - 1].logprob);
        }
    }
}

TEST_CASE("without logprobs none are reported") {
    for (const sampling::Choice& choice : greedy().choices) {
        CHECK(choice.logprob == 0.0F);
        CHECK(choice.top.empty());
    }
}

TEST_CASE("the same seed gives the same text, others give others") {
    const Answer first = answer(prompt(), sampled(1));
    CHECK(answer(prompt(), sampled(1)).ids == first.ids);
    CHECK(first.state.seed == 1);
    int n_different = 0;
    for (uint64_t seed = 2; seed < 8; ++seed)
        n_different += answer(prompt(), sampled(seed, 1.5F)).ids != first.ids ? 1 : 0;
    CHECK(n_different > 0);
}

TEST_CASE("a seed of chance is reported and repeats its text") {
    GenerateParams params = sampled(0, 2.0F);
    params.has_seed = false;
    const Answer first = answer(prompt(), params);
    CHECK(answer(prompt(), sampled(first.state.seed, 2.0F)).ids == first.ids);
    CHECK(answer(prompt(), params).state.seed != first.state.seed);
}

TEST_CASE("padding rows are never chosen, however hot the sampling") {
    GenerateParams params = sampled(5, 100.0F);
    params.max_tokens = 300;
    params.ignore_end = true;
    for (const int32_t id : answer(prompt(), params).ids) {
        REQUIRE(bundled_model()->text().tokenizer().token_type(id) != tokenizer::TokenType::unused);
    }
}

TEST_CASE("a repetition penalty changes the text") {
    GenerateParams params;
    params.sampling.repetition_penalty = 3.0F;
    params.max_tokens = 40;
    CHECK(answer(prompt(), params).ids != greedy().ids);
}

TEST_CASE("penalties spare added tokens unless asked") {
    // The end token occurs in the prompt and is the likeliest one after the answer.
    auto ids = prompt();
    ids.insert(ids.end(), greedy().ids.begin(), greedy().ids.end());
    REQUIRE(std::ranges::find(ids, k_end_of_turn) != ids.end());
    GenerateParams params;
    params.sampling.repetition_penalty = 1000.0F;
    params.max_tokens = 1;
    const Answer spared = answer(ids, params);
    CHECK(spared.state.finish == Finish::end);
    params.penalize_added_tokens = true;
    const Answer penalised = answer(ids, params);
    CHECK(penalised.state.finish == Finish::length);
    CHECK(penalised.ids[0] != k_end_of_turn);
}

TEST_CASE("a forbidden token is not chosen") {
    GenerateParams params;
    params.sampling.logit_bias = {{greedy().ids[2], -INFINITY}};
    params.max_tokens = 10;
    const Answer other = answer(prompt(), params);
    CHECK(std::ranges::find(other.ids, greedy().ids[2]) == other.ids.end());
    params.sampling.logit_bias = {{2048, 1.0F}};
    Session session = make_session();
    expect_error(Status::invalid, "2048",
                 [&] { const Generation generation(session, params, prompt(), nullptr); });
}
