// SPDX-License-Identifier: Apache-2.0
#include "placement/devices.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "placement/plugins.h"

namespace minim::placement {
namespace {

// Returns the 3 of "cuda:3"; -1 if the name does not have that form.
int32_t index_of(std::string_view name) {
    const size_t colon = name.find(':');
    if (colon == std::string_view::npos || colon == 0) return -1;
    const std::string_view digits = name.substr(colon + 1);
    int32_t index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size();
    return is_number && index >= 0 ? index : -1;
}

// Returns whether a name has only letters and digits: the name of a kind becomes part of a file name.
bool is_kind(std::string_view kind) {
    return std::ranges::all_of(kind, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

backend::DeviceInfo cpu(CpuLevel level) {
    backend::DeviceInfo info;
    info.name = "cpu";
    info.description = format_text("{} cores, {} kernels", usable_core_count(), to_string(level));
    info.memory_bytes = total_memory_bytes();
    info.free_bytes = std::min(available_memory_bytes(), info.memory_bytes);
    return info;
}

}  // namespace

std::vector<backend::DeviceInfo> list_devices(CpuLevel level) {
    std::vector<backend::DeviceInfo> devices = {cpu(level)};
    for (const std::string& kind : plugin_kinds()) {
        try {
            for (backend::DeviceInfo& device : load_plugin(kind).devices())
                devices.push_back(std::move(device));
        } catch (const Error& error) {
            backend::DeviceInfo info;
            info.name = kind;
            info.why_not = error.what();
            devices.push_back(std::move(info));
        }
    }
    return devices;
}

std::vector<DeviceBudget> wanted_devices(std::string_view text, CpuLevel level) {
    if (text == "auto") {
        std::vector<DeviceBudget> usable;
        for (const backend::DeviceInfo& device : list_devices(level))
            if (device.name != "cpu" && device.why_not.empty()) usable.push_back({.name = device.name});
        return usable;
    }
    std::vector<DeviceBudget> wanted = parse_device_budgets(text);
    if (std::ranges::none_of(wanted, [](const DeviceBudget& device) { return device.part > 0.0; }))
        return wanted;
    const std::vector<backend::DeviceInfo> known = list_devices(level);
    for (DeviceBudget& device : wanted) {
        const auto info = std::ranges::find(known, device.name, &backend::DeviceInfo::name);
        if (info != known.end())
            device.bytes = static_cast<uint64_t>(device.part * static_cast<double>(info->memory_bytes));
    }
    return wanted;
}

std::shared_ptr<const backend::Backend> open_device(std::string_view name, const Threads& threads,
                                                    CpuLevel level, backend::Arithmetic arithmetic,
                                                    uint64_t budget_bytes) {
    if (name == "cpu" || name == "reference") {
        if (budget_bytes != backend::k_no_budget)
            fail(Status::invalid, "a budget is for a device with memory of its own; {} has none", name);
        return make_backend(name, threads, level);
    }
    const std::string_view kind = name.substr(0, name.find(':'));
    const int32_t index = index_of(name);
    if (index < 0 || !is_kind(kind))
        fail(Status::invalid, "'{}' is not a device name; examples: cpu, cuda:0", name);
    try {
        return load_plugin(kind).open(index, arithmetic, budget_bytes);
    } catch (const Error& error) {
        ErrorFacts facts = error.facts();
        facts.device = DeviceName(name);
        throw Error(error.status(), error.reason(), format_text("device {}: {}", name, error.what()), facts);
    }
}

std::string placement_text(const model::Model& model) {
    std::vector<int64_t> n_cached;
    for (const auto& pool : model.expert_pools())
        n_cached.push_back(pool == nullptr ? 0 : pool->state().n_places);
    return to_string(model.placement(), n_cached);
}

}  // namespace minim::placement
