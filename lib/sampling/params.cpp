// SPDX-License-Identifier: Apache-2.0
#include "sampling/params.h"

#include "base/error.h"

namespace minim::sampling {
namespace {

// False for NaN, as every comparison with it is.
bool within(float value, float lowest, float highest) {
    return value >= lowest && value <= highest;
}

void check_filters(const Params& params) {
    constexpr float k_largest = std::numeric_limits<float>::max();
    if (!within(params.temperature, 0.0F, k_largest)) {
        fail(Status::invalid, "temperature {} is not a finite number of at least 0", params.temperature);
    }
    if (!within(params.top_p, 0.0F, 1.0F)) {
        fail(Status::invalid, "top_p {} is not between 0 and 1", params.top_p);
    }
    if (!within(params.min_p, 0.0F, 1.0F)) {
        fail(Status::invalid, "min_p {} is not between 0 and 1", params.min_p);
    }
    if (params.order != Order::temperature_first && params.order != Order::filters_first) {
        fail(Status::invalid, "order {} is neither 0 (temperature first) nor 1 (filters first)",
             static_cast<int32_t>(params.order));
    }
}

void check_penalties(const Params& params) {
    if (!(params.repetition_penalty > 0.0F && params.repetition_penalty <= k_max_penalty)) {
        fail(Status::invalid, "repetition_penalty {} is not above 0 and at most {}",
             params.repetition_penalty, k_max_penalty);
    }
    if (params.penalty_last_n < -1) {
        fail(Status::invalid, "penalty_last_n {} is neither -1 (the whole sequence) nor a count",
             params.penalty_last_n);
    }
    if (!within(params.presence_penalty, -k_max_penalty, k_max_penalty)) {
        fail(Status::invalid, "presence_penalty {} is not between -{} and {}", params.presence_penalty,
             k_max_penalty, k_max_penalty);
    }
    if (!within(params.frequency_penalty, -k_max_penalty, k_max_penalty)) {
        fail(Status::invalid, "frequency_penalty {} is not between -{} and {}", params.frequency_penalty,
             k_max_penalty, k_max_penalty);
    }
    if (!within(params.dry_multiplier, 0.0F, k_max_penalty)) {
        fail(Status::invalid, "dry_multiplier {} is not between 0 and {}", params.dry_multiplier,
             k_max_penalty);
    }
    if (!within(params.dry_base, 1.0F, k_max_penalty)) {
        fail(Status::invalid, "dry_base {} is not between 1 and {}", params.dry_base, k_max_penalty);
    }
    if (params.dry_allowed_length < 0) {
        fail(Status::invalid, "dry_allowed_length {} is negative", params.dry_allowed_length);
    }
    if (params.dry_last_n < -1) {
        fail(Status::invalid, "dry_last_n {} is neither -1 (the whole sequence) nor a count",
             params.dry_last_n);
    }
    if (params.penalty_exempt_from < 0) {
        fail(Status::invalid, "penalty_exempt_from {} is not a token id", params.penalty_exempt_from);
    }
}

void check_logprobs(const Params& params) {
    if (params.n_top_logprobs < 0 || params.n_top_logprobs > k_max_top_logprobs) {
        fail(Status::invalid, "n_top_logprobs {} is not between 0 and {}", params.n_top_logprobs,
             k_max_top_logprobs);
    }
    if (params.n_top_logprobs > 0 && !params.logprobs) {
        fail(Status::invalid, "n_top_logprobs {} needs logprobs", params.n_top_logprobs);
    }
}

void check_bias(const Params& params, int32_t n_vocab) {
    for (const LogitBias& entry : params.logit_bias) {
        if (entry.token < 0 || entry.token >= n_vocab) {
            fail(Status::invalid, "logit_bias names token {} of a vocabulary of {}", entry.token, n_vocab);
        }
        const bool forbids = entry.bias == -std::numeric_limits<float>::infinity();
        if (!forbids && !within(entry.bias, -k_max_penalty, k_max_penalty)) {
            fail(Status::invalid, "logit_bias {} of token {} is neither -inf nor between -{} and {}",
                 entry.bias, entry.token, k_max_penalty, k_max_penalty);
        }
    }
}

}  // namespace

void validate(const Params& params, int32_t n_vocab) {
    if (n_vocab <= 0) fail(Status::invalid, "n_vocab {} is not positive", n_vocab);
    check_filters(params);
    check_penalties(params);
    check_logprobs(params);
    check_bias(params, n_vocab);
}

}  // namespace minim::sampling
