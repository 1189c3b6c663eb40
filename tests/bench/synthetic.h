// A model of any shape made of random bytes in memory: for speed, which depends on shapes and formats alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "model/config.h"
#include "model/weights.h"

namespace minim::bench {

struct SyntheticShape {
    int64_t n_layer = 2;
    int64_t hidden = 3072;
    int64_t n_head = 48;
    int64_t n_head_kv = 8;
    int64_t head_dim = 128;
    int64_t rotary_dim = 64;
    int64_t n_expert = 256;
    int64_t n_expert_used = 8;
    int64_t expert_ff = 1536;
    int64_t n_vocab = 200064;
    Format experts_format = Format::iq4_xs;
    Format dense_format = Format::q8_0;
};

struct SyntheticModel {
    model::Config config;
    model::Weights weights;
    std::vector<Buffer> memory;
};

// Throws out_of_memory, or invalid where a row is no whole number of blocks.
SyntheticModel make_synthetic(const SyntheticShape& shape);

}  // namespace minim::bench
