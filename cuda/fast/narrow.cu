// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/narrow.inl"

namespace minim::cuda::fast {

const char* why_kernels_cannot_run() noexcept {
    cudaFuncAttributes attributes = {};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, run<NarrowKernel>);
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace minim::cuda::fast
