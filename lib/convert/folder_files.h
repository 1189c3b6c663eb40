// SPDX-License-Identifier: Apache-2.0
// The small files beside the weights of a safetensors folder: copied from a folder, or made of the metadata of a GGUF file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "convert/folder_layout.h"
#include "convert/source.h"

namespace minim::convert {

// A module of the model, named without ".weight": "model.layers.0.self_attn.q_proj". `is_stack`: one name for all experts of a layer,
// whose number is left out: "model.layers.0.block_sparse_moe.experts.*.w1".
struct FolderModule {
    std::string name;
    int64_t layer = 0;
    bool is_expert = false;
    bool is_quantised = false;
};

// What config.json says about the weights.
struct FolderWeights {
    FolderLayout layout = FolderLayout::bf16;
    // Projections of attention, of feed-forwards that every row takes, and of experts, in the order of layers.
    std::vector<FolderModule> modules;
    bool has_input_scales = false;
    int64_t n_expert = 0;  // that are written
    int64_t n_dense_layer = 0;
    bool has_router_bias = false;
    std::string version;  // of this program
};

// Returns names and texts. Throws what reading the source's files throws.
std::vector<std::pair<std::string, std::string>> folder_files(const Source& source,
                                                              const FolderWeights& weights,
                                                              const Logger& log);

}  // namespace minim::convert
