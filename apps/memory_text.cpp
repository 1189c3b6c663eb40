// SPDX-License-Identifier: Apache-2.0
#include "memory_text.h"

#include <fmt/format.h>

namespace program {

namespace {

// Returns "layers 0-30", "layers 31-61, experts of 10", or "experts of 20 layers".
std::string layers_text(const minim_device_memory& device) {
    if (device.n_layer == 0)
        return fmt::format("experts of {} {}", device.n_expert_layers,
                           device.n_expert_layers == 1 ? "layer" : "layers");
    std::string text =
        fmt::format("layers {}-{}", device.first_layer, device.first_layer + device.n_layer - 1);
    if (device.n_expert_layers != device.n_layer)
        text += fmt::format(", experts of {}", device.n_expert_layers);
    return text;
}

}  // namespace

std::string size_text(uint64_t bytes) {
    const double mebibytes = static_cast<double>(bytes) / (1 << 20);
    return mebibytes < 1024.0 ? fmt::format("{:.1f} MiB", mebibytes)
                              : fmt::format("{:.1f} GiB", mebibytes / 1024.0);
}

std::string memory_text(const minim_device_memory& device) {
    std::string text =
        fmt::format("{}: {}, weights {} (experts {}{}), KV {}, work {}", device.name, layers_text(device),
                    size_text(device.weight_bytes), size_text(device.expert_bytes),
                    device.weights_mapped != 0 ? "; mapped" : "", size_text(device.kv_bytes),
                    size_text(device.work_bytes));
    if (device.locked_bytes > 0) text += ", locked " + size_text(device.locked_bytes);
    if (device.free_bytes != UINT64_MAX) text += ", free " + size_text(device.free_bytes);
    if (device.budget_bytes > 0) text += " of a budget of " + size_text(device.budget_bytes);
    if (device.token_in_bytes + device.token_out_bytes > 0)
        text += fmt::format(", a token brings {:.1f} KiB and takes {:.1f} KiB",
                            static_cast<double>(device.token_in_bytes) / 1024.0,
                            static_cast<double>(device.token_out_bytes) / 1024.0);
    return text;
}

}  // namespace program
