// SPDX-License-Identifier: Apache-2.0
#include "sampling/softmax.h"

#include <cmath>
#include <limits>
#include <vector>

#include "sampling/random.h"
#include "support/catch.h"

namespace minim::sampling {
namespace {

constexpr float k_infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("a weight is exp of the tempered distance to the highest logit") {
    const Softmax softmax{3.0F, 0.5};
    CHECK(softmax.weight(3.0F) == 1.0);
    CHECK(softmax.weight(1.0F) == Approx(std::exp(-1.0)).epsilon(1e-15));
    CHECK(softmax.weight(-3e38F) == 0.0);
    CHECK(softmax.weight(-k_infinity) == 0.0);
}

TEST_CASE("the total is the sum of the weights for rows of any length") {
    Random random(6);
    for (const size_t n : std::initializer_list<size_t>{1, 7, 8, 9, 255, 256, 257, 1000}) {
        std::vector<float> logits(n);
        float highest = -k_infinity;
        for (float& logit : logits) {
            logit = static_cast<float>(random.uniform() * 30.0);
            highest = std::max(highest, logit);
        }
        logits[n - 1] = n > 1 ? -k_infinity : highest;
        const Softmax softmax{highest, 0.7};
        double sum = 0.0;
        for (const float logit : logits) sum += softmax.weight(logit);
        CHECK(softmax.total(logits) == Approx(sum).epsilon(1e-14));
    }
}

TEST_CASE("the total is exact for equal logits and does not overflow for far ones") {
    CHECK(Softmax{2.0F, 1.0}.total(std::vector<float>(1001, 2.0F)) == 1001.0);
    CHECK(Softmax{3e38F, 1e45}.total(std::vector<float>{3e38F, -3e38F, 3e38F}) == 2.0);
}

TEST_CASE("entries at +inf share the weight, and so do entries at -inf where there is nothing else") {
    const std::vector<float> logits{k_infinity, 1.0F, k_infinity, -k_infinity};
    const Softmax infinite{k_infinity, 1.0};
    CHECK(infinite.weight(k_infinity) == 1.0);
    CHECK(infinite.weight(1.0F) == 0.0);
    CHECK(infinite.weight(-k_infinity) == 0.0);
    CHECK(infinite.total(logits) == 2.0);

    const Softmax nothing{-k_infinity, 1.0};
    CHECK(nothing.weight(-k_infinity) == 1.0);
    CHECK(nothing.total(std::vector<float>(5, -k_infinity)) == 5.0);
}

}  // namespace minim::sampling
