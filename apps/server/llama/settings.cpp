// SPDX-License-Identifier: Apache-2.0
#include "llama/settings.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace server {

namespace {

struct SamplerName {
    char letter;
    std::string_view name;
};

// Those of llama.cpp. Some do not exist here; the fields that would turn these on are refused (peer_fields.cpp).
constexpr std::array k_sampler_names = {
    SamplerName{'e', "penalties"},   SamplerName{'d', "dry"},    SamplerName{'s', "top_n_sigma"},
    SamplerName{'k', "top_k"},       SamplerName{'y', "typ_p"},  SamplerName{'y', "typical_p"},
    SamplerName{'p', "top_p"},       SamplerName{'m', "min_p"},  SamplerName{'x', "xtc"},
    SamplerName{'t', "temperature"}, SamplerName{'i', "infill"}, SamplerName{'a', "adaptive_p"},
};

std::vector<std::string> sampler_list(const Json& value, const Fields& request) {
    std::vector<std::string> names;
    if (value.is_string()) {
        for (const char letter : value.get_ref<const std::string&>()) {
            const auto known = std::ranges::find(k_sampler_names, letter, &SamplerName::letter);
            names.emplace_back(known == k_sampler_names.end() ? std::string(1, letter)
                                                              : std::string(known->name));
        }
        return names;
    }
    if (!value.is_array()) request.refuse("samplers", "must be a list of names, or a text of letters");
    for (const Json& name : value) {
        if (!name.is_string()) request.refuse("samplers", "must have names only");
        names.push_back(name);
    }
    return names;
}

}  // namespace

Json settings_json(const SamplingFields& fields) {
    const int64_t n_predict =
        fields.max_tokens.value_or(fields.usual_max_tokens > 0 ? fields.usual_max_tokens : -1);
    constexpr double k_usual_dry_base = 1.75;
    constexpr int64_t k_usual_dry_length = 2;
    Json samplers = Json::array({"penalties", "dry"});
    if (!fields.filters_first) samplers.push_back("temperature");
    for (const char* filter : {"top_k", "top_p", "min_p"}) samplers.push_back(filter);
    if (fields.filters_first) samplers.push_back("temperature");
    return {{"seed", fields.seed ? Json(static_cast<uint64_t>(*fields.seed)) : Json(-1)},
            {"temperature", fields.temperature},
            {"dynatemp_range", 0.0},
            {"dynatemp_exponent", 1.0},
            {"top_k", fields.top_k},
            {"top_p", fields.top_p},
            {"min_p", fields.min_p},
            {"top_n_sigma", -1.0},
            {"xtc_probability", 0.0},
            {"xtc_threshold", 0.1},
            {"typical_p", 1.0},
            {"repeat_last_n", fields.penalty_last_n},
            {"repeat_penalty", fields.repetition_penalty},
            {"presence_penalty", fields.presence_penalty},
            {"frequency_penalty", fields.frequency_penalty},
            {"dry_multiplier", fields.dry_multiplier},
            {"dry_base", fields.dry_base.value_or(k_usual_dry_base)},
            {"dry_allowed_length", fields.dry_allowed_length.value_or(k_usual_dry_length)},
            {"dry_penalty_last_n", fields.dry_penalty_last_n.value_or(-1)},
            {"mirostat", 0},
            {"mirostat_tau", 5.0},
            {"mirostat_eta", 0.1},
            {"max_tokens", n_predict},
            {"n_predict", n_predict},
            {"n_keep", 0},
            {"n_discard", 0},
            {"ignore_eos", fields.ignores_end},
            {"n_probs", fields.has_logprobs ? fields.n_top_logprobs : 0},
            {"min_keep", 0},
            {"samplers", std::move(samplers)},
            {"speculative.n_max", fields.draft_tokens},
            {"post_sampling_probs", false},
            {"lora", Json::array()}};
}

void read_samplers(const Fields& request, SamplingFields& fields) {
    fields.filters_first = true;
    const Json* value = request.find("samplers");
    if (value == nullptr || value->empty() || *value == "") return;
    const std::vector<std::string> names = sampler_list(*value, request);
    for (const std::string& name : names)
        if (std::ranges::find(k_sampler_names, name, &SamplerName::name) == k_sampler_names.end())
            request.refuse("samplers", fmt::format("has '{}', which is not known", name.substr(0, 60)));
    const auto place = [&](std::string_view name) { return std::ranges::find(names, name) - names.begin(); };
    const auto has = [&](std::string_view name) { return place(name) < std::ssize(names); };
    if (!has("penalties")) {
        fields.repetition_penalty = 1;
        fields.presence_penalty = fields.frequency_penalty = 0;
    }
    if (!has("dry")) fields.dry_multiplier = 0;
    if (!has("top_k")) fields.top_k = 0;
    if (!has("top_p")) fields.top_p = 1;
    if (!has("min_p")) fields.min_p = 0;
    if (!has("temperature")) fields.temperature = 1;
    int64_t n_before = 0;  // filters before temperature
    int64_t n_filters = 0;
    for (const char* filter : {"top_k", "top_p", "min_p"}) {
        if (!has(filter)) continue;
        ++n_filters;
        if (place(filter) < place("temperature")) ++n_before;
    }
    if (n_before != 0 && n_before != n_filters)
        request.refuse(
            "samplers",
            "has temperature between top_k, top_p and min_p: it must be before or after all of them");
    fields.filters_first = n_before == n_filters;
}

}  // namespace server
