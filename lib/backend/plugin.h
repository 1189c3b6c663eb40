// How a backend that is a shared library of its own is found and opened. `libminim-KIND.so` exports
// minim_backend_plugin(); its devices are KIND:0, KIND:1 ... It has copies of the layers it uses and shares only
// the C++ runtime with the library, so both must be of one build: `interface` and `build` say whether they are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace minim::backend {

struct DeviceInfo {
    std::string name;         // "cuda:0"
    std::string description;  // as its maker calls it
    std::string why_not;      // why it cannot be used; empty where it can
    uint64_t memory_bytes = 0;
    uint64_t free_bytes = 0;
};

// How a device computes.
enum class Arithmetic : uint8_t {
    fast,   // packed weights, quantised inputs, half precision where it serves
    exact,  // plain float, as the reference: slow
    // With the kernels of fast arithmetic that serve every batch, and no library whose results depend on its version:
    // a row's bits do not depend on the rows beside it. Slower.
    deterministic,
};

// Raised whenever something in this folder changes that both sides see.
inline constexpr uint32_t k_plugin_interface = 9;
// The compiler and its library's layout.
inline constexpr const char* k_plugin_build = __VERSION__;

struct Plugin {
    uint32_t interface;  // first, so that it can be read whatever follows
    const char* build;
    // All devices there are, usable or not.
    std::vector<DeviceInfo> (*devices)();
    // `budget_bytes`: the most memory of the device to take, UINT64_MAX for all of it. Throws not_found or
    // unsupported, saying why, or what allocating takes.
    std::shared_ptr<const Backend> (*open)(int32_t index, Arithmetic arithmetic, uint64_t budget_bytes);
};

using PluginFunction = const Plugin* (*)();
inline constexpr const char* k_plugin_function = "minim_backend_plugin";

}  // namespace minim::backend
