// SPDX-License-Identifier: Apache-2.0
// The checks that compute with a model: a built-in text, evaluated on the devices that the model is open on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/log.h"
#include "check/report.h"
#include "model/model.h"
#include "sampling/logprobs.h"

namespace minim::check {

// The five likeliest tokens with their log-probabilities at each of the last 64 positions of the built-in text.
using Answers = std::vector<std::vector<sampling::TokenProbability>>;

// Evaluates 300 tokens in steps of 64 rows and of one: logits must be finite, equal whatever the steps, and predict the text better
// than chance. Warns if the residual stream is beyond the range of F16. Returns nothing if logits are not finite.
Answers check_probe(const std::shared_ptr<const model::Model>& model, const CancelToken* cancel,
                    const Logger& log, Report& report);

// Returns a record of answers: {"fingerprint": "16 digits", "positions": [[[id, log-probability], ...], ...]}
std::string to_json(const Answers& answers, uint64_t fingerprint);

// Compares answers of a model with such a record, of the same file or of one with other formats. Throws format if `record` is none,
// and invalid if it is of a model with other tokens.
void check_answers(const Answers& answers, const model::Model& model, std::string_view record,
                   Report& report);

}  // namespace minim::check
