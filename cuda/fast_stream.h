// SPDX-License-Identifier: Apache-2.0
// The operations that the stream kernels (fast/stream_products.h, fast/stream_tiles.h) compute: those on packed weights, of up to
// k_max_stream_rows rows, and experts of up to k_max_stream_tile_rows rows. Each of these functions launches a kernel and returns true.
// If the device cannot run it for the arguments, they launch nothing and return false: columns that are no multiple of 256, too many
// rows, or rows of input that leave a block too little memory for weights; floats that are not aligned, are overwritten by results, or
// are for slots in tiles.
#pragma once

#include "cuda/fast/stream_kernels.h"

namespace minim::cuda::fast {

inline constexpr int64_t k_max_stream_rows = 4;
inline constexpr int64_t k_max_stream_tile_rows = 128;
inline constexpr int32_t k_stream_tile_slots = 4;  // of one expert

bool has_stream_kernel(Format format);

// As linear() and linear_norm().
bool linear_stream(Stream stream, const Products& products, const StreamRows& input, int64_t n,
                   const StreamDevice& device);
bool linear_norm_stream(Stream stream, const Products& products, const NormRow& norm,
                        const StreamDevice& device);
// As activate() and project(); project of slots that have been activated in the launch before, each with an input of its own. Rows of
// whole panels. Sums leave out slots whose expert is not here. Tiles have at most k_stream_tile_slots slots, and no sums.
bool activate_stream(Stream stream, const Experts& gate, const Experts& up, const StreamRows& h,
                     int64_t n_used, const Slots& slots, Q8Block* activated, const StreamDevice& device);
bool project_stream(Stream stream, const Experts& experts, const Q8Block* input, const Slots& slots,
                    float* output, const SlotSums* sums, const StreamDevice& device);

}  // namespace minim::cuda::fast
