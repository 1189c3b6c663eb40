// Work space of one stream of steps: one block of memory, reserved once and cut into the buffers of the
// operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "base/buffer.h"
#include "cpu/kernels.h"

namespace minim::cpu {

// Bytes a thread needs for a tile of a matrix with `cols` columns (matrix_tile.h).
int64_t tile_scratch_bytes(int64_t cols) noexcept;

class CpuScratch : public backend::Scratch {
  public:
    // Throws out_of_memory, or invalid where expert choices of a step are more than an index holds.
    CpuScratch(const backend::StepLimits& limits, int32_t n_threads);

    backend::StepLimits limits;
    int64_t max_cols;  // of any linear's input

    // Quantised inputs, by Activation; [f32] stays null. [n_rows] rows of max_cols.
    std::byte* input[k_activation_count] = {};

    std::byte* tile;    // [threads][tile_scratch_bytes(max_cols)]
    float* scores;      // attention: [threads][heads of a group][n_context]
    float* score_sums;  // [threads][heads of a group]
    float* rotation;    // cosines, then sines: [threads][head_dim]
    float* router;      // [n_rows][n_expert]

    // Of experts(); "slot" is row * n_expert_used + choice, slots are [n_rows * n_expert_used] in number.
    int32_t* first_of_expert;  // [n_expert + 1]: where an expert's entries start in the sorted order
    int32_t* active_expert;    // [n_expert]: experts with an entry
    int32_t* entry_row;        // [slots]: input row of an entry of the sorted order
    int32_t* entry_of_slot;    // [slots]
    float* gate;               // [slots][ff], sorted order; the activated product in the end
    float* up;                 // [slots][ff]
    std::byte* activated;      // gate quantised for `down`
    float* expert_output;      // [slots][hidden]

    std::byte* tile_of(int32_t thread) const noexcept { return tile + thread * tile_scratch_bytes(max_cols); }

  private:
    Buffer memory_;
};

}  // namespace minim::cpu
