// SPDX-License-Identifier: Apache-2.0
#include "engine/generate_options.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace minim::engine {
namespace {

using P = GenerateParams;

constexpr int64_t k_largest_integer = 9007199254740991;  // 2^53 - 1: up to here every integer is a double
constexpr int64_t k_largest_int32 = 2147483647;
constexpr int64_t k_any_least = std::numeric_limits<int64_t>::min();
constexpr int64_t k_any_most = std::numeric_limits<int64_t>::max();

constexpr GenerateOption integer(const char* name, int64_t least, int64_t most, int64_t default_value,
                                 const char* help, void (*set)(P&, int64_t)) {
    return {name,
            OptionType::integer,
            static_cast<double>(least),
            static_cast<double>(most),
            static_cast<double>(default_value),
            help,
            least,
            most,
            set,
            nullptr};
}

constexpr GenerateOption number(const char* name, double minimum, double maximum, double default_value,
                                const char* help, void (*set)(P&, double)) {
    return {name, OptionType::number, minimum, maximum, default_value, help, 0, 0, nullptr, set};
}

float narrow(double value) {
    return static_cast<float>(value);
}

constexpr GenerateOption k_options[] = {
    integer("max_tokens", 0, k_largest_integer, 0,
            "the maximum number of tokens to generate; 0: no limit but the context",
            [](P& p, int64_t v) { p.max_tokens = v; }),
    integer("min_tokens", 0, k_largest_integer, 0, "the fewest tokens before an end token is allowed",
            [](P& p, int64_t v) { p.min_tokens = v; }),
    integer("ignore_end", 0, 1, 0, "1: the model's end tokens do not end the text",
            [](P& p, int64_t v) { p.ignore_end = v != 0; }),
    number("temperature", 0, 100, 0, "0: always the likeliest token; 1: the model's own distribution",
           [](P& p, double v) { p.sampling.temperature = narrow(v); }),
    integer("top_k", 0, k_largest_int32, 0, "sample among the k likeliest tokens; 0: all",
            [](P& p, int64_t v) { p.sampling.top_k = static_cast<int32_t>(v); }),
    number("top_p", 0, 1, 1, "sample among the fewest tokens that together have this probability; 1: all",
           [](P& p, double v) { p.sampling.top_p = narrow(v); }),
    number("min_p", 0, 1, 0, "sample among tokens at least this likely relative to the likeliest; 0: all",
           [](P& p, double v) { p.sampling.min_p = narrow(v); }),
    number("repetition_penalty", 0.001, 1000, 1,
           "divides positive and multiplies negative logits of tokens seen; 1: off",
           [](P& p, double v) { p.sampling.repetition_penalty = narrow(v); }),
    integer("penalty_last_n", -1, k_largest_int32, -1,
            "tokens the repetition penalty looks back on, prompt included; -1: all, 0: none",
            [](P& p, int64_t v) { p.sampling.penalty_last_n = static_cast<int32_t>(v); }),
    number("presence_penalty", -1000, 1000, 0, "subtracted from the logit of every token generated before",
           [](P& p, double v) { p.sampling.presence_penalty = narrow(v); }),
    number("frequency_penalty", -1000, 1000, 0, "subtracted for each time the token was generated before",
           [](P& p, double v) { p.sampling.frequency_penalty = narrow(v); }),
    number("dry_multiplier", 0, 1000, 0,
           "subtracted, times a power of dry_base, from logits that would go on with a repetition; 0: off",
           [](P& p, double v) { p.sampling.dry_multiplier = narrow(v); }),
    number("dry_base", 1, 1000, 1.75, "to the power of the repetition's length beyond dry_allowed_length",
           [](P& p, double v) { p.sampling.dry_base = narrow(v); }),
    integer("dry_allowed_length", 0, k_largest_int32, 2, "length of the shortest repetition that is lowered",
            [](P& p, int64_t v) { p.sampling.dry_allowed_length = static_cast<int32_t>(v); }),
    integer("dry_penalty_last_n", -1, k_largest_int32, -1,
            "tokens in which repetitions are looked for, prompt included; -1: all, 0: none",
            [](P& p, int64_t v) { p.sampling.dry_last_n = static_cast<int32_t>(v); }),
    integer("penalize_added_tokens", 0, 1, 0, "1: penalties act on markup tokens and in tool calls too",
            [](P& p, int64_t v) { p.penalize_added_tokens = v != 0; }),
    integer("filters_first", 0, 1, 0, "1: top_k, top_p and min_p see the distribution before temperature",
            [](P& p, int64_t v) {
                p.sampling.order =
                    v != 0 ? sampling::Order::filters_first : sampling::Order::temperature_first;
            }),
    integer("seed", k_any_least, k_any_most, 0,
            "the same seed gives the same text; any 64 bits, so -1 is 2^64 - 1; unset: chance",
            [](P& p, int64_t v) {
                p.sampling.seed = static_cast<uint64_t>(v);
                p.has_seed = true;
            }),
    integer("max_reasoning_tokens", 0, k_largest_integer, 0,
            "the maximum number of tokens of reasoning before it is closed; 0: no limit",
            [](P& p, int64_t v) { p.max_reasoning = v; }),
    integer("loop_tokens", 0, 65536, 0,
            "end if the last N tokens are one block, repeated at least four times; 0: go on",
            [](P& p, int64_t v) { p.n_loop = v; }),
    integer("draft_tokens", 0, 64, 0,
            "most draft tokens a step, proposed from the text so far; changes speed, never the text",
            [](P& p, int64_t v) { p.n_draft = v; }),
    integer("logprobs", 0, 1, 0, "1: report the log-probability of each token",
            [](P& p, int64_t v) { p.sampling.logprobs = v != 0; }),
    integer("top_logprobs", 0, sampling::k_max_top_logprobs, 0,
            "number of likeliest tokens to report at each place; sets logprobs",
            [](P& p, int64_t v) {
                p.sampling.n_top_logprobs = static_cast<int32_t>(v);
                p.sampling.logprobs = p.sampling.logprobs || v > 0;
            }),
    integer(
        "prompt_logprobs", -1, sampling::k_max_top_logprobs, -1,
        "only for requests: report each prompt token but the first with its log-probability and this many "
        "likeliest tokens; -1: no",
        [](P& p, int64_t v) { p.n_prompt_logprobs = v; }),
    integer("prompt_logprobs_from", 1, k_largest_integer, 1,
            "the index of the first prompt token that prompt_logprobs reports; the tokens before it may be "
            "cached",
            [](P& p, int64_t v) { p.first_prompt_logprob = v; }),
};

const GenerateOption& find(std::string_view name) {
    for (const GenerateOption& option : k_options) {
        if (name == option.name) return option;
    }
    fail(Status::invalid, "there is no option '{}'", name);
}

}  // namespace

std::span<const GenerateOption> generate_options() noexcept {
    return k_options;
}

void set_option(GenerateParams& params, std::string_view name, int64_t value) {
    const GenerateOption& option = find(name);
    if (option.set_integer == nullptr) return set_option(params, name, static_cast<double>(value));
    if (value < option.least || value > option.most)
        fail(Status::invalid, "option {} is {}; it goes from {} to {}", name, value, option.least,
             option.most);
    option.set_integer(params, value);
}

void set_option(GenerateParams& params, std::string_view name, double value) {
    const GenerateOption& option = find(name);
    if (option.set_number == nullptr)
        fail(Status::invalid, "option {} takes an integer, not {}", name, value);
    if (!(value >= option.minimum && value <= option.maximum)) {  // also refuses NaN
        fail(Status::invalid, "option {} is {}; it goes from {} to {}", name, value, option.minimum,
             option.maximum);
    }
    option.set_number(params, value);
}

}  // namespace minim::engine
