// SPDX-License-Identifier: Apache-2.0
// Plans a safetensors folder: its tensors, shards and small files.
#pragma once

#include <cstdint>
#include <vector>

#include "base/log.h"
#include "checkpoint/safetensors_writer.h"
#include "convert/importance.h"
#include "convert/options.h"
#include "convert/plan.h"
#include "convert/source.h"

namespace minim::convert {

// Fills in tensors, files and side files. The source must be bound. Throws invalid for options that only GGUF files have, for a rule that
// cannot be understood or matches nothing, for rows that the layout's groups do not divide, and for a matrix below 8 bits that would
// be encoded again.
void plan_folder(const Options& options, const Source& source, const Importance* importance,
                 const Logger& log, Plan& plan);

// Returns the tensors of a shard of the plan.
std::vector<checkpoint::NewSafetensor> safetensors_of(const Plan& plan, int64_t file);

}  // namespace minim::convert
