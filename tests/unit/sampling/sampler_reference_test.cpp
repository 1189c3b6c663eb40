// SPDX-License-Identifier: Apache-2.0
// Compares the sampler with its definition, written as plainly as possible: sort everything, filter, draw.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/sampler.h"
#include "support/catch.h"

namespace minim::sampling {
namespace {

struct Entry {
    int32_t token;
    long double logit;
    long double probability;
};

void normalise(std::vector<Entry>& entries, long double temperature) {
    long double sum = 0.0L;
    for (Entry& entry : entries) {
        entry.probability = std::exp((entry.logit - entries[0].logit) / temperature);
        sum += entry.probability;
    }
    for (Entry& entry : entries) entry.probability /= sum;
}

// Returns the final distribution, highest first.
std::vector<Entry> reference_distribution(const std::vector<float>& logits, const Params& params) {
    std::vector<Entry> entries;
    for (size_t id = 0; id < logits.size(); ++id) {
        if (std::isfinite(logits[id])) entries.push_back({static_cast<int32_t>(id), logits[id], 0.0L});
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.logit > b.logit; });

    const bool tempered = params.order == Order::temperature_first;
    const long double temperature = tempered ? params.temperature : 1.0L;
    if (params.top_k > 0 && params.top_k < std::ssize(entries))
        entries.resize(static_cast<size_t>(params.top_k));
    normalise(entries, temperature);
    if (params.top_p < 1.0F) {
        size_t n = 0;
        long double sum = 0.0L;
        while (n < entries.size() && (n == 0 || sum < params.top_p)) sum += entries[n++].probability;
        entries.resize(n);
    }
    const long double lowest = entries[0].probability * params.min_p;
    while (entries.back().probability < lowest) entries.pop_back();
    normalise(entries, params.temperature);
    return entries;
}

// Returns the token at which the cumulative distribution passes u. Sets `margin` to the distance of u from the
// nearest boundary between two tokens.
int32_t invert(const std::vector<Entry>& entries, double u, long double& margin) {
    margin = 1.0L;
    int32_t token = -1;
    long double sum = 0.0L;
    for (const Entry& entry : entries) {
        sum += entry.probability;
        margin = std::min(margin, std::abs(sum - u));
        if (token < 0 && sum > u) token = entry.token;
    }
    return token >= 0 ? token : entries.back().token;
}

std::vector<float> random_logits(Random& random, size_t n) {
    const double spread = random.uniform() * 15.0;
    const bool coarse = random.uniform() < 0.3;  // many ties
    std::vector<float> logits(n);
    for (float& logit : logits) {
        const double value = (random.uniform() + random.uniform() - 1.0) * spread;
        logit = static_cast<float>(coarse ? std::round(value) : value);
        if (random.uniform() < 0.02) logit = -std::numeric_limits<float>::infinity();
    }
    logits[n / 2] = 0.5F;
    return logits;
}

Params random_params(Random& random) {
    Params params;
    params.temperature = static_cast<float>(0.2 + 1.8 * random.uniform());
    if (random.uniform() < 0.5) params.top_k = static_cast<int32_t>(random.next() % 300);
    if (random.uniform() < 0.5) params.top_p = static_cast<float>(random.uniform());
    if (random.uniform() < 0.3) params.min_p = static_cast<float>(random.uniform() * 0.3);
    if (random.uniform() < 0.5) params.order = Order::filters_first;
    params.seed = random.next();
    return params;
}

// Returns the chi-square of the draws. Checks that no token outside the distribution was drawn.
double chi_square(Sampler& sampler, const std::vector<float>& logits, const std::vector<Entry>& expected,
                  int n_draws) {
    std::vector<int> counts(logits.size(), 0);
    for (int i = 0; i < n_draws; ++i) ++counts[static_cast<size_t>(sampler.sample(logits).token)];
    double sum = 0.0;
    int n_expected = 0;
    for (const Entry& entry : expected) {
        const int count = counts[static_cast<size_t>(entry.token)];
        const auto mean = static_cast<double>(entry.probability) * n_draws;
        sum += (count - mean) * (count - mean) / mean;
        n_expected += count;
    }
    REQUIRE(n_expected == n_draws);
    return sum;
}

}  // namespace

TEST_CASE("every draw equals the plain reference on random rows and parameters") {
    Random random(99);
    int n_compared = 0;
    for (int i = 0; i < 400; ++i) {
        const auto n = static_cast<size_t>(1 + random.next() % (i % 10 == 0 ? 5000 : 400));
        const std::vector<float> logits = random_logits(random, n);
        const Params params = random_params(random);
        const std::vector<Entry> expected = reference_distribution(logits, params);
        Sampler sampler(params, static_cast<int32_t>(n));
        Random numbers(params.seed);
        for (int draw = 0; draw < 20; ++draw) {
            long double margin = 0.0L;
            const int32_t token = invert(expected, numbers.uniform(), margin);
            const int32_t found = sampler.sample(logits).token;
            if (margin < 1e-12L) continue;
            INFO("row " << i << " draw " << draw);
            REQUIRE(found == token);
            ++n_compared;
        }
    }
    CHECK(n_compared > 7900);
}

TEST_CASE("draws follow the expected probabilities") {
    std::vector<float> logits;
    for (int i = 0; i < 12; ++i) logits.push_back(static_cast<float>((i * 5) % 12) * 0.3F);
    const auto check = [&](const Params& params, double limit) {
        Sampler sampler(params, 12);
        CHECK(chi_square(sampler, logits, reference_distribution(logits, params), 40000) < limit);
    };
    // The limits are chi-squares that chance exceeds once in 10 000 runs. The degrees of freedom are the remaining
    // entries minus one.
    Params params;
    params.seed = 1;
    check(params, 37.4);  // 11 degrees of freedom
    params.temperature = 0.6F;
    check(params, 37.4);
    params.top_k = 6;
    check(params, 25.7);  // 5
    params.order = Order::filters_first;
    params.top_p = 0.8F;
    check(params, 25.7);  // at most 5
    params = Params{};
    params.seed = 2;
    params.temperature = 1.7F;
    params.min_p = 0.3F;
    check(params, 37.4);  // at most 11
}

}  // namespace minim::sampling
