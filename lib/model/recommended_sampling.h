// SPDX-License-Identifier: Apache-2.0
// The sampling that the makers of a checkpoint recommend.
#pragma once

#include <cstdint>

#include "base/log.h"
#include "checkpoint/checkpoint.h"

namespace minim::model {

// The defaults are those of MiniMax-M2's model card.
struct RecommendedSampling {
    double temperature = 1.0;
    double top_p = 0.95;
    int32_t top_k = 40;
    double min_p = 0.0;
    double repetition_penalty = 1.0;
    int32_t penalty_last_n = -1;  // the most recent tokens that the penalty uses; -1: all
    const char* source =
        "";  // "generation_config.json" or "general.sampling"; "" if the checkpoint recommends nothing
};

// Reads generation_config.json beside safetensors files, or a GGUF file's keys general.sampling.*. Values of another type
// or out of range are ignored with a warning. Throws io, and format if the file is not a JSON object.
RecommendedSampling read_recommended_sampling(const checkpoint::Checkpoint& checkpoint, const Logger& log);

}  // namespace minim::model
