// The CUDA backend as a plug-in, libminim-cuda.so.
#include "backend/plugin.h"

#include "base/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/runtime.h"

namespace {

std::shared_ptr<const minim::backend::Backend> open(int32_t index, minim::backend::Arithmetic arithmetic,
                                                    uint64_t budget_bytes) {
    const std::vector<minim::backend::DeviceInfo> devices = minim::cuda::runtime::devices();
    // A machine whose driver does not answer has one entry, which says why.
    const bool has_index = static_cast<size_t>(index) < devices.size();
    const minim::backend::DeviceInfo* device = has_index ? &devices[static_cast<size_t>(index)] : nullptr;
    if (device == nullptr && !devices.empty() && devices[0].name == "cuda") device = devices.data();
    if (device == nullptr) minim::fail(minim::Status::not_found, "there are {} devices", devices.size());
    if (!device->why_not.empty()) minim::fail(minim::Status::unsupported, "{}", device->why_not);
    return minim::cuda::make_cuda_backend(index, arithmetic, budget_bytes);
}

constexpr minim::backend::Plugin k_plugin = {
    minim::backend::k_plugin_interface, minim::backend::k_plugin_build, minim::cuda::runtime::devices, open};

}  // namespace

extern "C" __attribute__((visibility("default"))) const minim::backend::Plugin* minim_backend_plugin() {
    return &k_plugin;
}
