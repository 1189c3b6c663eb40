// SPDX-License-Identifier: Apache-2.0
#include "sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "sampling/random.h"
#include "support/catch.h"

namespace minim::sampling {
namespace {

using Tokens = std::vector<int32_t>;
using Amounts = std::map<int32_t, float>;

std::shared_ptr<const DryBreaker> breaker(std::vector<DryBreaker::Entry> entries) {
    return std::make_shared<const DryBreaker>(DryBreaker{std::move(entries)});
}

Params with(float multiplier, float base, int32_t allowed_length) {
    Params params;
    params.dry_multiplier = multiplier;
    params.dry_base = base;
    params.dry_allowed_length = allowed_length;
    return params;
}

Amounts amounts(const Params& params, const Tokens& tokens) {
    Dry dry(params);
    for (const int32_t token : tokens) dry.accept(token);
    Amounts found;
    for (const Dry::Penalty& penalty : dry.penalties()) found[penalty.token] = penalty.amount;
    return found;
}

// Computes the amounts by the definition: for each earlier position, how much of the text before it equals the end of the text.
Amounts by_definition(const Params& params, const Tokens& all) {
    const size_t n =
        params.dry_last_n < 0 ? all.size() : std::min(all.size(), static_cast<size_t>(params.dry_last_n));
    const Tokens tokens(all.end() - static_cast<std::ptrdiff_t>(n), all.end());
    size_t limit = n;
    for (size_t i = 0; i < n && limit == n; ++i)
        for (const auto& each : params.dry_breakers)
            if (!each->of(tokens[n - 1 - i]).empty()) limit = std::min(limit, i);
    std::map<int32_t, size_t> lengths;
    const auto allowed = static_cast<size_t>(params.dry_allowed_length);
    if (n <= allowed || limit < allowed) return {};
    for (size_t next = 1; next < n; ++next) {
        size_t length = 0;
        while (length < next && length < limit && tokens[next - 1 - length] == tokens[n - 1 - length])
            ++length;
        if (length >= allowed) lengths[tokens[next]] = std::max(lengths[tokens[next]], length);
    }
    Amounts found;
    for (const auto& [token, length] : lengths) {
        const bool is_breaker = std::ranges::any_of(
            params.dry_breakers, [&, id = token](const auto& each) { return !each->of(id).empty(); });
        if (is_breaker) continue;
        const double power = std::pow(double{params.dry_base}, static_cast<double>(length - allowed));
        found[token] = static_cast<float>(params.dry_multiplier * power);
    }
    return found;
}

}  // namespace

TEST_CASE("DRY lowers what would go on with a repetition, the more the longer it is") {
    // a b c c b c y a b c: after "a b c" came c, after "c" came b, after "b c" came y.
    const Tokens tokens = {1, 2, 3, 3, 2, 3, 9, 1, 2, 3};
    CHECK(amounts(with(1.0F, 2.0F, 1), tokens) == Amounts{{2, 1.0F}, {3, 4.0F}, {9, 2.0F}});
    CHECK(amounts(with(0.5F, 3.0F, 2), tokens) == Amounts{{3, 1.5F}, {9, 0.5F}});
    CHECK(amounts(with(1.0F, 2.0F, 4), tokens).empty());
    CHECK(amounts(with(0.0F, 2.0F, 1), tokens).empty());
}

TEST_CASE("DRY looks back on its window alone") {
    Params params = with(1.0F, 2.0F, 2);
    const Tokens tokens = {1, 2, 3, 4, 5, 1, 2};
    CHECK(amounts(params, tokens) == Amounts{{3, 1.0F}});
    params.dry_last_n = 6;
    CHECK(amounts(params, tokens).empty());
    params.dry_last_n = 7;
    CHECK(amounts(params, tokens) == Amounts{{3, 1.0F}});
    params.dry_last_n = 0;
    CHECK(amounts(params, tokens).empty());
}

TEST_CASE("breakers end repetitions and are never lowered") {
    Params params = with(1.0F, 2.0F, 2);
    const Tokens tokens = {1, 2, 7, 3, 4, 9, 1, 2, 7, 3, 4};
    CHECK(amounts(params, tokens) == Amounts{{9, 8.0F}});
    params.dry_breakers = {breaker({{7, {}}})};
    CHECK(amounts(params, tokens) == Amounts{{9, 1.0F}});  // "3 4" alone counts
    params.dry_breakers = {breaker({{9, {}}})};
    CHECK(amounts(params, tokens).empty());
    // A breaker of two tokens ends a repetition only where both tokens follow each other.
    params.dry_breakers = {breaker({{7, {3}}})};
    CHECK(amounts(params, tokens).empty());  // only "4" is left, which is too short
    params.dry_breakers = {breaker({{7, {4}}})};
    CHECK(amounts(params, tokens) == Amounts{{9, 8.0F}});
}

TEST_CASE("DRY spares markup, and powers stay finite") {
    Params params = with(2.0F, 10.0F, 1);
    params.penalty_exempt_from = 5;
    CHECK(amounts(params, {1, 5, 1, 5, 1}).empty());
    const Tokens same(300, 1);
    const Amounts found = amounts(params, same);
    REQUIRE(found.size() == 1);
    CHECK(std::isfinite(found.at(1)));
    CHECK(found.at(1) > 1e38F);
}

TEST_CASE("DRY agrees with its definition on random texts") {
    Random random(3);
    for (int round = 0; round < 400; ++round) {
        Params params = with(0.8F, 1.75F, static_cast<int32_t>(random.next() % 4));
        const auto n_kinds = 1 + random.next() % 5;
        if (random.next() % 3 == 0) params.dry_last_n = static_cast<int32_t>(random.next() % 60);
        if (random.next() % 3 == 0)
            params.dry_breakers = {breaker({{static_cast<int32_t>(random.next() % 6), {}}})};
        Tokens tokens;
        for (uint64_t i = random.next() % 90; i > 0; --i)
            tokens.push_back(static_cast<int32_t>(random.next() % n_kinds));
        CHECK(amounts(params, tokens) == by_definition(params, tokens));
    }
}

}  // namespace minim::sampling
