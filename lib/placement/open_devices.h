// SPDX-License-Identifier: Apache-2.0
// Opens the devices of a model as a caller requests, and chooses what the request leaves open.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "placement/devices.h"
#include "placement/split.h"
#include "runtime/expert_pool.h"

namespace minim::placement {

struct OpenRequest {
    std::string_view host = {};     // "cpu" or "reference"; empty: cpu
    bool locks_memory = false;      // of the host
    bool is_deterministic = false;  // devices compute with Arithmetic::deterministic
    bool may_be_missing = false;    // devices that are missing are left out, with a warning
    std::optional<std::vector<DeviceBudget>> devices = {};  // none: all layers are on the host
    std::span<const uint64_t> budgets = {};                 // of each device, in bytes, 0: none; or empty
    std::span<const double> split = {};                     // as Spread::shares
    int64_t n_device_layers = 0;                            // 0: all
    std::optional<std::string_view> overrides = {};         // parse_overrides()
    int64_t n_host_experts = 0;                             // ExpertRules::n_host_layers
    // As in Spread. Without a context, a cache size and rules for experts, a context and a cache are chosen.
    int64_t fit_context = 0;
    int64_t fit_rows = 0;
    int64_t fit_requests = 0;
    std::optional<Format> k_format = {};
    std::optional<Format> v_format = {};
    uint64_t expert_cache_bytes = 0;
};

struct OpenedDevices {
    Spread spread;
    std::shared_ptr<const backend::HostDevice> host;  // as in `spread`
};

// Opens the host's backend and the devices. Devices compute in exact arithmetic if the host's backend is the reference.
// `log` must outlive the spread and the devices, whose warnings it gets. Throws as open_device(), and invalid for impossible
// numbers and for options of devices if no device is named.
OpenedDevices open_devices(const OpenRequest& request, Threads threads, CpuLevel level, const Logger& log);

// Returns how experts move between host and devices: as `wanted` says; without it, reproducibly, or not at all if
// is_deterministic is set. Throws invalid if the two arguments contradict each other.
runtime::ExpertMoves choose_moves(std::optional<runtime::ExpertMoves> wanted, bool is_deterministic);

}  // namespace minim::placement
