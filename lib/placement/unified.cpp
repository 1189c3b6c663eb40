// SPDX-License-Identifier: Apache-2.0
#include "placement/unified.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "placement/rules.h"

namespace minim::placement {
namespace {

constexpr uint64_t k_unified_reserve_bytes = uint64_t{8} << 30;
constexpr uint64_t k_unified_part = 12;  // of a small memory, a twelfth

}  // namespace

uint64_t unified_reserve_of(uint64_t memory_bytes) {
    return std::min(k_unified_reserve_bytes, memory_bytes / k_unified_part);
}

uint64_t unified_memory_of_machine(uint64_t available_bytes, uint64_t total_bytes) {
    return std::min(available_bytes + unified_reserve_of(total_bytes), total_bytes);
}

void check_unified(const Request& request, const Machine& machine) {
    const auto unified = std::ranges::find_if(machine.devices, &DeviceFacts::is_unified);
    if (unified == machine.devices.end()) return;
    const std::string_view name = unified->name;
    if (machine.devices.size() > 1 || !machine.others.empty())
        fail(Status::unsupported, "{} shares the host's memory, so it must be the only device; {} are named",
             name, machine.devices.size() + machine.others.size());
    constexpr std::string_view k_reason =
        "shares the host's memory and bandwidth: experts on the CPU would save neither, and experts in a "
        "cache "
        "would be in memory twice";
    if (request.n_host_experts != 0)
        fail(Status::unsupported,
             "n_host_experts ({}) keeps experts on the CPU, but {} {}; fewer layers on the device are "
             "possible "
             "(n_device_layers)",
             request.n_host_experts, name, k_reason);
    if (request.overrides)
        for (const Override& item : parse_overrides(*request.overrides))
            if (device_name(item.device) == "cpu")
                fail(Status::unsupported,
                     "override {}={} keeps experts on the CPU, but {} {}; fewer layers on the device are "
                     "possible (n_device_layers)",
                     item.pattern, item.device, name, k_reason);
    if (request.cache_bytes > 0 && request.cache_bytes != k_cache_all_room)
        fail(Status::unsupported, "expert_cache_bytes ({}) asks for a cache of experts, but {} {}",
             request.cache_bytes, name, k_reason);
}

}  // namespace minim::placement
