// SPDX-License-Identifier: Apache-2.0
// From the top of a row a sampler chooses the same token as from the whole row, or reports that the top does not determine it.
#include "support/top_k.h"

#include <cmath>
#include <limits>

#include "expect_error.h"
#include "sampling/sampler.h"

namespace minim::sampling {
namespace {

using test::make_top_k;

constexpr float k_infinity = std::numeric_limits<float>::infinity();

// Two samplers that choose from the same rows, one of them from the top if that suffices. n_told counts how often it did.
struct Twins {
    Twins(const Params& params, int32_t n_vocab, std::span<const uint8_t> forbidden = {})
        : of_rows(params, n_vocab, forbidden), of_tops(params, n_vocab, forbidden) {}

    // Returns the token that both chose.
    int32_t choose(std::span<const float> logits, std::span<const int32_t> banned = {},
                   std::span<const uint64_t> allowed = {}) {
        const Choice expected = of_rows.sample(logits, banned, allowed);
        const TopKQuery query = of_tops.query(banned, {}, !allowed.empty());
        CHECK(query.n_candidates <= k_max_candidates);
        CHECK(query.named.size() <= static_cast<size_t>(k_max_named));
        std::optional<Choice> choice;
        if (query.n_candidates > 0) {
            const test::HostTopK top = make_top_k(logits, query);
            choice = of_tops.sample(top.view(), banned, allowed);
            ++n_asked;
        }
        n_told += choice ? 1 : 0;
        if (!choice) choice = of_tops.sample(logits, banned, allowed);
        CHECK(choice->token == expected.token);
        CHECK(choice->logprob == expected.logprob);
        CHECK(choice->top.size() == expected.top.size());
        for (size_t i = 0; i < std::min(choice->top.size(), expected.top.size()); ++i) {
            CHECK(choice->top[i].token == expected.top[i].token);
            CHECK(choice->top[i].logprob == expected.top[i].logprob);
        }
        of_rows.accept(expected.token, true);
        of_tops.accept(expected.token, true);
        return expected.token;
    }

