// SPDX-License-Identifier: Apache-2.0
// The stored models on several ranks of this process, each on a CPU backend of its own, against one rank: divided experts give its
// bits; divided heads give its logits up to rounding, and the same greedy text.
#include "placement/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "models.h"
#include "placement/backends.h"
#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

namespace {

using placement::ParallelRequest;

std::shared_ptr<const model::Model> model_on_ranks(const StoredModel& stored, const ParallelRequest& request,
                                                   int64_t n_ranks, std::string_view kind = "cpu",
                                                   model::OpenOptions options = {}) {
    static const Logger silent;
    placement::RankOptions ranks = {.request = request, .compares_choices = true, .log = &silent};
    for (int64_t r = 0; r < n_ranks; ++r)
        ranks.devices.push_back(
            placement::make_backend(kind, std::make_shared<ThreadPool>(1), active_cpu_level()));
    const model::Model::Place place = placement::place_on_ranks(ranks, options);
    return std::make_shared<const model::Model>(std::string(stored.folder) + "/" + stored.file, place,
                                                options, Logger());
}

std::vector<int32_t> ranks_ids() {
    std::vector<int32_t> ids = golden_prompts().back().ids;  // "long"
    ids.resize(std::min<size_t>(ids.size(), 70));
    return ids;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> logits_in_chunks(const std::shared_ptr<const model::Model>& model, Format kv,
                                    int64_t chunk) {
    engine::Session session = make_session(model, kv, chunk);
    return all_logits(session, ranks_ids());
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    float largest = 0.0F;
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::isnan(a[i]) || std::isnan(b[i])) return INFINITY;
        largest = std::max(largest, std::abs(a[i] - b[i]));
    }
    return largest;
}

// Returns KL(one || other) of the first row of logits, over n tokens.
double divergence(const float* one, const float* other, int64_t n) {
    const auto normaliser = [n](const float* row) {
        const double most = *std::max_element(row, row + n);
        double sum = 0.0;
        for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i]) - most);
        return most + std::log(sum);
    };
    const double a = normaliser(one);
    const double b = normaliser(other);
    double total = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        const double p = static_cast<double>(one[i]) - a;
        const double q = static_cast<double>(other[i]) - b;
        total += std::exp(p) * (p - q);
    }
    return total;
}

}  // namespace

TEST_CASE("ranks that divide the experts give the bits of one rank") {
    const StoredModel& stored = k_stored_models[GENERATE(range(size_t{0}, std::size(k_stored_models)))];
    INFO(stored.golden);
    for (const Format kv : {Format::f16, Format::q8_0}) {
        const std::vector<float> expected = logits_in_chunks(stored_model(stored, "cpu"), kv, 70);
        for (const int64_t n_ranks : {2, 3, 4}) {
            const auto model = model_on_ranks(stored, {.experts = n_ranks}, n_ranks);
            for (const int64_t chunk : {70, 7, 1}) {
                INFO(n_ranks << " ranks, chunks of " << chunk);
                CHECK(equal_bits(logits_in_chunks(model, kv, chunk), expected));
            }
        }
    }
}

TEST_CASE("ranks that divide heads and experts give the same bits in any chunks, near those of one rank") {
    const StoredModel& stored = k_stored_models[GENERATE(range(size_t{0}, std::size(k_stored_models)))];
    INFO(stored.golden);
    for (const Format kv : {Format::f16, Format::q8_0}) {
        const auto alone = stored_model(stored, "cpu");
        const std::vector<float> expected = logits_in_chunks(alone, kv, 70);
        const auto model = model_on_ranks(stored, {.tensor = 2}, 2);
        const std::vector<float> whole = logits_in_chunks(model, kv, 70);
        for (const int64_t chunk : {7, 1}) CHECK(equal_bits(logits_in_chunks(model, kv, chunk), whole));
        CHECK(equal_bits(logits_in_chunks(model_on_ranks(stored, {.tensor = 2}, 2), kv, 70), whole));
        const bool is_exact = stored.golden == std::string("bf16") || stored.golden == std::string("fp8");
        CHECK(largest_difference(whole, expected) < (is_exact ? 0.01F : 0.4F));
        const int64_t n_vocab = alone->config().n_vocab;
        for (size_t row = 0; row < ranks_ids().size(); ++row) {
            const size_t at = row * static_cast<size_t>(n_vocab);
            CHECK(divergence(&expected[at], &whole[at], n_vocab) < 3e-4);
        }
    }
}
