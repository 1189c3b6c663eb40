// SPDX-License-Identifier: Apache-2.0
// Finds the weights of the architecture among the tensors of a checkpoint, by name, and checks them against the
// configuration: once, from headers alone, so that a bad checkpoint fails before its data is read.
#pragma once

#include <span>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"
#include "weights/spec.h"

namespace minim::model {

// Returns every weight in a fixed order: embedding; layer after layer in the order of Role, experts of one role one after
// the other; output norm and head. The checkpoint must outlive the result. Sets config.n_vocab and config.n_expert from the
// tensors. Throws format (missing tensor, wrong shape) or unsupported (a type without decoder, a tensor that the forward
// pass does not know), always naming the tensor. Multi-token-prediction tensors are skipped with a note in the log.
std::vector<weights::WeightSpec> bind_weights(const checkpoint::Checkpoint& checkpoint, Config& config,
                                              const Logger& log);

// Returns the number of parameters: each weight once.
int64_t parameter_count(std::span<const weights::WeightSpec> weights);

}  // namespace minim::model
