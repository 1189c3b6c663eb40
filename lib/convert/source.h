// SPDX-License-Identifier: Apache-2.0
// The tensors of a model as a GGUF file has them, whatever the container and the layout of the checkpoint that they come from: names,
// shapes and order of GGUF, and for each tensor the matrices that it consists of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"
#include "weights/reader.h"
#include "weights/spec.h"

namespace minim::convert {

struct SourceTensor {
    std::string name;             // in GGUF
    std::vector<int64_t> shape;   // outermost first
    std::string_view type_name;   // as the checkpoint calls it: "F8_E4M3", "Q4_K"
    Format format = Format::f32;  // of the rows that reading gives
    int64_t n_columns = 0;
    int64_t n_rows = 0;  // of one matrix
    int64_t row_bytes = 0;
    // One, or one for each expert. Their rows are read one after the other.
    std::vector<weights::WeightSpec> matrices;
    // Of some matrices of a stack: the number of each in the stack, and of all of them. Importance data has them all. Empty: these are all.
    std::vector<int64_t> experts = {};
    int64_t n_stacked = 0;
    // Encoded by `quantize`: a weight of two or three dimensions, no norm, and none that stays in floats.
    bool is_matrix = false;
    bool stays_float = false;  // a router, or a projection of the index of M3: few numbers that decide much
    bool has_factors = false;  // the numbers are those of the rows times a factor of each matrix
    std::string factors_of = {};  // the tensor whose factors this tensor of a GGUF file has; "": none

    int64_t all_rows() const { return n_rows * static_cast<int64_t>(matrices.size()); }
    uint64_t bytes() const { return static_cast<uint64_t>(all_rows() * row_bytes); }
    int64_t n_elements() const { return all_rows() * n_columns; }
    int64_t n_matrices_of_stack() const { return experts.empty() ? std::ssize(matrices) : n_stacked; }
    int64_t number_in_stack(int64_t matrix) const { return experts.empty() ? matrix : experts[matrix]; }
};

struct Source {
    checkpoint::Checkpoint checkpoint;
    model::Config config;  // if the tensors are bound; else only family, n_layer and n_dense_layer
    std::vector<SourceTensor> tensors;
    std::vector<int64_t> part_counts;  // tensors in each part of a GGUF file
    std::string kept_experts = {};     // "154 of 256"; "": all
    uint64_t kept_hash = 0;            // of which they are

    // Returns the key of GGUF metadata that the model's family has: "minimax-m2.block_count".
    std::string key(std::string_view name) const;
    bool is_gguf() const { return checkpoint.container() == checkpoint::Container::gguf; }
};

// Returns the name of a tensor for messages and JSON: as it is, or in quotes with escapes if it has control characters or is not UTF-8.
std::string shown(std::string_view name);

// Opens a checkpoint. Every tensor of a GGUF file is there, in the order of the file, unless `binds`. The tensors of a folder, or of a
// file that is bound, are those of the model, with the usual names of GGUF, in the order in which llama.cpp's converter writes them; the
// factors of matrices are no tensors of their own. If it binds, norms are as folders have them: M3's are less 1. Throws what opening and
// binding throw.
Source open_source(const std::string& path, const Logger& log, bool binds = false);

}  // namespace minim::convert
