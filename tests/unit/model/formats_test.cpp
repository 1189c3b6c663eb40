// SPDX-License-Identifier: Apache-2.0
// Whole models of odd shapes in the formats that any row length of 32 allows.
#include <algorithm>
#include <string>
#include <vector>

#include "plain_forward.h"
#include "support.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr const char* k_matrices[] = {"attn_q",        "attn_k",      "attn_v",       "attn_output",
                                      "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};

TinyModel stored_in(Format format) {
    TinyShape shape;
    shape.n_layer = 2;
    TinyModel tiny(shape, 5);
    tiny.store_as("token_embd.weight", format);
    tiny.store_as("output.weight", format);
    for (int64_t layer = 0; layer < shape.n_layer; ++layer) {
        for (const char* matrix : k_matrices) {
            tiny.store_as("blk." + std::to_string(layer) + "." + matrix + ".weight", format);
        }
    }
    return tiny;
}

// Returns the median of the positions' errors. With rounded inputs a near tie of two experts may be decided the other way, but
// only at a few positions.
double median_error(const std::vector<float>& actual, const std::vector<double>& expected, size_t n_vocab) {
    std::vector<double> errors;
    for (size_t at = 0; at < expected.size(); at += n_vocab) {
        const auto i = static_cast<ptrdiff_t>(at);
        const auto n = static_cast<ptrdiff_t>(n_vocab);
        errors.push_back(relative_rms(std::vector<float>(actual.begin() + i, actual.begin() + i + n),
                                      std::vector<double>(expected.begin() + i, expected.begin() + i + n)));
    }
    std::ranges::sort(errors);
    return errors[errors.size() / 2];
}

}  // namespace

TEST_CASE("a model in F16, BF16 or Q8_0 gives the logits of its decoded weights") {
    const Format format = GENERATE(Format::f16, Format::bf16, Format::q8_0);
    INFO(traits(format).name);
    TinyModel tiny = stored_in(format);
    const auto ids = tiny.random_ids(40);
    const auto expected = plain_logits(tiny, ids);
    const TemporaryFolder folder;
    CHECK(relative_rms(logits_of(*open_model(tiny, folder), ids), expected) < 1e-5);
    const auto actual = logits_of(*open_model(tiny, folder, "cpu"), ids);
    CHECK(median_error(actual, expected, static_cast<size_t>(tiny.shape.n_vocab)) < 4e-2);
}

TEST_CASE("a KV cache in F16 changes the logits little") {
    TinyModel tiny = stored_in(Format::f32);
    const auto ids = tiny.random_ids(40);
    const auto expected = plain_logits(tiny, ids);
    const TemporaryFolder folder;
    for (const char* backend : {"reference", "cpu"}) {
        const auto actual = logits_of(*open_model(tiny, folder, backend), ids, Format::f16);
        const double error = median_error(actual, expected, static_cast<size_t>(tiny.shape.n_vocab));
        INFO(backend << ": " << error);
        CHECK(error < 2e-3);
        CHECK(error > 0.0);
    }
}
