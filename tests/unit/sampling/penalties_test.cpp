// SPDX-License-Identifier: Apache-2.0
#include "sampling/penalties.h"

#include <algorithm>
#include <deque>

#include "sampling/random.h"
#include "support/catch.h"

namespace minim::sampling {
namespace {

using Row = std::vector<float>;

Row applied(const Penalties& penalties, Row row) {
    penalties.apply(row);
    return row;
}

}  // namespace

TEST_CASE("token counts list each id in the window once") {
    TokenCounts counts;
    counts.resize(5);
    for (const int32_t token : {4, 1, 4, 2}) counts.add(token);
    CHECK(counts.ids().size() == 3);
    CHECK(counts.count(4) == 2);
    counts.remove(4);
    CHECK(counts.ids().size() == 3);
    counts.remove(4);
    CHECK(counts.ids().size() == 2);
    CHECK(counts.count(4) == 0);
    counts.remove(2);
    REQUIRE(counts.ids().size() == 1);
    CHECK(counts.ids()[0] == 1);
    counts.remove(1);
    CHECK(counts.ids().empty());
    CHECK(counts.count(1) == 0);
}

TEST_CASE("the repetition penalty divides positive and multiplies other logits of seen ids, once") {
    Params params;
    params.repetition_penalty = 1.25F;
    Penalties penalties(params, 5);
    penalties.accept(0, false);
    penalties.accept(1, false);
    penalties.accept(1, true);
    penalties.accept(2, true);
    CHECK(applied(penalties, {2.5F, -2.0F, 0.0F, 3.0F, -3.0F}) == Row{2.0F, -2.5F, 0.0F, 3.0F, -3.0F});
    CHECK(applied(Penalties(params, 5), {2.5F, -2.0F, 0.0F, 3.0F, -3.0F}) ==
          Row{2.5F, -2.0F, 0.0F, 3.0F, -3.0F});
}

TEST_CASE("presence and frequency penalties look at generated tokens only") {
    Params params;
    params.presence_penalty = 0.5F;
    params.frequency_penalty = 0.25F;
    Penalties penalties(params, 4);
    penalties.accept(0, false);
    penalties.accept(1, true);
    for (int i = 0; i < 3; ++i) penalties.accept(2, true);
    CHECK(applied(penalties, {1.0F, 1.0F, 1.0F, 1.0F}) == Row{1.0F, 0.25F, -0.25F, 1.0F});
    CHECK(applied(penalties, {-1.0F, -1.0F, -1.0F, -1.0F}) == Row{-1.0F, -1.75F, -2.25F, -1.0F});
}

TEST_CASE("repetition acts before frequency and presence") {
    Params params;
    params.repetition_penalty = 2.0F;
    params.presence_penalty = 1.0F;
    params.frequency_penalty = 0.5F;
    Penalties penalties(params, 2);
    penalties.accept(0, true);
    penalties.accept(0, true);
    CHECK(applied(penalties, {8.0F, 8.0F}) == Row{2.0F, 8.0F});
    CHECK(applied(penalties, {-8.0F, 8.0F}) == Row{-18.0F, 8.0F});
}

TEST_CASE("negative penalties raise the logits of seen ids") {
    Params params;
    params.repetition_penalty = 0.5F;
    params.presence_penalty = -1.0F;
    Penalties penalties(params, 2);
    penalties.accept(1, true);
    CHECK(applied(penalties, {1.0F, 1.0F}) == Row{1.0F, 3.0F});
}

TEST_CASE("ids from penalty_exempt_from on are never penalised") {
    Params params;
    params.repetition_penalty = 2.0F;
    params.presence_penalty = 1.0F;
    params.penalty_exempt_from = 2;
    Penalties penalties(params, 4);
    for (const int32_t token : {0, 1, 2, 3}) penalties.accept(token, true);
    CHECK(applied(penalties, {4.0F, 4.0F, 4.0F, 4.0F}) == Row{1.0F, 1.0F, 4.0F, 4.0F});
}

TEST_CASE("a window of 0 turns the repetition penalty off and leaves the others on") {
    Params params;
    params.repetition_penalty = 2.0F;
    params.penalty_last_n = 0;
    params.presence_penalty = 1.0F;
    Penalties penalties(params, 2);
    penalties.accept(0, true);
    CHECK(applied(penalties, {4.0F, 4.0F}) == Row{3.0F, 4.0F});
}

TEST_CASE("the largest window costs only what the sequence holds") {
    Params params;
    params.repetition_penalty = 2.0F;
    params.penalty_last_n = std::numeric_limits<int32_t>::max();
    Penalties penalties(params, 2);
    for (int i = 0; i < 100; ++i) penalties.accept(0, true);
    CHECK(applied(penalties, {4.0F, 4.0F}) == Row{2.0F, 4.0F});
}

TEST_CASE("the repetition penalty follows its window through a random sequence") {
    constexpr int32_t k_vocab = 20;
    for (const int32_t last_n : {1, 2, 7, 64}) {
        Params params;
        params.repetition_penalty = 2.0F;
        params.penalty_last_n = last_n;
        Penalties penalties(params, k_vocab);
        std::deque<int32_t> window;
        Random random(static_cast<uint64_t>(last_n));
        for (int i = 0; i < 300; ++i) {
            const auto token = static_cast<int32_t>(random.next() % k_vocab);
            penalties.accept(token, i % 3 == 0);
            window.push_back(token);
            if (std::ssize(window) > last_n) window.pop_front();
            Row expected(k_vocab, 4.0F);
            for (const int32_t seen : window) expected[static_cast<size_t>(seen)] = 2.0F;
            REQUIRE(applied(penalties, Row(k_vocab, 4.0F)) == expected);
        }
    }
}

}  // namespace minim::sampling
