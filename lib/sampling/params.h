// SPDX-License-Identifier: Apache-2.0
// The settings of one sequence's sampler. The defaults sample from the model's own distribution; the caller sets the
// recommended values of a model family (temperature 1.0, top_p 0.95, top_k 40 for MiniMax-M2).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace minim::sampling {

constexpr int32_t k_max_top_logprobs = 20;

// Bounds of penalties and biases: far above useful values, far below values whose sums would overflow.
constexpr float k_max_penalty = 1e6F;

struct DryBreaker;

struct LogitBias {
    int32_t token;
    float bias;  // added to the logit; -inf forbids the token; entries of one token add up
};

// Penalties and bias always come first. At temperature 1 both orders give the same text.
enum class Order : int32_t {
    temperature_first = 0,  // temperature, top_k, top_p, min_p: the filters see the tempered distribution
    filters_first = 1,  // top_k, top_p, min_p, temperature: the filters see the distribution at temperature 1
};

struct Params {
    float temperature =
        1.0F;            // 0: the highest logit after penalties and bias, lowest id on ties; no filter acts
    int32_t top_k = 0;   // the k highest, lowest ids first on ties; 0 or below: off
    float top_p = 1.0F;  // the fewest highest entries that together hold this share; 1: off, 0: one entry
    float min_p = 0.0F;  // entries with at least this share of the highest entry's probability; 0: off

    // For each distinct id among the last `penalty_last_n` tokens, prompt included: logit / p if the logit is
    // positive, else logit * p. 1: off.
    float repetition_penalty = 1.0F;
    int32_t penalty_last_n = -1;  // -1: the whole sequence, 0: off

    // Subtracted from logits, counting generated tokens but not the prompt: `presence_penalty` once for an id
    // that occurred, `frequency_penalty` for each occurrence.
    float presence_penalty = 0.0F;
    float frequency_penalty = 0.0F;

    // sampling/dry.h. The window counts the prompt too.
    float dry_multiplier = 0.0F;  // 0: off
    float dry_base = 1.75F;       // at least 1
    int32_t dry_allowed_length = 2;
    int32_t dry_last_n = -1;  // -1: the whole sequence, 0: off
    std::vector<std::shared_ptr<const DryBreaker>> dry_breakers;

    // Ids from here on are never penalised, because penalties on markup tokens break the XML of tool calls.
    int32_t penalty_exempt_from = std::numeric_limits<int32_t>::max();

    uint64_t seed = 0;  // 0 is a seed like any other; for randomness, the caller draws one

    bool logprobs = false;
    int32_t n_top_logprobs = 0;  // 0 to 20; needs `logprobs`

    Order order = Order::temperature_first;
    std::vector<LogitBias> logit_bias;
};

// Throws Status::invalid naming the first field out of range and its value; NaN is out of every range.
void validate(const Params& params, int32_t n_vocab);

}  // namespace minim::sampling
