// SPDX-License-Identifier: Apache-2.0
// Tests the top-k of rows that a device reports, and the texts that are chosen from it.
#include "cuda/fast/top_k.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/generation.h"
#include "gpu/fixture.h"
#include "gpu/support.h"
#include "model/model.h"
#include "runtime/placement.h"
#include "runtime/top_k_space.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/last_logits.h"
#include "support/top_k.h"
#include "support/written.h"

namespace minim::test {
namespace {

using backend::Arithmetic;

constexpr float k_infinity = std::numeric_limits<float>::infinity();

// The top-k that the device reports for consecutive rows of logits in its memory.
class Tops {
  public:
    explicit Tops(int64_t n_vocab)
        : n_vocab_(n_vocab),
          f_(Arithmetic::fast),
          stream_(f_.device->reserve({.n_rows = 40,
                                      .n_context = 64,
                                      .hidden = 32,
                                      .n_head = 1,
                                      .n_head_kv = 1,
                                      .head_dim = 32,
                                      .n_vocab = n_vocab})),
          space_(*f_.device, backend::k_max_top_k_rows) {}

    void check(const std::vector<std::vector<float>>& rows, const std::vector<TopKQuery>& queries) {
        std::vector<float> all;
        for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
        const float* logits = f_.put(all);
        f_.device->synchronize(*f_.stream);
        space_.ask(queries);
        space_.upload(*stream_, 0);
        f_.device->top_k(*stream_, logits, std::ssize(rows), n_vocab_, space_.task(0));
        space_.download(*stream_, 0);
        f_.device->synchronize(*stream_);
        for (size_t i = 0; i < rows.size(); ++i) {
            INFO("row " << i << " of " << rows.size() << ", " << n_vocab_ << " logits, "
                        << queries[i].n_candidates << " candidates");
            if (queries[i].n_candidates > 0)
                check(rows[i], queries[i], space_.answer(static_cast<int64_t>(i)));
        }
    }

  private:
    void check(const std::vector<float>& row, const TopKQuery& query, const TopK& top) const {
        const HostTopK expected = make_top_k(row, query);
        CHECK(top.n_nan == expected.n_nan);
        CHECK(top.is_complete == expected.is_complete);
        REQUIRE(top.candidates.size() == expected.candidates.size());
        bool is_same = true;
        for (size_t i = 0; i < top.candidates.size(); ++i)
            is_same = is_same && top.candidates[i].token == expected.candidates[i].token &&
                      top.candidates[i].logit == expected.candidates[i].logit;
        CHECK(is_same);
        CHECK(std::ranges::equal(top.named, query.named));
        REQUIRE(top.named_logits.size() == expected.named_logits.size());
        if (!expected.named_logits.empty())
            CHECK(std::memcmp(top.named_logits.data(), expected.named_logits.data(),
                              top.named_logits.size_bytes()) == 0);
        if (top.n_nan > 0 || top.candidates.empty()) return;
        CHECK(std::abs(top.total - expected.total) <= top_k_error(n_vocab_) / 2 * expected.total);
        CHECK(top.exact_total == expected.exact_total);
    }

