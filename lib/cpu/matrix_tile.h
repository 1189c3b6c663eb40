// A tile of rows of one matrix times a batch of input rows: the unit of work of linear, route and experts.
#pragma once

#include "cpu/operations.h"

namespace minim::cpu {

// What the kernels read: rows as floats, and quantised where some matrix wants that.
struct InputRows {
    const std::byte* data[k_activation_count] = {};  // by Activation
    int64_t row_bytes[k_activation_count] = {};
    const int32_t* rows = nullptr;  // which row token t reads; null: row t
    int64_t n_tokens = 0;
};

// The form in which the input of a matrix is read.
Activation activation_for(const KernelTable& kernels, Format format) noexcept;

// Rows of one tile, a multiple of 16, where n_job_rows rows of weights meet their inputs in one job.
int64_t rows_of_tile(const Machine& machine, const backend::Matrix& weight, int64_t n_job_rows) noexcept;

InputRows plain_rows(const float* x, int64_t n, int64_t cols) noexcept;

// Tokens first .. first + count of an input.
InputRows rows_of(const InputRows& all, int64_t first, int64_t count) noexcept;

// Adds the quantised form to `input`, made in `out` from the n rows of x; nothing for f32 or when it is
// there.
void quantize_rows(const Machine& machine, Activation activation, const float* x, int64_t n, int64_t cols,
                   std::byte* out, InputRows& input);

// Rows first .. first + count of W, of one part where they are split, against all tokens; y is where the first of them goes for
// token 0; first is a multiple of 16. `exact` reads floats whatever the format: no quantised input decides a routing. Such a weight
// is never packed.
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
// `scratch`: tile_scratch_bytes(cols), aligned to 64.
void compute_tile(const Machine& machine, const MatrixTile& tile, const InputRows& input, std::byte* scratch);

}  // namespace minim::cpu
