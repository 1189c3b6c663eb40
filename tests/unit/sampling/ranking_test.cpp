// SPDX-License-Identifier: Apache-2.0
#include "sampling/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/random.h"
#include "support/catch.h"

namespace minim::sampling {
namespace {

constexpr float k_infinity = std::numeric_limits<float>::infinity();

std::vector<Candidate> fully_sorted(const std::vector<float>& logits) {
    std::vector<Candidate> all;
    for (size_t id = 0; id < logits.size(); ++id) {
        if (logits[id] > -k_infinity) all.push_back({logits[id], static_cast<int32_t>(id)});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
    return all;
}

void check_ranking(Ranking& ranking, const std::vector<float>& logits, int64_t first_piece) {
    const std::vector<Candidate> expected = fully_sorted(logits);
    ranking.start(logits, first_piece);
    for (size_t i = 0; i < expected.size(); ++i) {
        REQUIRE(ranking.has(static_cast<int64_t>(i)));
        REQUIRE(ranking[static_cast<int64_t>(i)].token == expected[i].token);
        REQUIRE(ranking[static_cast<int64_t>(i)].logit == expected[i].logit);
    }
    REQUIRE_FALSE(ranking.has(std::ssize(expected)));
}

}  // namespace

TEST_CASE("a ranking found in pieces equals a stable sort of the whole row") {
    Random random(7);
    Ranking ranking;
    for (const size_t n : std::initializer_list<size_t>{1, 2, 3, 17, 500, 3000}) {
        for (const int64_t first_piece : {1, 2, 5, 128, 5000}) {
            std::vector<float> distinct(n);
            std::vector<float> coarse(n);  // many ties, some infinities
            for (size_t i = 0; i < n; ++i) {
                distinct[i] = static_cast<float>(random.uniform() * 20.0 - 10.0);
                coarse[i] = static_cast<float>(std::floor(random.uniform() * 8.0));
                if (coarse[i] == 0.0F) coarse[i] = -k_infinity;
                if (coarse[i] == 7.0F) coarse[i] = k_infinity;
            }
            check_ranking(ranking, distinct, first_piece);
            check_ranking(ranking, coarse, first_piece);
            std::sort(distinct.begin(), distinct.end());
            check_ranking(ranking, distinct, first_piece);
            std::reverse(distinct.begin(), distinct.end());
            check_ranking(ranking, distinct, first_piece);
            check_ranking(ranking, std::vector<float>(n, 1.5F), first_piece);
        }
    }
}

TEST_CASE("a row of -inf holds no candidate") {
    Ranking ranking;
    const std::vector<float> logits(10, -k_infinity);
    ranking.start(logits, 4);
    CHECK_FALSE(ranking.has(0));
}

TEST_CASE("the ranks of +0 and -0 follow their ids") {
    Ranking ranking;
    const std::vector<float> logits{-0.0F, 0.0F, -0.0F};
    ranking.start(logits, 1);
    REQUIRE(ranking.has(2));
    for (int32_t i = 0; i < 3; ++i) CHECK(ranking[i].token == i);
}

TEST_CASE("a piece larger than the row is the whole row") {
    Ranking ranking;
    const std::vector<float> logits{1.0F, 2.0F};
    ranking.start(logits, std::numeric_limits<int64_t>::max());
    CHECK(ranking.has(1));
    CHECK_FALSE(ranking.has(2));
}

}  // namespace minim::sampling
