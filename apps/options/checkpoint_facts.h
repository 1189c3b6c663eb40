// SPDX-License-Identifier: Apache-2.0
// Facts about a checkpoint that options ask for, from its headers alone.
#pragma once

#include <cstdint>
#include <string>

#include "minim/minim.hpp"

namespace program {

struct CheckpointFacts {
    int64_t n_layers = 0;
    int64_t n_expert_layers = 0;  // layers that have experts
    uint64_t expert_bytes = 0;    // of all layers together
};

CheckpointFacts checkpoint_facts(const minim::Runtime& runtime, const std::string& path);

// Compares the method of quantisation with what the file says: "fp8", "awq", "gptq_marlin", "gguf", "none" ... Throws
// std::runtime_error if it is another one.
void check_quantization(const std::string& path, const std::string& method);

}  // namespace program
