// SPDX-License-Identifier: Apache-2.0
#include "sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "error.h"

namespace server {

namespace {

constexpr double k_hottest = 100;
constexpr int64_t k_max_draft_tokens = 64;
constexpr double k_largest_penalty = 1000;
constexpr float k_never = -std::numeric_limits<float>::infinity();

// Reads the repetition penalty. vLLM's penalty covers all earlier tokens, llama.cpp's only a window of them.
void read_repetition(const Fields& request, const SamplingDefaults& defaults, SamplingFields& fields) {
    const auto whole = request.number("repetition_penalty", 0.001, k_largest_penalty);
    const auto window = request.number("repeat_penalty", 0.001, k_largest_penalty);
    const auto last_n = request.integer("repeat_last_n", -1, int64_t{1} << 31);
    if (whole.value_or(1) != 1 && window.value_or(1) != 1)
        request.refuse("repeat_penalty", "and repetition_penalty are both given; choose one of them");
    if (whole && (*whole != 1 || !window)) {
        fields.repetition_penalty = *whole;
    } else if (window) {
        constexpr int64_t k_usual_window = 64;
        fields.repetition_penalty = *window;
        fields.penalty_last_n = last_n.value_or(k_usual_window);
    } else {
        fields.repetition_penalty = *defaults.repetition_penalty;
        fields.penalty_last_n = last_n.value_or(defaults.penalty_last_n);
    }
}

// Reads the DRY fields, with llama.cpp's names and meanings.
void read_dry(const Fields& request, SamplingFields& fields) {
    fields.dry_multiplier = request.number("dry_multiplier", 0, k_largest_penalty).value_or(0);
    fields.dry_base = request.number("dry_base", 0, k_largest_penalty);
    if (fields.dry_base && *fields.dry_base < 1) fields.dry_base.reset();
    fields.dry_allowed_length = request.integer("dry_allowed_length", 0, int64_t{1} << 30);
    fields.dry_penalty_last_n = request.integer("dry_penalty_last_n", -1, int64_t{1} << 30);
    const Json* breakers = request.array("dry_sequence_breakers");
    if (breakers == nullptr) return;
    constexpr size_t k_max_breakers = 64;
    if (breakers->size() > k_max_breakers)
        request.refuse("dry_sequence_breakers", fmt::format("has {} texts; at most {} are possible",
                                                            breakers->size(), k_max_breakers));
    fields.dry_breakers.emplace();
    for (const Json& text : *breakers) {
        if (!text.is_string() || text.get_ref<const std::string&>().empty())
            request.refuse("dry_sequence_breakers", "must have strings only, and none that is empty");
        fields.dry_breakers->push_back(text);
    }
}

int32_t checked_id(int64_t id, const Fields& request, const ServedModel& serving) {
    if (id < 0 || id >= serving.info.n_vocab)
        request.refuse("logit_bias", fmt::format("has token id {}; the vocabulary has ids from 0 to {}", id,
                                                 serving.info.n_vocab - 1));
    return static_cast<int32_t>(id);
}

// Returns a bias; false forbids a token, as llama.cpp has it. `key`: what it is for, in messages.
float bias_of(const Json& value, const std::string& key, const Fields& request) {
    if (value == false) return k_never;
    if (!value.is_number())
        request.refuse("logit_bias",
                       fmt::format("must map ids to numbers; that of {} is {}", key, kind_of(value)));
    const auto bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100))
        request.refuse("logit_bias",
                       fmt::format("of token {} is {}; it must be from -100 to 100", key, value.dump()));
    return static_cast<float>(bias);
}

// Reads llama.cpp's form: [[id, bias], ["text", bias]]. The bias of a text is that of each of its tokens.
void read_bias_pairs(const Json& list, const Fields& request, const ServedModel& serving,
                     SamplingFields& fields) {
    for (const Json& pair : list) {
        const bool is_pair = pair.is_array() && pair.size() == 2;
        if (!is_pair || !(pair[0].is_number_integer() || pair[0].is_string()))
            request.refuse("logit_bias", "must have pairs of a token id or a text, and a bias");
        const float bias = bias_of(pair[1], pair[0].dump().substr(0, 40), request);
        if (pair[0].is_number_integer()) {
            fields.logit_bias.emplace_back(checked_id(pair[0].get<int64_t>(), request, serving), bias);
            continue;
        }
        for (const int32_t id : serving.model.tokenize(pair[0].get_ref<const std::string&>()))
            fields.logit_bias.emplace_back(id, bias);
    }
}

