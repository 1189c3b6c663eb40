// SPDX-License-Identifier: Apache-2.0
// The CUDA backend as a plug-in, libminim-cuda.so.
#include "backend/plugin.h"

#include "base/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/debug.h"
#include "cuda/runtime.h"

namespace {

std::shared_ptr<const minim::backend::Backend> open(int32_t index, minim::backend::Arithmetic arithmetic,
                                                    uint64_t budget_bytes) {
    minim::cuda::debug_switches();  // invalid switches are an error here, and nowhere else
    minim::cuda::launch_paths();    // the same
    const int32_t count = minim::cuda::runtime::device_count();
    if (index < 0 || (count > 0 && index >= count))
        minim::fail(minim::Status::not_found, "there are {} devices", count);
    // If the driver does not work, the list has one entry, which has the reason.
    const minim::backend::DeviceInfo device =
        count > 0 ? minim::cuda::runtime::device(index) : minim::cuda::runtime::devices().front();
    if (!device.why_not.empty()) minim::fail(minim::Status::unsupported, "{}", device.why_not);
    return minim::cuda::make_cuda_backend(index, arithmetic, budget_bytes);
}

constexpr minim::backend::Plugin k_plugin = {
    minim::backend::k_plugin_interface, minim::backend::k_plugin_build, minim::cuda::runtime::devices, open};

}  // namespace

extern "C" __attribute__((visibility("default"))) const minim::backend::Plugin* minim_backend_plugin() {
    return &k_plugin;
}
