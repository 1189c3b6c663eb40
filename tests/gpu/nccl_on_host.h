// SPDX-License-Identifier: Apache-2.0
// What tests tell the stand-in for NCCL (nccl_on_host.cpp), beside the functions of NCCL itself: by the names below, with dlsym().
#pragma once

namespace minim::test {

// Does work(data) in the order of the calling thread's stream, perhaps later and more than once, and drop(data) after the last time.
using NcclRun = void (*)(void (*work)(void* data), void (*drop)(void* data), void* data);

inline constexpr const char* k_nccl_run_with = "minim_nccl_on_host_run_with";  // void (NcclRun)
inline constexpr const char* k_nccl_break =
    "minim_nccl_on_host_break";  // void (): all communicators fail from now on
inline constexpr const char* k_nccl_count =
    "minim_nccl_on_host_count";  // int (): communicators that have not ended
inline constexpr const char* k_nccl_refuses =
    "MINIM_NCCL_ON_HOST_REFUSES";  // environment: it connects no ranks
inline constexpr const char* k_nccl_version =
    "MINIM_NCCL_ON_HOST_VERSION";  // environment: the version that it says it has

}  // namespace minim::test