    Sampler of_rows, of_tops;
    int n_asked = 0;
    int n_told = 0;
};

// Returns logits like those of a model. The larger the width, the surer the model. With `coarse` they are rounded, so that
// many are equal.
std::vector<float> random_row(Random& random, int32_t n_vocab, double width, bool coarse) {
    std::vector<float> logits;
    for (int32_t id = 0; id < n_vocab; ++id) {
        double sum = -6.0;
        for (int i = 0; i < 12; ++i) sum += random.uniform();
        logits.push_back(static_cast<float>(coarse ? std::round(sum * width) : sum * width));
    }
    return logits;
}

Params random_params(Random& random, int32_t n_vocab) {
    const auto chance = [&] { return random.next() % 3 == 0; };
    Params params;
    params.seed = random.next();
    const float temperatures[] = {0.0F, 0.3F, 1.0F, 1.7F};
    params.temperature = temperatures[random.next() % 4];
    if (chance()) params.top_k = static_cast<int32_t>(random.next() % 300);
    if (chance()) params.top_p = static_cast<float>(random.uniform());
    if (chance()) params.min_p = static_cast<float>(random.uniform() * 0.2);
    if (chance()) params.order = Order::filters_first;
    if (chance()) params.repetition_penalty = 1.3F;
    if (chance()) params.penalty_last_n = 20;
    if (chance()) params.presence_penalty = static_cast<float>(random.uniform() * 3.0 - 1.0);
    if (chance()) params.frequency_penalty = 0.5F;
    if (chance()) {
        params.dry_multiplier = 2.0F;
        params.dry_allowed_length = static_cast<int32_t>(random.next() % 2);
    }
    if (chance()) params.logprobs = true;
    if (params.logprobs && chance()) params.n_top_logprobs = static_cast<int32_t>(random.next() % 21);
    for (int i = 0; chance() && i < 5; ++i) {
        const auto token = static_cast<int32_t>(random.next() % static_cast<uint64_t>(n_vocab));
        params.logit_bias.push_back({token, chance() ? -k_infinity : static_cast<float>(i * 5)});
    }
    return params;
}

}  // namespace

TEST_CASE("the top of a row gives the token of the row, with every setting, and mostly suffices") {
    Random random(11);
    int n_rows = 0;
    int n_asked = 0;
    int n_told = 0;
    for (int i = 0; i < 300; ++i) {
        const int32_t n_vocab = i % 5 == 0 ? 40 : 3000;
        const Params params = random_params(random, n_vocab);
        std::vector<uint8_t> forbidden(static_cast<size_t>(i % 3 == 0 ? n_vocab : 0));
        for (size_t id = 0; id + 10 < forbidden.size(); id += 11) forbidden[id] = 1;
        Twins twins(params, n_vocab, forbidden);
        const double width = i % 4 == 0 ? 0.5 : 4.0;
        for (int row = 0; row < 25; ++row) {
            INFO("settings " << i << ", row " << row << ", temperature " << params.temperature);
            const std::vector<float> logits = random_row(random, n_vocab, width, i % 7 == 0);
            std::vector<int32_t> banned;
            if (row % 4 == 1) banned = {3, n_vocab - 1, 3};
            std::vector<uint64_t> allowed;
            if (row % 5 == 2) {
                for (int32_t word = 0; word * 64 < n_vocab; ++word) allowed.push_back(random.next());
            }
            twins.choose(logits, banned, allowed);
            ++n_rows;
        }
        n_asked += twins.n_asked;
        n_told += twins.n_told;
    }
    CHECK(n_asked > n_rows * 3 / 5);
    CHECK(n_told > n_asked * 4 / 5);
}

TEST_CASE("a likely token is told from a few candidates, a flat row is not") {
    Random random(2);
    Params params;
    params.top_p = 0.95F;
    const std::vector<float> sure = random_row(random, 5000, 6.0, false);
    const std::vector<float> flat = random_row(random, 5000, 0.1, false);
    Twins twins(params, 5000);
    for (int i = 0; i < 200; ++i) twins.choose(sure);
    CHECK(twins.n_told == 200);
    for (int i = 0; i < 10; ++i) twins.choose(flat);
    CHECK(twins.n_told == 200);
}

TEST_CASE("the highest logit alone is asked for where nothing else is needed") {
    Params params;
    params.temperature = 0.0F;
    const std::vector<uint8_t> forbidden = {0, 1, 0, 1, 0, 0};
    const Sampler sampler(params, 6, forbidden);
    CHECK(sampler.query().n_candidates == 1);
    CHECK(sampler.query().named.empty());
    CHECK(sampler.query().inverse_temperature == 0.0);
    CHECK(sampler.query(std::vector<int32_t>{2}).n_candidates == 2);
    params.temperature = 0.5F;
    CHECK(Sampler(params, 6, forbidden).query().named == std::vector<int32_t>{1, 3});
    CHECK(Sampler(params, 6, forbidden).query().inverse_temperature == 2.0);
    params.top_k = 4;
    CHECK(Sampler(params, 6, forbidden).query().inverse_temperature == 0.0);
    CHECK(Sampler(params, 6, forbidden).query().n_candidates == 4);
}

TEST_CASE("where the whole row is needed, it is asked for") {
    constexpr int32_t k_vocab = 5000;
    Params params;
    params.top_k = k_max_candidates;
    CHECK(Sampler(params, k_vocab).query().n_candidates == k_max_candidates);
    ++params.top_k;
    CHECK(Sampler(params, k_vocab).query().n_candidates == 0);
    params.top_k = 0;
    CHECK(Sampler(params, k_vocab).query({}, {}, true).n_candidates == 0);  // allowed weights are unknown
    params.temperature = 0.0F;
    CHECK(Sampler(params, k_vocab).query({}, {}, true).n_candidates == k_max_candidates);
    params.presence_penalty = 1.0F;
    Sampler penalized(params, k_vocab);
    for (int32_t token = 0; token < k_max_named; ++token) penalized.accept(token, true);
    CHECK(penalized.query().n_candidates == k_max_candidates);
    CHECK(penalized.query().named.size() == static_cast<size_t>(k_max_named));
    CHECK(penalized.query({}, std::vector<int32_t>{7}).n_candidates == k_max_candidates);
    CHECK(penalized.query({}, std::vector<int32_t>{4000}).n_candidates == 0);
}

TEST_CASE("what the top cannot tell leaves the sampler as it was") {
    Params params;
    params.top_p = 0.5F;
    Sampler sampler(params, 4);
    // The cumulative weight equals the threshold to the last bit, but the device's total is not known so exactly.
    const std::vector<float> even = {1, 1, 1, 1};
    CHECK_FALSE(sampler.sample(make_top_k(even, sampler.query()).view()));
    const std::vector<float> none(4, -k_infinity);
    CHECK_FALSE(sampler.sample(make_top_k(none, sampler.query()).view()));
    const std::vector<float> infinite = {1, k_infinity, 2, k_infinity};
    CHECK_FALSE(sampler.sample(make_top_k(infinite, sampler.query()).view()));
    const std::vector<float> bad = {1, NAN, 2, 3};
    CHECK_FALSE(sampler.sample(make_top_k(bad, sampler.query()).view()));
    Sampler fresh(params, 4);
    const std::vector<float> logits = {1, 2, 1, 2};
    for (int i = 0; i < 50; ++i) CHECK(sampler.sample(logits).token == fresh.sample(logits).token);
    expect_error(Status::invalid, "banned token 9", [&] {
        static_cast<void>(sampler.sample(make_top_k(even, sampler.query()).view(), std::vector<int32_t>{9}));
    });
    expect_error(Status::invalid, "a mask of 2 words", [&] {
        static_cast<void>(
            sampler.sample(make_top_k(even, sampler.query()).view(), {}, std::vector<uint64_t>{1, 1}));
    });
}

TEST_CASE("a changed logit that was not reported counts as unknown") {
    Params params;
    params.temperature = 0.0F;
    params.logit_bias = {{2, 5.0F}};
    Sampler sampler(params, 5);
    const std::vector<float> logits = {3, 2, 1, 0, -1};
    TopKQuery query = sampler.query();
    CHECK(query.named == std::vector<int32_t>{2});
    CHECK(sampler.sample(make_top_k(logits, query).view())->token == 2);
    query.named.clear();
    query.n_candidates = 2;
    CHECK_FALSE(sampler.sample(make_top_k(logits, query).view()));
    query.n_candidates = 3;
    CHECK(sampler.sample(make_top_k(logits, query).view())->token == 2);
    // A token that a bias lowers may rank below tokens that are not candidates.
    params.logit_bias = {{0, -2.5F}, {1, -2.5F}};
    Sampler lowered(params, 5);
    query.n_candidates = 2;
    CHECK_FALSE(lowered.sample(make_top_k(logits, query).view()));
    query.n_candidates = 3;
    CHECK(lowered.sample(make_top_k(logits, query).view())->token == 2);
}

TEST_CASE("a draw from the whole distribution tells its token from the total's range") {
    Params params;
    params.seed = 5;
    Random random(3);
    const std::vector<float> logits = random_row(random, 2000, 5.0, false);
    Twins plain(params, 2000);
    for (int i = 0; i < 300; ++i) plain.choose(logits);
    CHECK(plain.n_told > 290);
    // A bias raises or removes the highest logit, and the total is adjusted.
    const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    for (const float bias : {-k_infinity, -8.0F, 4.0F}) {
        params.logit_bias = {{best, bias}};
        Twins twins(params, 2000);
        for (int i = 0; i < 100; ++i) twins.choose(logits);
        CHECK(twins.n_told > 90);
    }
}

}  // namespace minim::sampling
