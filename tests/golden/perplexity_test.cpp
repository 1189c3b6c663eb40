// SPDX-License-Identifier: Apache-2.0
// Perplexity on the stored text: chunks of 256 tokens that do not overlap, every position after a chunk's
// first counts, no BOS, a last incomplete chunk is left out.
#include <cmath>
#include <limits>

#include "models.h"
#include "support/catch.h"
#include "support/files.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr size_t k_chunk = 256;

double negative_log_likelihood(const float* logits, size_t n_vocab, int32_t token) {
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < n_vocab; ++i) largest = std::max(largest, static_cast<double>(logits[i]));
    double sum = 0.0;
    for (size_t i = 0; i < n_vocab; ++i) sum += std::exp(static_cast<double>(logits[i]) - largest);
    return largest + std::log(sum) - static_cast<double>(logits[token]);
}

double perplexity(const std::shared_ptr<const model::Model>& model, const std::string& text,
                  Format kv = Format::f16) {
    const std::vector<int32_t> ids = model->text().tokenizer().encode(text, tokenizer::Specials::exact);
    const auto n_vocab = static_cast<size_t>(model->config().n_vocab);
    double total = 0.0;
    size_t count = 0;
    for (size_t at = 0; at + k_chunk <= ids.size(); at += k_chunk) {
        const std::vector<int32_t> chunk(ids.begin() + static_cast<ptrdiff_t>(at),
                                         ids.begin() + static_cast<ptrdiff_t>(at + k_chunk));
        engine::Session session = make_session(model, kv);
        const std::vector<float> logits = all_logits(session, chunk);
        for (size_t i = 0; i + 1 < k_chunk; ++i) {
            total += negative_log_likelihood(logits.data() + i * n_vocab, n_vocab, chunk[i + 1]);
            ++count;
        }
    }
    return std::exp(total / static_cast<double>(count));
}

}  // namespace

TEST_CASE("perplexity is within half a percent of the golden one for every stored format") {
    const size_t index = GENERATE(range(size_t{0}, std::size(k_stored_models)));
    const StoredModel& stored = k_stored_models[index];
    const double actual = perplexity(stored_model(stored, "cpu"), text_of(golden_path("perplexity.txt")));
    const double expected = golden_perplexity(stored.golden);
    WARN(stored.golden << ": " << actual << ", golden " << expected);
    CHECK(std::abs(actual / expected - 1.0) < 0.005);
}

TEST_CASE("a quantised KV cache changes the perplexity by less than 0.2 % (Q8_0) and 1 % (Q4_0)") {
    const size_t index = GENERATE(size_t{0}, size_t{1});
    const StoredModel& stored = k_stored_models[index];
    const auto model = stored_model(stored, "cpu");
    const std::string text = text_of(golden_path("perplexity.txt"));
    const double f16 = perplexity(model, text);
    const double q8_0 = perplexity(model, text, Format::q8_0);
    const double q4_0 = perplexity(model, text, Format::q4_0);
    WARN(stored.golden << ": F16 " << f16 << ", Q8_0 " << q8_0 << ", Q4_0 " << q4_0);
    CHECK(std::abs(q8_0 / f16 - 1.0) < 0.002);
    CHECK(std::abs(q4_0 / f16 - 1.0) < 0.01);
}
