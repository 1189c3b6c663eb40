// SPDX-License-Identifier: Apache-2.0
// The interface of backends in shared libraries. `libminim-KIND.so` exports minim_backend_plugin(); its devices are
// KIND:0, KIND:1 ... It has its own copies of the layers that it uses and shares only the C++ runtime with the
// library. So both must be of one build: `interface` and `build` are compared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace minim::backend {

struct DeviceInfo {
    std::string name;         // "cuda:0"
    std::string description;  // the name of the product
    std::string
        generation;       // "sm_86": devices of one generation compute with the same bits; empty: not known
    std::string why_not;  // why it cannot be used; empty if it can
    uint64_t memory_bytes = 0;
    uint64_t free_bytes = 0;
    double multiprocessor_hz = 0.0;   // multiprocessors times the clock that the driver names; 0: not known
    bool shares_host_memory = false;  // Device::shares_host_memory()
};

// The arithmetic of a device.
enum class Arithmetic : uint8_t {
    fast,   // packed weights, quantised inputs, half precision where it is accurate enough
    exact,  // plain float, as the reference: slow
    // Fast arithmetic with kernels that work for every batch, and without libraries whose results depend on their
    // version: a row's bits do not depend on batch composition. Slower.
    deterministic,
};

// The version of the interface. Increase it if anything in this folder changes that both sides use.
inline constexpr uint32_t k_plugin_interface = 15;
// Identifies the compiler, and with it the layout of its standard library.
inline constexpr const char* k_plugin_build = __VERSION__;

struct Plugin {
    uint32_t interface;  // first, so that it can be read in every version
    const char* build;
    // Returns all devices, usable or not.
    std::vector<DeviceInfo> (*devices)();
    // Opens a device. `budget_bytes`: the maximum memory to allocate, UINT64_MAX for all of it. Throws not_found or
    // unsupported with the reason, or what allocation throws.
    std::shared_ptr<const Backend> (*open)(int32_t index, Arithmetic arithmetic, uint64_t budget_bytes);
};

using PluginFunction = const Plugin* (*)();
inline constexpr const char* k_plugin_function = "minim_backend_plugin";

}  // namespace minim::backend
