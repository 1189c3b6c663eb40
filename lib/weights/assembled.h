// SPDX-License-Identifier: Apache-2.0
// Assembled tensors: weight matrices that quantised safetensors folders do not store as rows, but as separate tensors
// of codes, scales and zero points, or as stacks of experts with one row for each input. Reading turns each matrix into
// rows of one block format; no number changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "format/format.h"

namespace minim::weights {

// How numbers are quantised.
enum class Method : uint8_t { fp8, mxfp8, nvfp4, mxfp4, integers };

// The quantisation that one file of a folder declares.
struct Declaration {
    struct Entry {
        Method method;
        int64_t group = 0;  // inputs that share a scale; 0: not said
        std::string text;   // "quant_algo NVFP4, group_size 16"
    };
    std::string file;                      // "hf_quant_config.json"
    std::vector<Entry> entries;            // each matrix is quantised by one of these; empty: not declared
    std::map<std::string, Entry> modules;  // of single matrices, by their name without ".weight"
};

// Properties of packed weights that config.json declares and the tensors do not show.
struct PackingHints {
    int32_t gptq_zero_bias = 1;     // added to the zero points of GPTQ's tensors
    bool orders_inputs = false;     // inputs may be in groups by activation: g_idx is not trivial
    std::optional<bool> symmetric;  // whether all groups are symmetric; nothing: not declared for all
    struct Group {
        int64_t bits = 0;
        int64_t size = 0;  // inputs; -1: all of a row
    };
    std::vector<Group> groups;              // all declared groups of integers; empty: none is declared
    std::string text;                       // of the declaration, for messages
    std::vector<Declaration> declarations;  // of all files: the tensors must agree with each
};

// One expert of a tensor [n, stack_rows, cols], or of a transposed one [n, cols, stack_rows].
struct StackPart {
    int64_t n = 0;
    int64_t index = 0;
    int64_t stack_rows = 0;
    int64_t first_row = 0;
};

struct AssembledMatrix {
    enum class Kind : uint8_t { fp8, mxfp8, nvfp4, mxfp4, awq, integers, transposed };
    // How codes of integers are packed.
    enum class Codes : uint8_t { words_of_rows, words_of_columns, awq_words, bytes };

    Kind kind;
    Format format;  // of the rows
    int64_t rows;
    int64_t cols;
    int64_t row_bytes;
    const checkpoint::Tensor* codes;
    const checkpoint::Tensor* scales = nullptr;
    const checkpoint::Tensor* zeros = nullptr;   // zero points of integers
    const checkpoint::Tensor* groups = nullptr;  // the group of each input, if these are not in order
    const checkpoint::Tensor* factor = nullptr;  // NVFP4: of the whole matrix
    const checkpoint::Tensor* shape = nullptr;   // rows and columns, as two numbers
    bool divides = false;                        // the weights are divided by the factor, not multiplied
    float multiplier = 1.0F;                     // of the whole matrix, beside the factor
    int64_t first_row = 0;                       // in a stack, counted over all experts
    int64_t stack_rows = 0;                      // transposed: outputs of an expert's matrix
    int64_t scale_rows = 1;                      // FP8: rows that share a scale
    // For integers:
    Codes packing = Codes::bytes;
    int32_t bits = 0;
    int64_t group = 0;  // inputs that share a scale
    int32_t zero_bias = 0;
    bool is_symmetric = false;  // the format has no zero point: each must be the middle value
};

// Returns a tensor by its name, or null.
using FindTensor = std::function<const checkpoint::Tensor*(const std::string& name)>;

// Returns the tensors of the matrix [rows, cols] whose plain form would be called `name` (X.weight), or nothing if it is
// one plain tensor or absent. Throws format (a tensor is missing, of another shape, or contradicts the hints) and
// unsupported (a packing that is not read), naming the tensor.
std::optional<AssembledMatrix> find_assembled(const FindTensor& find, const std::string& name, int64_t rows,
                                              int64_t cols, const PackingHints& hints = {});

// Returns the same for one expert of a stack called `name`. `transposed`: the stack has one row for each input.
std::optional<AssembledMatrix> find_stacked(const FindTensor& find, const std::string& name, int64_t rows,
                                            int64_t cols, const StackPart& part, bool transposed,
                                            const PackingHints& hints = {});

// Reads bytes [at, at + out.size()) of the assembled rows. The checkpoint must be loaded. Any thread. Throws what
// reading throws, and format if a number is NaN, a group does not exist, a zero point contradicts the configuration,
// or a stated shape differs from the tensors'.
void read_assembled(const checkpoint::Checkpoint& checkpoint, const AssembledMatrix& matrix, uint64_t at,
                    std::span<std::byte> out);

// Returns the number of rows that are best read together.
int64_t rows_together(const AssembledMatrix& matrix) noexcept;

// Returns the factor of the whole matrix, 1 if it has none. A factor of 0 is accepted: all weights are then 0. Throws
// format for a negative factor, for NaN and infinity, and for a divisor of 0.
float read_factor(const checkpoint::Checkpoint& checkpoint, const AssembledMatrix& matrix);

}  // namespace minim::weights
