// SPDX-License-Identifier: Apache-2.0
#include "sampling.h"

#include <algorithm>

namespace cli {
namespace {

constexpr int32_t k_penalty_last_n = 64;  // the window of --repeat-penalty in llama.cpp

// Returns options for a constraint that begins after the reasoning: the chat template opens a block of reasoning, which may be
// any text.
minim::ConstraintOptions after_reasoning(const Options& options) {
    minim::ConstraintOptions constraint;
    if (!options.raw) constraint.starts_after = "</think>";
    return constraint;
}

template <typename Value>
void set_given(minim::Sampling& sampling, const char* name, const std::optional<Value>& value) {
    if (value) sampling.set(name, *value);
}

void set_dry(minim::Sampling& sampling, const Options& options) {
    set_given(sampling, "dry_multiplier", options.dry_multiplier);
    set_given(sampling, "dry_base", options.dry_base);
    set_given(sampling, "dry_allowed_length", options.dry_allowed_length);
    set_given(sampling, "dry_penalty_last_n", options.dry_penalty_last_n);
    if (options.dry_breakers.empty()) return;
    std::vector<std::string> breakers;
    for (const std::string& text : options.dry_breakers) {
        if (text == "none") {
            breakers.clear();
        } else {
            breakers.push_back(text);
        }
    }
    sampling.set_dry_breakers(breakers);
}

}  // namespace

minim::Sampling make_sampling(const minim::Model& model, const Options& options) {
    minim::Sampling sampling;
    sampling.set_recommended(model);
    if (!options.json_schema.empty()) {
        sampling.set_constraint(
            minim::Constraint::from_schema(model, options.json_schema, after_reasoning(options)));
    }
    set_given(sampling, "temperature", options.temperature);
    set_given(sampling, "top_p", options.top_p);
    set_given(sampling, "top_k", options.top_k);
    set_given(sampling, "min_p", options.min_p);
    if (options.repeat_penalty)
        sampling.set("repetition_penalty", *options.repeat_penalty).set("penalty_last_n", k_penalty_last_n);
    set_dry(sampling, options);
    sampling.set("max_tokens", std::max<int64_t>(options.n_predict, 0));
    if (options.reasoning_budget > 0) sampling.set("max_reasoning_tokens", options.reasoning_budget);
    if (options.seed != -1) sampling.set("seed", options.seed);
    return sampling;
}

}  // namespace cli