void read_logit_bias(const Fields& request, const ServedModel& serving, SamplingFields& fields) {
    const Json* given = request.find("logit_bias");
    if (given != nullptr && given->is_array()) return read_bias_pairs(*given, request, serving, fields);
    const Json* map = request.object("logit_bias");
    if (map == nullptr) return;
    for (const auto& [key, value] : map->items()) {
        int64_t id = -1;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error != std::errc() || end != key.data() + key.size())
            request.refuse("logit_bias",
                           fmt::format("has the key '{}', which is not a token id", key.substr(0, 40)));
        const int32_t token = checked_id(id, request, serving);
        fields.logit_bias.emplace_back(token, bias_of(value, key, request));
    }
}

// Reads a list of distinct token ids.
std::vector<int32_t> read_id_set(const Fields& request, const char* name, const ServedModel& serving) {
    const Json* list = request.array(name);
    if (list == nullptr) return {};
    if (list->size() > static_cast<size_t>(serving.info.n_vocab))
        request.refuse(name,
                       fmt::format("has {} ids; the vocabulary has {}", list->size(), serving.info.n_vocab));
    return read_ids(*list, request, name, k_ids_only, serving);
}

// Forbids all tokens but the allowed ones.
void read_allowed_ids(const Fields& request, const ServedModel& serving, SamplingFields& fields) {
    if (!request.has("allowed_token_ids")) return;
    const std::vector<int32_t> allowed = read_id_set(request, "allowed_token_ids", serving);
    if (allowed.empty()) request.refuse("allowed_token_ids", "is empty, so no answer is possible");
    std::vector<bool> is_allowed(serving.info.n_vocab);
    for (const int32_t id : allowed) is_allowed[id] = true;
    for (size_t id = 0; id < is_allowed.size(); ++id)
        if (!is_allowed[id]) fields.logit_bias.emplace_back(static_cast<int32_t>(id), k_never);
}

// Forbids words of one token, at the start of a text and after a space.
void read_bad_words(const Fields& request, const ServedModel& serving, SamplingFields& fields) {
    constexpr size_t k_max_words = 1000;
    const Json* words = request.array("bad_words");
    if (words == nullptr) return;
    if (words->size() > k_max_words)
        request.refuse("bad_words",
                       fmt::format("has {} words; at most {} are possible", words->size(), k_max_words));
    for (const Json& word : *words) {
        if (!word.is_string()) request.refuse("bad_words", "must have strings only");
        const std::string& text = word.get_ref<const std::string&>();
        const minim::Tokens plain = serving.model.tokenize(text);
        const minim::Tokens spaced = serving.model.tokenize(" " + text);
        if (plain.size() != 1)
            request.refuse("bad_words", fmt::format("has a word of {} tokens; only words of one token can be "
                                                    "forbidden (/tokenize shows them)",
                                                    plain.size()));
        fields.logit_bias.emplace_back(plain[0], k_never);
        if (spaced.size() == 1 && !text.starts_with(' ')) fields.logit_bias.emplace_back(spaced[0], k_never);
    }
}

// Reads `seed`: any 64 bits. -1 is chance, as in llama.cpp and vLLM.
std::optional<int64_t> read_seed(const Fields& request) {
    const Json* value = request.find("seed");
    if (value == nullptr) return std::nullopt;
    if (value->is_number_unsigned()) return static_cast<int64_t>(value->get<uint64_t>());
    const auto seed =
        request.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
    return seed == -1 ? std::nullopt : seed;
}

// Reads `priority`. As in vLLM, lower values are handled earlier; in the engine, higher ones.
int32_t read_priority(const Fields& request) {
    constexpr int64_t k_max = 1'000'000;
    return static_cast<int32_t>(-request.integer("priority", -k_max, k_max).value_or(0));
}

