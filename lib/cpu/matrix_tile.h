// SPDX-License-Identifier: Apache-2.0
// A tile of rows of one matrix times a batch of input rows: the unit of work of linear, route and experts.
#pragma once

#include "cpu/operations.h"

namespace minim::cpu {

// Input rows as the kernels read them: floats, and also quantised if some matrix needs that.
struct InputRows {
    const std::byte* data[k_activation_count] = {};  // by Activation
    int64_t row_bytes[k_activation_count] = {};
    const int32_t* rows = nullptr;  // rows[t]: the row that token t reads; null: row t
    int64_t n_tokens = 0;
};

// Returns the form in which the kernel of a weight format reads its input.
Activation activation_for(const KernelTable& kernels, Format format) noexcept;

// Returns the rows of one tile, a multiple of 16, for a job that multiplies n_job_rows rows of weights.
int64_t rows_of_tile(const Machine& machine, const backend::Matrix& weight, int64_t n_job_rows) noexcept;

InputRows plain_rows(const float* x, int64_t n, int64_t cols) noexcept;

// Returns the tokens first .. first + count of an input.
InputRows rows_of(const InputRows& all, int64_t first, int64_t count) noexcept;

// Quantises the n rows of x to `out` and adds them to `input`. Does nothing if `input` already has rows in this form, as it has
// for f32 from plain_rows().
void quantize_rows(const Machine& machine, Activation activation, const float* x, int64_t n, int64_t cols,
                   std::byte* out, InputRows& input);

// Multiplies rows first .. first + count of W (of one part if rows are split) with all tokens. y: the output of the first row for
// token 0. first is a multiple of 16. `exact` reads the input as floats, whatever the format, because quantised inputs must not
// decide the routing; such a weight is never packed.
struct MatrixTile {
    const backend::Matrix& weight;
    int64_t first;
    int64_t count;
    float* y;
    int64_t y_stride;
    bool add = false;
    bool exact = false;
    const std::byte* next_weight = nullptr;  // LinearArgs::next_weight
};
// Multiplies a tile. `scratch` has tile_scratch_bytes(cols) bytes, aligned to 64.
void compute_tile(const Machine& machine, const MatrixTile& tile, const InputRows& input, std::byte* scratch);

}  // namespace minim::cpu
