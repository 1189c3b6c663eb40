// SPDX-License-Identifier: Apache-2.0
// Work space of one stream of steps: one block of memory, reserved once and cut into the buffers of the
// operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "cpu/kernels.h"

namespace minim::cpu {

// Returns the bytes a thread needs for a tile of a matrix with `cols` columns (matrix_tile.h).
int64_t tile_scratch_bytes(int64_t cols) noexcept;

// The maximum number of rows of an expert's gate and up, and of tokens, whose products a thread of experts() has in scratch at a time.
inline constexpr int64_t k_gate_tile_rows = 256;
inline constexpr int64_t k_gate_tile_tokens = 128;

// The number of positions whose attention scores are in scratch at a time: a multiple of a page.
inline constexpr int64_t k_attend_span_positions = 1024;

// The maximum number of rows whose scores of blocks are in scratch at a time.
inline constexpr int64_t k_scored_rows = 256;

// The softmax of a query over the positions of one span, or of several joined spans: the sum of exp(score - largest).
struct AttendedSpan {
    float largest = 0.0F;
    float sum = 0.0F;  // 0: no positions
};

// Private work space of one thread, on pages of its own before all shared buffers. A CPU prefetches beyond the last row that
// it reads; if another core writes there, the two take the cache lines from each other. On cores without a common cache that
// made a product up to 1.7 times slower.
struct ThreadScratch {
    std::byte* tile;  // tile_scratch_bytes(max_cols)

    float* gate;  // [k_gate_tile_tokens][k_gate_tile_rows]
    float* up;

    // Used by attend(), for the queries of a block.
    float* rotation;             // [head_dim]: cosines, then sines
    float* key_tile;             // score_tile_floats(head_dim)
    float* scores;               // [queries][k_attend_span_positions]
    AttendedSpan* query_totals;  // [queries]: of all spans so far
    AttendedSpan* span_totals;   // [queries]: of a span
    float* span_sums;            // [queries][head_dim]
    int32_t* query_head;         // [queries]
};

class CpuScratch : public backend::Scratch {
  public:
    // Allocates from the backend's memory. Throws out_of_memory, or invalid if a step has more expert choices than an
    // int32_t can count.
    CpuScratch(const backend::StepLimits& limits, int32_t n_threads, const backend::Backend& backend);
    // Returns the bytes that the constructor allocates. Throws for the same limits as the constructor.
    static uint64_t bytes_for(const backend::StepLimits& limits, int32_t n_threads);

    backend::StepLimits limits;
    int64_t max_cols;  // the maximum number of columns of an input of linear()

    // Quantised inputs, by Activation; [f32] stays null. [n_rows] rows of max_cols.
    std::byte* input[k_activation_count] = {};

    std::vector<ThreadScratch> threads;

    float* router;  // [n_rows][n_expert]

    // Used by attend(). A query is a head of a row; a block of queries is multiplied with the keys of a page together.
    int64_t n_block_queries;    // at most
    int32_t* first_row_of_run;  // [n_rows + 1]
    int16_t* query_codes;       // [n_rows][n_head][head_dim]: queries as codes, used if keys are codes
    float* query_scales;        // [n_rows][n_head]
    AttendedSpan* row_totals;   // [spans of n_context][n_head]: of one row
    float* row_sums;            // [spans of n_context][n_head][head_dim]
    // Used by attend() with an index, of which `limits.index` is the shape.
    int64_t n_index_blocks;  // the blocks of n_context
    int64_t n_scored_rows;   // rows whose blocks are scored together
    float* block_scores;     // [n_scored_rows][index heads][n_index_blocks]
    int32_t* chosen_blocks;  // [n_rows][index heads][top]: in ascending order

    // Used by experts(). A "slot" is row * n_expert_used + choice, [slots] is n_rows * n_expert_used.
    int32_t* first_of_expert;  // [n_expert + 1]: where an expert's entries start in the sorted order
    int32_t* active_expert;    // [n_expert]: experts with an entry
    int32_t* entry_row;        // [slots]: input row of an entry of the sorted order
    int32_t* entry_of_slot;    // [slots]
    std::byte* activated;  // [slots][ff], sorted order: input of `down`, as floats or quantised (fewer bytes)
    float* expert_output;  // [slots][hidden]

    const ThreadScratch& of(int32_t thread) const noexcept { return threads[thread]; }

  private:
    CpuScratch(const backend::StepLimits& limits, int32_t n_threads);  // measures, without allocating

    uint64_t bytes_ = 0;
    std::unique_ptr<backend::Memory> memory_;
};

}  // namespace minim::cpu