void set_dry(const SamplingFields& fields, minim::Sampling& sampling) {
    sampling.set("dry_multiplier", fields.dry_multiplier);
    if (fields.dry_base) sampling.set("dry_base", *fields.dry_base);
    if (fields.dry_allowed_length) sampling.set("dry_allowed_length", *fields.dry_allowed_length);
    if (fields.dry_penalty_last_n) sampling.set("dry_penalty_last_n", *fields.dry_penalty_last_n);
    if (fields.dry_breakers) sampling.set_dry_breakers(*fields.dry_breakers);
}

// Sets what the request does not say and the options of the server do.
void take_defaults(const SamplingDefaults& defaults, SamplingFields& fields, const Fields& request) {
    const auto take = [&](const char* name, auto& field, const auto& value) {
        if (value && !request.has(name)) field = *value;
    };
    take("presence_penalty", fields.presence_penalty, defaults.presence_penalty);
    take("frequency_penalty", fields.frequency_penalty, defaults.frequency_penalty);
    take("dry_multiplier", fields.dry_multiplier, defaults.dry_multiplier);
    take("dry_base", fields.dry_base, defaults.dry_base);
    take("dry_allowed_length", fields.dry_allowed_length, defaults.dry_allowed_length);
    take("dry_penalty_last_n", fields.dry_penalty_last_n, defaults.dry_penalty_last_n);
    if (!defaults.dry_breakers.empty() && !request.has("dry_sequence_breakers")) {
        fields.dry_breakers.emplace(defaults.dry_breakers);
        std::erase(*fields.dry_breakers, "none");
    }
    if (defaults.seed && !request.has("seed")) fields.seed = static_cast<int64_t>(*defaults.seed);
    if (!request.has("ignore_eos")) fields.ignores_end = defaults.ignores_end;
    if (!request.has("speculative.n_max")) fields.draft_tokens = defaults.draft_tokens;
    fields.usual_max_tokens = defaults.max_tokens;
}

}  // namespace

std::vector<int32_t> read_ids(const Json& list, const Fields& request, const char* name,
                              const char* not_an_id, const ServedModel& serving) {
    std::vector<int32_t> ids;
    ids.reserve(list.size());
    for (const Json& value : list) {
        if (!value.is_number_integer())
            request.refuse(name, fmt::format(fmt::runtime(not_an_id), kind_of(value)));
        if (!(value >= 0 && value < serving.info.n_vocab))
            request.refuse(name, fmt::format("has token id {}; the vocabulary has ids from 0 to {}",
                                             value.dump(), serving.info.n_vocab - 1));
        ids.push_back(value.get<int32_t>());
    }
    return ids;
}

std::vector<std::string> read_stops(const Fields& request, const char* name) {
    const Json* value = request.find(name);
    std::vector<std::string> stops;
    if (value == nullptr) return stops;
    if (!value->is_string() && !value->is_array())
        request.refuse(name, fmt::format("must be a string or a list of strings, not {}", kind_of(*value)));
    if (value->is_string()) stops.push_back(value->get<std::string>());
    if (value->is_array()) {
        if (value->size() > k_max_stops)
            request.refuse(name,
                           fmt::format("has {} texts; at most {} are possible", value->size(), k_max_stops));
        for (const Json& stop : *value) {
            if (!stop.is_string())
                request.refuse(name, fmt::format("must have strings only, not {}", kind_of(stop)));
            stops.push_back(stop.get<std::string>());
        }
    }
    for (const std::string& stop : stops)
        if (stop.empty()) request.refuse(name, "has an empty text");
    return stops;
}

