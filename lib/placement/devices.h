// The devices there are, and layers spread over those that a caller chose.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device_memory.h"
#include "backend/plugin.h"
#include "base/cpu_features.h"
#include "model/model.h"
#include "placement/backends.h"
#include "placement/expert_rules.h"

namespace minim::placement {

// The processor first, then what the plug-ins find; a plug-in that cannot be loaded is listed as a device of its kind
// that is not usable.
std::vector<backend::DeviceInfo> list_devices(CpuLevel level);

// "cpu", "reference", "cuda:0". No more of a device's memory is taken than the budget. Throws invalid for a name that
// is none and a budget of the processor, not_found or unsupported, saying why, for a device that is not there or not
// usable.
std::shared_ptr<const backend::Backend> open_device(
    std::string_view name, const Threads& threads, CpuLevel level,
    backend::Arithmetic arithmetic = backend::Arithmetic::fast, uint64_t budget_bytes = backend::k_no_budget);

struct Spread {
    std::vector<std::shared_ptr<const backend::Backend>> devices = {};
    // Of the layers, one a device; empty: of the bytes that lie with them, embedding and head included, in proportion to
    // the memory that may be taken.
    std::vector<double> shares = {};
    // The last so many layers go to the devices, the others stay with `host`; -1: all.
    int64_t n_device_layers = -1;
    std::shared_ptr<const backend::Backend> host = nullptr;
    ExpertRules experts = {};  // with their own `host`
    // Of experts that no rule places, those that leave no room for a context of so many tokens go to the host
    // (fit_experts.h); 0: none do.
    int64_t fit_context = 0;
    // Room on each device for experts of layers whose experts go to the host, in proportion to how many such layers it has. If
    // experts have no rule and no room is to be left for a context, all go to the host; 0: none.
    uint64_t expert_cache_bytes = 0;
};

// Throws invalid where the numbers make no sense.
model::Model::Split split_over(Spread spread);

// "cuda:0 (layers 0-30), cuda:1 (layers 31-61), cpu (experts of layers 0-9, 31)"
std::string placement_text(std::span<const model::Share> shares);

}  // namespace minim::placement
