// SPDX-License-Identifier: Apache-2.0
// The kernels of packed weights, one table for each format. Each family of formats is compiled in a file of its own
// (kernels_*.cu), because all of them together would take minutes to compile.
#pragma once

#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

struct PanelKernels {
    void (*linear)(Stream stream, const Products& products, const Q8Block* input, int64_t n, bool many);
    void (*linear_norm)(Stream stream, const Products& products, const NormRow& norm);
    void (*activate)(Stream stream, const Experts& gate, const Experts& up, const Q8Block* h, int64_t n_used,
                     const Slots& slots, Q8Block* activated);
    void (*project)(Stream stream, const Experts& experts, const Q8Block* input, int64_t slots_a_row,
                    const Slots& slots, float* output, const SlotSums* sums);
    void (*unpack)(Stream stream, const Weight& weight, uint16_t* out);
};

// By format; without functions for formats that have no kernels.
struct PanelKernelTable {
    PanelKernels by_format[k_format_count];
};

extern const PanelKernelTable k_blocks_of_32, k_k_quants, k_value_tables, k_grids, k_trellis, k_ternary;

}  // namespace minim::cuda::fast
