// SPDX-License-Identifier: Apache-2.0
// Switches from the environment. MINIM_CUDA_DEBUG disables parts of the launch path, to find a faulty one. MINIM_CUDA_PATHS
// enables paths that are not the default because no GPU has timed them yet:
//
//   MINIM_CUDA_DEBUG=no-early,no-record MINIM_CUDA_PATHS=two-tables minim-bench ...
#pragma once

#include <string_view>

namespace minim::cuda {

struct DebugSwitches {
    bool early = true;     // no-early: kernels start when the previous one has ended
    bool prefetch = true;  // no-prefetch: kernels do not prefetch their weights
    bool fold = true;      // no-fold: the norm of a row is a kernel of its own
    bool record = true;    // no-record: every step is launched kernel by kernel
    bool library = true;   // no-library: cuBLASLt is not used
    bool nccl = true;      // no-nccl: ranks sum without NCCL
    bool peer_sum = true;  // no-peer-sum: ranks do not sum in a kernel of their own
    bool sync = false;     // sync: waits for each kernel, so that an error names it; implies no-record
};

// Parses words separated by commas; the text may be empty. Throws invalid for an unknown word.
DebugSwitches parse_debug_switches(std::string_view words);

// Returns the switches of the process: MINIM_CUDA_DEBUG, read at the first call. Throws as parse_debug_switches().
const DebugSwitches& debug_switches();

struct LaunchPaths {
    bool two_tables =
        false;  // two-tables: kernels for one row multiply table values without selecting them first
    bool chosen_places =
        false;  // chosen-places: the router copies the addresses of the experts that it chooses
    bool dense_prompts =
        false;  // dense-prompts: cuBLASLt multiplies the packed matrices of prompts, unpacked to F16
    bool tiles =
        false;  // tiles: many rows of packed weights, F16, BF16 and FP8 are multiplied by fast/linear_tile.h
    bool exchange_pieces =
        false;  // exchange-pieces: exchanges with the host by numbered pieces, in fewer kernels
    bool stream =
        false;  // stream: up to four rows of packed weights by kernels with bulk copies (fast/stream_products.h)
};

// Parses words separated by commas; the text may be empty. Throws invalid for an unknown word.
LaunchPaths parse_launch_paths(std::string_view words);

// Returns the paths of MINIM_CUDA_PATHS as it is now; a device takes them when it is opened. Throws as parse_launch_paths().
LaunchPaths launch_paths();

}  // namespace minim::cuda
