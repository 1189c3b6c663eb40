// SPDX-License-Identifier: Apache-2.0
// The checks that compute with a model: a built-in text, evaluated on the devices that the model is open on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/cancel.h"
#include "base/log.h"
#include "check/report.h"
#include "model/model.h"

namespace minim::check {

// Evaluates 300 tokens in steps of 64 rows and of one: logits must be finite, equal whatever the steps, and predict the text better
// than chance. Warns if the residual stream is beyond the range of F16.
void check_probe(const std::shared_ptr<const model::Model>& model, const CancelToken* cancel,
                 const Logger& log, Report& report);

// Returns the five likeliest tokens with their log-probabilities at 64 positions of the built-in text, as JSON:
// {"fingerprint": "16 digits", "positions": [[[id, log-probability], ...], ...]}
std::string record_answers(const std::shared_ptr<const model::Model>& model, const CancelToken* cancel,
                           const Logger& log);

// Compares what the model computes with such a record, of the same file or of one with other formats. Throws format if `record` is
// none, and invalid if it is of a model with other tokens.
void check_answers(const std::shared_ptr<const model::Model>& model, std::string_view record,
                   const CancelToken* cancel, const Logger& log, Report& report);

}  // namespace minim::check
