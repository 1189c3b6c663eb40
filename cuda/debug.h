// SPDX-License-Identifier: Apache-2.0
// Switches that disable parts of the launch path, from the environment, to find a faulty one:
//
//   MINIM_CUDA_DEBUG=no-early,no-record minim-bench ...
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

}  // namespace minim::cuda
