// SPDX-License-Identifier: Apache-2.0
#include "engine/bad_logits.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/session.h"
#include "kv/sequence.h"
#include "model/roles.h"
#include "runtime/forward_pass.h"
#include "weights/finite.h"

namespace minim::engine {
namespace {

using model::Role;
using weights::WeightSpec;

// The text is evaluated in pieces, each as if it were the beginning, until one shows the fault or time is up.
constexpr int64_t k_piece_tokens = 128;
constexpr std::chrono::seconds k_max_time{20};

// The first layer whose output is not finite, and the experts that it chose for these rows; -1: none is.
struct Culprit {
    int64_t layer = -1;
    std::set<int32_t> experts;
};

Culprit first_bad_layer(const model::Model& model, std::span<const int32_t> tokens) {
    const int64_t n = std::ssize(tokens);
    const int64_t n_used = model.config().n_expert_used;
    kv::Sequence cache(make_pool(model, {}, {}), n);
    cache.hold(0, n);
    runtime::StepSpace space(model.forward(), n, n);
    std::vector<runtime::StepRow> rows;
    for (int64_t i = 0; i < n; ++i) rows.push_back({tokens[i], {&cache.view(), i}, i + 1 == n});
    std::vector<float> logits(model.config().n_vocab);
    Culprit culprit;
    const auto look = [&](int64_t layer, int64_t n_rows, const float* x, const int32_t* ids, const float*) {
        if (culprit.layer >= 0) return;
        const int64_t hidden = model.config().hidden;
        for (int64_t row = 0; row < n_rows; ++row) {
            if (!has_bad_logits({x + row * hidden, static_cast<size_t>(hidden)})) continue;
            culprit.layer = layer;
            culprit.experts.insert(ids + row * n_used, ids + (row + 1) * n_used);
        }
    };
    model.forward().step(rows, space, logits.data(), nullptr, look);
    return culprit;
}

// Returns where a weight that takes part is not finite; empty: no such weight was found.
std::string bad_weight_for(const model::Model& model, std::span<const int32_t> tokens) {
    const weights::Reader reader(model.checkpoint());
    const Culprit culprit = first_bad_layer(model, tokens);
    for (const WeightSpec& weight : model.weight_specs()) {
        std::string why;
        if (static_cast<Role>(weight.role) == Role::embedding) {
            for (size_t i = 0; i < tokens.size() && why.empty() && culprit.layer <= 0; ++i)
                why = weights::why_not_finite(reader, weight, tokens[i], 1);
        } else if (weight.layer == culprit.layer &&
                   (!weight.is_expert() || culprit.experts.contains(weight.expert))) {
            why = weights::why_not_finite(reader, weight);
        }
        if (!why.empty()) return why;
    }
    return {};
}

}  // namespace

bool has_bad_logits(std::span<const float> logits) noexcept {
    // Counts instead of searching: a loop without an exit runs in vector registers.
    int32_t n_bad = 0;
    for (const float logit : logits) n_bad += logit - logit != 0.0F ? 1 : 0;
    return n_bad > 0;
}

void fail_bad_logits(const model::Model& model, std::span<const int32_t> tokens) {
    const auto end = std::chrono::steady_clock::now() + k_max_time;
    std::string why;
    try {
        for (int64_t at = 0; at < std::ssize(tokens) && why.empty(); at += k_piece_tokens) {
            const auto n = std::min(k_piece_tokens, std::ssize(tokens) - at);
            why = bad_weight_for(model, tokens.subspan(at, n));
            if (std::chrono::steady_clock::now() > end) break;
        }
    } catch (const Error& error) {
        if (error.status() == Status::format) throw;  // reading has found it
    }
    if (!why.empty()) fail_file(Reason::value, "the model's weights are not finite: {}", why);
    fail_file(Reason::value,
              "the logits hold NaN or infinity: the model's weights are not finite, or too large; no such "
              "weight was found among those that the text uses");
}

}  // namespace minim::engine
