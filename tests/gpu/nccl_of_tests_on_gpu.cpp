// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda/nccl.h"
#include "gpu/nccl_of_tests.h"

namespace minim::test {

// The first version that takes several ranks of one GPU, and what it asks for.
constexpr int k_several_ranks_a_gpu = 23000;
constexpr const char* k_allow = "NCCL_MULTI_RANK_GPU_ENABLE";

bool prepare_nccl(int n_ranks) {
    ::setenv(k_allow, "1", 0);
    std::string why_not;
    const auto library = cuda::nccl::open(why_not);
    if (library != nullptr && library->version >= k_several_ranks_a_gpu) return true;
    if (library != nullptr)
        why_not = "version " + cuda::nccl::version_text(library->version) + " takes one rank of a GPU";
    std::printf("skipped: %d ranks of one GPU need NCCL 2.30: %s\n", n_ranks, why_not.c_str());
    return false;
}

}  // namespace minim::test
