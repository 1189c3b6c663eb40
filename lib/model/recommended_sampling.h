// The sampling that the makers of a checkpoint recommend.
#pragma once

#include <cstdint>

#include "base/log.h"
#include "checkpoint/checkpoint.h"

namespace minim::model {

// Those of MiniMax-M2's model card, unless the checkpoint says otherwise.
struct RecommendedSampling {
    double temperature = 1.0;
    double top_p = 0.95;
    int32_t top_k = 40;
    double min_p = 0.0;
    double repetition_penalty = 1.0;
    int32_t penalty_last_n = -1;  // tokens that the penalty looks back on; -1: all
    const char* source =
        "";  // "generation_config.json" or "general.sampling"; "" if the checkpoint says nothing
};

// Reads generation_config.json beside safetensors files, or a GGUF file's keys general.sampling.*. Values of another type
// or out of range are left out with a warning. Throws io, and format for a file that is no JSON object.
RecommendedSampling read_recommended_sampling(const checkpoint::Checkpoint& checkpoint, const Logger& log);

}  // namespace minim::model
