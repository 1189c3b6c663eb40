// SPDX-License-Identifier: Apache-2.0
#include "sampling.h"

#include <algorithm>

namespace cli {
namespace {

constexpr int32_t k_penalty_last_n = 64;  // the window of --repeat-penalty in llama.cpp

// Returns options for a constraint. Reasoning may be any text: the constraint begins after it.
minim::ConstraintOptions after_reasoning(const minim::Model& model, Beginning beginning) {
    minim::ConstraintOptions constraint;
    if (beginning == Beginning::reasoning) constraint.starts_after = model.chat_markup().think_end;
    constraint.may_reason = beginning == Beginning::as_model_decides;
    return constraint;
}

template <typename Value>
void set_given(minim::Sampling& sampling, const char* name, const std::optional<Value>& value) {
    if (value) sampling.set(name, *value);
}

void set_dry(minim::Sampling& sampling, const program::SamplingDefaults& options) {
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

minim::Sampling make_sampling(const minim::Model& model, const Options& options, Beginning beginning) {
    const program::SamplingDefaults& given = options.sampling;
    minim::Sampling sampling;
    sampling.set_recommended(model);
    if (!options.json_schema.empty()) {
        sampling.set_constraint(
            minim::Constraint::from_schema(model, options.json_schema, after_reasoning(model, beginning)));
    }
    if (!options.grammar.empty())
        sampling.set_constraint(
            minim::Constraint::from_grammar(model, options.grammar, after_reasoning(model, beginning)));
    set_given(sampling, "temperature", given.temperature);
    set_given(sampling, "top_p", given.top_p);
    set_given(sampling, "top_k", given.top_k);
    set_given(sampling, "min_p", given.min_p);
    if (given.repetition_penalty)
        sampling.set("repetition_penalty", *given.repetition_penalty).set("penalty_last_n", k_penalty_last_n);
    set_given(sampling, "penalty_last_n", given.repeat_last_n);
    set_given(sampling, "presence_penalty", given.presence_penalty);
    set_given(sampling, "frequency_penalty", given.frequency_penalty);
    set_dry(sampling, given);
    if (given.ignores_end) sampling.set("ignore_end", 1);
    if (given.draft_tokens > 0) sampling.set("draft_tokens", given.draft_tokens);
    sampling.set("max_tokens", std::max<int64_t>(options.n_predict, 0));
    if (options.reasoning_budget > 0) sampling.set("max_reasoning_tokens", options.reasoning_budget);
    if (given.seed) sampling.set("seed", static_cast<int64_t>(*given.seed));  // the same 64 bits
    return sampling;
}

}  // namespace cli