SamplingFields read_sampling(const Fields& request, const ServedModel& serving, const char* stop) {
    const SamplingDefaults& defaults = serving.sampling;
    SamplingFields fields;
    fields.temperature = request.number("temperature", 0, k_hottest).value_or(*defaults.temperature);
    fields.top_p = request.number("top_p", 0, 1).value_or(*defaults.top_p);
    const int64_t top_k = request.integer("top_k", -1, int64_t{1} << 30).value_or(*defaults.top_k);
    fields.top_k = top_k < 0 ? 0 : top_k;
    fields.min_p = request.number("min_p", 0, 1).value_or(*defaults.min_p);
    read_repetition(request, defaults, fields);
    read_dry(request, fields);
    fields.loop_tokens = request.integer("loop_tokens", 0, 65536).value_or(0);
    fields.presence_penalty = request.number("presence_penalty", -2, 2).value_or(0);
    fields.frequency_penalty = request.number("frequency_penalty", -2, 2).value_or(0);
    fields.seed = read_seed(request);
    fields.min_tokens = request.integer("min_tokens", 0, int64_t{1} << 40).value_or(0);
    fields.ignores_end = request.boolean("ignore_eos").value_or(false);
    fields.shows_end = !request.boolean("skip_special_tokens").value_or(true);
    fields.n_choices = request.integer("n", 1, k_max_choices).value_or(1);
    const auto best_of = request.integer("best_of", 1, k_max_choices);
    if (best_of && *best_of != fields.n_choices) request.refuse("best_of", "must be the same as n");
    fields.stops = read_stops(request, stop);
    fields.stop_ids = read_id_set(request, "stop_token_ids", serving);
    fields.shows_stop = request.boolean("include_stop_str_in_output").value_or(false) ||
                        request.boolean("no_stop_trim").value_or(false);
    fields.priority = read_priority(request);
    const int64_t n_drafts = request.integer("speculative.n_max", 0, int64_t{1} << 31).value_or(0);
    fields.draft_tokens = std::min(n_drafts, k_max_draft_tokens);
    read_logit_bias(request, serving, fields);
    read_allowed_ids(request, serving, fields);
    read_bad_words(request, serving, fields);
    take_defaults(defaults, fields, request);
    return fields;
}

std::optional<int64_t> read_max_tokens(const Fields& request, std::initializer_list<const char*> names) {
    std::optional<int64_t> most;
    for (const char* name : names) {
        // -1: no limit, as llama.cpp and LM Studio have it, in the routes that others serve too.
        const int64_t least = std::string_view(name) == "n_predict" ? -2 : names.size() > 1 ? -1 : 0;
        const auto value = request.integer(name, least, int64_t{1} << 40);
        if (!most && value) most = value;
    }
    return most && *most < 0 ? std::nullopt : most;
}

minim::Sampling make_sampling(const SamplingFields& fields, const minim::Constraint* constraint,
                              int64_t reasoning_budget, int64_t index) {
    minim::Sampling sampling;
    sampling.set("temperature", fields.temperature).set("top_p", fields.top_p).set("top_k", fields.top_k);
    sampling.set("min_p", fields.min_p);
    if (fields.repetition_penalty != 1) {
        sampling.set("repetition_penalty", fields.repetition_penalty)
            .set("penalty_last_n", fields.penalty_last_n);
    }
    sampling.set("presence_penalty", fields.presence_penalty)
        .set("frequency_penalty", fields.frequency_penalty);
    if (fields.dry_multiplier > 0) set_dry(fields, sampling);
    if (fields.loop_tokens > 0) sampling.set("loop_tokens", fields.loop_tokens);
    if (reasoning_budget > 0) sampling.set("max_reasoning_tokens", reasoning_budget);
    if (fields.seed) {
        const uint64_t seed = static_cast<uint64_t>(*fields.seed) + static_cast<uint64_t>(index);
        sampling.set("seed", static_cast<int64_t>(seed));
    }
    const int64_t max_tokens = fields.max_tokens.value_or(fields.usual_max_tokens);
    const bool wants_no_token = fields.max_tokens == 0;  // an engine chooses at least one
    if (max_tokens > 0 || wants_no_token) sampling.set("max_tokens", wants_no_token ? 1 : max_tokens);
    if (fields.filters_first) sampling.set("filters_first", 1);
    if (fields.n_prompt_logprobs >= 0) sampling.set("prompt_logprobs", fields.n_prompt_logprobs);
    if (fields.draft_tokens > 0) sampling.set("draft_tokens", fields.draft_tokens);
    if (fields.min_tokens > 0) sampling.set("min_tokens", fields.min_tokens);
    if (fields.ignores_end) sampling.set("ignore_end", 1);
    if (fields.has_logprobs) sampling.set("logprobs", 1).set("top_logprobs", fields.n_top_logprobs);
    for (const std::string& stop : fields.stops) sampling.add_stop(stop);
    for (const int32_t id : fields.stop_ids) sampling.add_stop_token(id);
    for (const auto& [id, bias] : fields.logit_bias) sampling.add_logit_bias(id, bias);
    if (constraint != nullptr) sampling.set_constraint(*constraint);
    return sampling;
}

}  // namespace server
