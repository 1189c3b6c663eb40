// SPDX-License-Identifier: Apache-2.0
// The fields of a request that say how tokens are chosen and when an answer ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fields.h"
#include "serving.h"

namespace server {

// A request's sampling fields, checked, with the server's defaults for those that are missing.
struct SamplingFields {
    double temperature = 1;
    double top_p = 1;
    int64_t top_k = 0;
    double min_p = 0;
    double repetition_penalty = 1;
    int64_t penalty_last_n = -1;
    double presence_penalty = 0;
    double frequency_penalty = 0;
    double dry_multiplier = 0;
    std::optional<double> dry_base;
    std::optional<int64_t> dry_allowed_length;
    std::optional<int64_t> dry_penalty_last_n;
    std::optional<std::vector<std::string>> dry_breakers;
    int64_t loop_tokens = 0;
    std::optional<int64_t> seed;
    std::optional<int64_t> max_tokens;  // none: up to the context
    int64_t min_tokens = 0;
    bool ignores_end = false;
    bool shows_end = false;  // skip_special_tokens: false
    bool shows_stop =
        false;  // include_stop_str_in_output: the stop text or token that ends the answer is a part of it
    std::vector<std::string> stops;
    std::vector<int32_t> stop_ids;
    std::vector<std::pair<int32_t, float>> logit_bias;
    bool has_logprobs = false;
    int64_t n_top_logprobs = 0;
    // Likeliest tokens beside each token of the prompt; -1: no log-probabilities of the prompt.
    int64_t n_prompt_logprobs = -1;
    bool filters_first = false;  // temperature comes after top_k, top_p and min_p
    int64_t n_choices = 1;
    int32_t priority = 0;  // higher ones start first
    int64_t draft_tokens = 0;
    int64_t usual_max_tokens = 0;  // if max_tokens is not there; 0: up to the context
};

inline constexpr int64_t k_max_choices = 32;
inline constexpr int64_t k_max_top_logprobs = 20;
inline constexpr size_t k_max_stops = 16;

// Reads the fields that all routes share: temperature, top_p, top_k, min_p, penalties, dry_*, loop_tokens, seed, logit_bias,
// bad_words, allowed_token_ids, n, best_of, min_tokens, ignore_eos, skip_special_tokens, stop_token_ids,
// include_stop_str_in_output, priority, speculative.n_max, and stop texts in the field `stop`.
SamplingFields read_sampling(const Fields& request, const ServedModel& serving, const char* stop);

// Reads the most tokens of an answer from the first of these fields that is there; none: no limit. llama.cpp's n_predict may
// be -1 or -2: no limit.
std::optional<int64_t> read_max_tokens(const Fields& request, std::initializer_list<const char*> names);

// Returns the token ids of a list in the field `name`. `not_an_id`: the message for another kind of value, with {} for the kind.
inline constexpr const char* k_ids_only = "must have token ids only, not {}";
std::vector<int32_t> read_ids(const Json& list, const Fields& request, const char* name,
                              const char* not_an_id, const ServedModel& serving);

// Reads a text or a list of texts.
std::vector<std::string> read_stops(const Fields& request, const char* name);

// Makes the sampling of choice `index`: each choice has a seed of its own. `constraint` may be null. `reasoning_budget`: tokens
// of thought; 0: no limit.
minim::Sampling make_sampling(const SamplingFields& fields, const minim::Constraint* constraint,
                              int64_t reasoning_budget, int64_t index);

}  // namespace server
