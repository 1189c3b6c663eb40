// SPDX-License-Identifier: Apache-2.0
// The error for logits that are no numbers. Weights that are NaN or infinite cause them. Checking every weight at load would read
// the whole file, so the weights that were used are looked at once it has happened.
#pragma once

#include <cstdint>
#include <span>

#include "model/model.h"

namespace minim::engine {

// Returns whether a value is NaN or infinite.
bool has_bad_logits(std::span<const float> logits) noexcept;

// Throws format. The message names the tensor, if evaluating the tokens again finds it: the first layer whose output is not finite
// has it, in its attention or in an expert that it chose. Takes seconds and the memory of a short session.
[[noreturn]] void fail_bad_logits(const model::Model& model, std::span<const int32_t> tokens);

}  // namespace minim::engine
