#include "cuda/fast/device_thread.h"
#include "cuda/fast/narrow.inl"

namespace minim::cuda::fast {

const char* why_kernels_cannot_run() noexcept {
    cudaFuncAttributes attributes = {};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, run<NarrowKernel>);
    if (error == cudaSuccess) return nullptr;
    cudaGetLastError();
    return cudaGetErrorString(error);
}

}  // namespace minim::cuda::fast
