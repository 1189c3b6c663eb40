// SPDX-License-Identifier: Apache-2.0
#include "engine/lookup_draft.h"

#include <algorithm>
#include <vector>

#include "support.h"
#include "support/last_logits.h"

using namespace minim;
using namespace minim::test;
using engine::DraftLength;
using engine::LookupDraft;

namespace {

std::vector<int32_t> draft_after(const std::vector<int32_t>& text, int64_t most) {
    LookupDraft draft;
    const auto proposed = draft.draft(text, most);
    return {proposed.begin(), proposed.end()};
}

// Returns the tokens a second if a step with a draft of n tokens takes step_time(n), and n_right(n) of these tokens are accepted.
template <typename StepTime, typename Right>
double speed(DraftLength& length, int n_steps, const StepTime& step_time, const Right& n_right) {
    double seconds = 0.0;
    double tokens = 0.0;
    for (int i = 0; i < n_steps; ++i) {
        const int64_t n = length.next();
        const int64_t made = 1 + std::min<int64_t>(n, n_right(i));
        length.learn(n, made, step_time(n));
        seconds += step_time(n);
        tokens += static_cast<double>(made);
    }
    return tokens / seconds;
}

engine::GenerateParams params_with(int64_t n_draft, float temperature) {
    engine::GenerateParams params;
    params.n_draft = n_draft;
    params.max_tokens = 60;
    params.ignore_end = true;
    params.sampling.temperature = temperature;
    params.sampling.seed = 5;
    params.has_seed = true;
    return params;
}

}  // namespace

TEST_CASE("a draft is what followed the same three tokens before") {
    CHECK(draft_after({1, 2, 3, 4, 5, 6, 1, 2, 3}, 2) == std::vector<int32_t>{4, 5});
    CHECK(draft_after({1, 2, 3, 4, 5, 6, 1, 2, 3}, 100) == std::vector<int32_t>{4, 5, 6, 1, 2, 3});
    CHECK(draft_after({1, 2, 3, 8, 1, 2, 3, 9, 1, 2, 3}, 1) == std::vector<int32_t>{9});
    CHECK(draft_after({7, 7, 7, 7}, 5) == std::vector<int32_t>{7});
}

TEST_CASE("nothing is drafted after three tokens that did not occur before") {
    CHECK(draft_after({}, 4).empty());
    CHECK(draft_after({1, 2}, 4).empty());
    CHECK(draft_after({1, 2, 3}, 4).empty());
    CHECK(draft_after({1, 2, 3, 4, 2, 3}, 4).empty());
    CHECK(draft_after({1, 2, 3, 4, 1, 2, 3}, 0).empty());
}

TEST_CASE("a text may come piece by piece") {
    LookupDraft draft;
    const std::vector<int32_t> text = {1, 2, 3, 4, 5, 1, 2, 3};
    for (size_t n = 0; n < text.size(); ++n) draft.draft(std::span(text).first(n), 2);
    CHECK(std::ranges::equal(draft.draft(text, 2), std::vector<int32_t>{4, 5}));
}

TEST_CASE("drafts that are accepted become longer") {
    DraftLength length(32);
    const auto cheap = [](int64_t n) { return 1.0 + 0.05 * static_cast<double>(n); };
    speed(length, 400, cheap, [](int) { return 32; });
    const double best = 33.0 / cheap(32);
    CHECK(speed(length, 400, cheap, [](int) { return 32; }) > 0.9 * best);
}

TEST_CASE("drafts that are refused cost little") {
    DraftLength length(32);
    // Experts are read anew for each row: n rows take nearly n times as long.
    const auto dear = [](int64_t n) { return 1.0 + 0.8 * static_cast<double>(n); };
    CHECK(speed(length, 1000, dear, [](int) { return 0; }) > 0.97);
}

TEST_CASE("the length follows a text that changes") {
    DraftLength length(8);
    const auto step = [](int64_t n) { return 1.0 + 0.3 * static_cast<double>(n); };
    CHECK(speed(length, 500, step, [](int) { return 0; }) > 0.95);
    speed(length, 600, step, [](int) { return 8; });
    CHECK(speed(length, 300, step, [](int) { return 8; }) > 1.5);
    speed(length, 100, step, [](int) { return 0; });
    CHECK(speed(length, 500, step, [](int) { return 0; }) > 0.95);
}

TEST_CASE("without drafts the length is 0") {
    DraftLength length(0);
    for (int i = 0; i < 50; ++i) {
        CHECK(length.next() == 0);
        length.learn(0, 1, 1.0);
    }
}

TEST_CASE("drafts change no token of an answer") {
    // A text that repeats itself, and goes on to do so.
    std::vector<int32_t> repeating;
    for (int i = 0; i < 8; ++i) repeating.insert(repeating.end(), {20, 21, 22, 23, 24, 25, 26});
    for (const auto& ids : {prompt(), repeating}) {
        for (const float temperature : {0.0F, 0.7F, 1.5F}) {
            const Answer expected = answer(ids, params_with(0, temperature));
            for (const int64_t n_draft : {1, 2, 7, 64}) {
                INFO(n_draft << " drafted, temperature " << temperature);
                const Answer drafted = answer(ids, params_with(n_draft, temperature));
                CHECK(drafted.ids == expected.ids);
                CHECK(drafted.text == expected.text);
                CHECK(drafted.state.finish == expected.state.finish);
            }
        }
    }
}

TEST_CASE("drafts stop where the context, a stop text or the answer ends") {
    std::vector<int32_t> repeating;
    for (int i = 0; i < 8; ++i) repeating.insert(repeating.end(), {20, 21, 22, 23, 24, 25, 26});
    for (const int64_t n_context : {57, 58, 60, 75}) {
        engine::GenerateParams params = params_with(16, 0.0F);
        params.max_tokens = 0;
        engine::Session session = make_session(n_context);
        const Answer drafted = answer(session, repeating, params);
        CHECK(drafted.state.finish == engine::Finish::context_full);
        CHECK(session.n_tokens() == n_context);
        params.n_draft = 0;
        engine::Session plain = make_session(n_context);
        CHECK(answer(plain, repeating, params).ids == drafted.ids);
    }
    engine::GenerateParams params;
    params.n_draft = 16;
    const Answer whole = answer(prompt(), params);
    CHECK(whole.ids == greedy().ids);
    CHECK(whole.state.finish == engine::Finish::end);
}

TEST_CASE("a session goes on from a drafted answer") {
    std::vector<int32_t> repeating;
    for (int i = 0; i < 8; ++i) repeating.insert(repeating.end(), {20, 21, 22, 23, 24, 25, 26});
    engine::Session drafted = make_session();
    engine::Session plain = make_session();
    answer(drafted, repeating, params_with(16, 0.0F));
    answer(plain, repeating, params_with(0, 0.0F));
    REQUIRE(tokens_of(drafted) == tokens_of(plain));
    CHECK(std::ranges::equal(last_logits_of(drafted), last_logits_of(plain)));
    CHECK(answer(drafted, prompt(), params_with(3, 0.0F)).ids ==
          answer(plain, prompt(), params_with(0, 0.0F)).ids);
}
