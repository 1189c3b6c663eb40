// SPDX-License-Identifier: Apache-2.0
#include "placement/devices.h"

#include "handles.h"
#include "structs.h"

using namespace minim;
using namespace minim::capi;

struct minim_devices {
    std::vector<backend::DeviceInfo> devices;
};

minim_status minim_devices_list(minim_runtime* runtime, minim_devices** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const Runtime& shared = *required(runtime, "runtime").runtime;
        *out = new minim_devices{placement::list_devices(shared.cpu_level)};
    });
}

void minim_devices_free(minim_devices* devices) {
    delete devices;
}

size_t minim_devices_count(const minim_devices* devices) {
    return devices == nullptr ? 0 : devices->devices.size();
}

minim_status minim_devices_get(const minim_devices* devices, size_t index, minim_device_info* out,
                               minim_error* err) {
    return guard(err, [&] {
        const std::vector<backend::DeviceInfo>& all = required(devices, "devices").devices;
        if (index >= all.size()) fail(Status::invalid, "device {} of {}", index, all.size());
        const backend::DeviceInfo& device = all[index];
        minim_device_info info{};
        info.usable = device.why_not.empty() ? 1 : 0;
        info.memory_bytes = device.memory_bytes;
        info.free_bytes = device.free_bytes;
        info.name = device.name.c_str();
        info.description = device.description.c_str();
        info.reason = device.why_not.c_str();
        info.unified = device.shares_host_memory ? 1 : 0;
        result_to(out, "minim_device_info", info);
    });
}