    int64_t n_vocab_;
    Fixture f_;
    std::unique_ptr<backend::Scratch> stream_;
    runtime::TopKSpace space_;
};

TopKQuery query_of(int32_t n_candidates, double inverse_temperature = 0.0, bool exact_total = false,
                   std::vector<int32_t> named = {}) {
    return {n_candidates, std::move(named), inverse_temperature, exact_total};
}

// Returns random logits; if `coarse`, rounded, so that many are equal.
std::vector<float> some_logits(int64_t n_vocab, Random& random, bool coarse) {
    std::vector<float> logits = random.normal(n_vocab, 3.0F);
    if (coarse)
        for (float& logit : logits) logit = std::round(logit);
    return logits;
}

std::shared_ptr<const model::Model> open_model() {
    const Logger silent;
    const auto whole = [](const model::Config& config, std::span<const weights::WeightSpec>) {
        return std::vector<runtime::Stage>{{cuda::make_cuda_backend(0, Arithmetic::fast), config.n_layer}};
    };
    return std::make_shared<const model::Model>(std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf",
                                                whole, model::OpenOptions{}, silent);
}

engine::Session make_session(const std::shared_ptr<const model::Model>& model) {
    engine::SessionParams params;
    params.n_context = 100;
    const Logger silent;
    return {model, params, silent};
}

Written from_top_k(const std::shared_ptr<const model::Model>& model, const engine::GenerateParams& params) {
    engine::Session session = make_session(model);
    engine::Generation generation(session, params, some_ids(6), nullptr);
    return rest_of(generation);
}

Written from_rows(const std::shared_ptr<const model::Model>& model, const engine::GenerateParams& params) {
    engine::Session session = make_session(model);
    engine::Answer answer(model->text(), params);
    session.eval(some_ids(6), false, {}, nullptr);
    answer.follow(session.tokens());
    Written written;
    while (!answer.has_ended()) {
        const auto token = answer.choose(last_logits_of(session));
        if (token) session.append(*token);
        while (const auto event = answer.take_event()) add(written, *event);
    }
    return written;
}

}  // namespace

TEST_CASE("gpu: the top-k of rows of every kind is that of the host") {
    if (!has_devices(1)) return;
    Random random(3);
    // Less than a list, a piece and a bit, some pieces of which the last is nearly empty.
    for (const int64_t n_vocab : {7, 300, 8200, 20481}) {
        Tops tops(n_vocab);
        const auto last = static_cast<int32_t>(n_vocab - 1);
        const auto size = static_cast<size_t>(n_vocab);
        std::vector<float> sparse(size, -k_infinity);
        sparse[3] = 1.0F;
        sparse[size - 1] = -2.0F;
        std::vector<float> bad = some_logits(n_vocab, random, false);
        bad[2] = bad[size - 1] = NAN;
        std::vector<float> infinite = some_logits(n_vocab, random, false);
        infinite[5] = k_infinity;
        std::vector<float> rising(size);
        for (size_t i = 0; i < size; ++i) rising[i] = static_cast<float>(i) * 0.01F;
        std::vector<float> zeros(size, 0.0F);
        zeros[1] = zeros[4] = -0.0F;
        tops.check({some_logits(n_vocab, random, false), some_logits(n_vocab, random, true), sparse,
                    std::vector<float>(size, -k_infinity), bad, infinite, rising, zeros,
                    some_logits(n_vocab, random, false), some_logits(n_vocab, random, true)},
                   {query_of(k_max_candidates, 1.0, true), query_of(40, 0.5, true, {last, 0, 2}),
                    query_of(3, 1.0, true), query_of(5, 1.0), query_of(2, 0.0), query_of(4, 0.0),
                    query_of(k_max_candidates, 1.25), query_of(6, 2.0, true, {1, 4}), query_of(0),
                    query_of(1, 0.0, false, {last})});
        tops.check({some_logits(n_vocab, random, true)}, {query_of(1)});
        tops.check({some_logits(n_vocab, random, false)}, {query_of(1, 3.0, true)});
    }
}

TEST_CASE("gpu: a row longer than a block joins at once") {
    if (!has_devices(1)) return;
    const int64_t n_vocab = int64_t{cuda::fast::k_top_k_piece} * 34 + 5;
    Random random(8);
    Tops tops(n_vocab);
    tops.check({some_logits(n_vocab, random, false)}, {query_of(200, 1.0, true, {17})});
}

TEST_CASE("gpu: texts from top-k are those from rows of logits") {
    if (!has_devices(1)) return;
    const auto model = open_model();
    for (const float temperature : {0.0F, 0.8F}) {
        for (const int32_t top_k : {0, 40}) {
            engine::GenerateParams params;
            params.sampling.temperature = temperature;
            params.sampling.top_k = top_k;
            params.sampling.top_p = 0.9F;
            params.sampling.seed = 6;
            params.sampling.logprobs = true;
            params.sampling.n_top_logprobs = 3;
            params.has_seed = true;
            params.ignore_end = true;
            params.max_tokens = 10;
            const Written written = from_top_k(model, params);
            CHECK(written.tokens.size() == 40);
            CHECK(written == from_rows(model, params));
        }
    }
}

}  // namespace minim::test
