// SPDX-License-Identifier: Apache-2.0
#include "sampling/logprobs.h"

#include <cmath>
#include <limits>

#include "sampling/random.h"
#include "support/catch.h"

namespace minim::sampling {
namespace {

constexpr float k_infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("log-probabilities equal the long double reference to the last bit of a float") {
    Random random(3);
    for (const size_t n : std::initializer_list<size_t>{1, 2, 100, 20000}) {
        std::vector<float> logits(n);
        for (float& logit : logits) logit = static_cast<float>(random.uniform() * 40.0 - 25.0);
        long double sum = 0.0L;
        for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
        const LogNormaliser normaliser = log_normaliser(logits);
        int n_off = 0;
        for (const float logit : logits) {
            const long double correct = static_cast<long double>(logit) - std::log(sum);
            const auto tolerance = std::max(1e-14L, std::abs(correct) * 0x1.01p-24L);
            n_off +=
                std::abs(static_cast<long double>(normaliser.logprob(logit)) - correct) > tolerance ? 1 : 0;
        }
        CHECK(n_off == 0);
    }
}

TEST_CASE("log-probabilities of huge logits do not overflow") {
    const std::vector<float> logits{3e38F, 3e38F, -3e38F};
    const LogNormaliser normaliser = log_normaliser(logits);
    CHECK(normaliser.logprob(3e38F) == Approx(-0.6931472));
    CHECK(normaliser.logprob(-3e38F) < -3e38F);
}

TEST_CASE("entries at +inf share all probability and -inf has none") {
    const std::vector<float> logits{1.0F, k_infinity, -k_infinity, k_infinity};
    const LogNormaliser normaliser = log_normaliser(logits);
    CHECK(normaliser.logprob(k_infinity) == Approx(-0.6931472));
    CHECK(normaliser.logprob(1.0F) == -k_infinity);
    CHECK(normaliser.logprob(-k_infinity) == -k_infinity);
}

TEST_CASE("the top log-probabilities come highest first and lowest id first on ties") {
    const std::vector<float> logits{1.0F, 3.0F, 2.0F, 3.0F, 2.0F, -k_infinity};
    const LogNormaliser normaliser = log_normaliser(logits);
    const std::vector<TokenProbability> top = top_logprobs(logits, normaliser, 4);
    REQUIRE(top.size() == 4);
    const std::vector<int32_t> expected{1, 3, 2, 4};
    for (size_t i = 0; i < top.size(); ++i) {
        CHECK(top[i].token == expected[i]);
        CHECK(top[i].logprob == normaliser.logprob(logits[static_cast<size_t>(top[i].token)]));
    }
    CHECK(top_logprobs(logits, normaliser, 1)[0].token == 1);
    for (size_t i = 0; i < top.size(); ++i)
        CHECK(rank_of(logits, expected[i]) == static_cast<int32_t>(i) + 1);
    CHECK(rank_of(logits, 5) == 6);
}

TEST_CASE("logits that round to one log-probability keep their order") {
    // Near -1000 floats are 6e-5 apart, near 0.5 they are 6e-8 apart.
    const std::vector<float> logits{0.5F, std::nextafter(0.5F, 1.0F), 1000.0F};
    const std::vector<TokenProbability> top = top_logprobs(logits, log_normaliser(logits), 3);
    CHECK(top[1].logprob == top[2].logprob);
    CHECK(top[1].token == 1);
    CHECK(top[2].token == 0);
}

TEST_CASE("the number of top log-probabilities is limited by the row") {
    const std::vector<float> logits{1.0F, 2.0F};
    const LogNormaliser normaliser = log_normaliser(logits);
    CHECK(top_logprobs(logits, normaliser, 20).size() == 2);
    CHECK(top_logprobs(logits, normaliser, 0).empty());
    CHECK(top_logprobs(logits, normaliser, -1).empty());
}

}  // namespace minim::sampling
