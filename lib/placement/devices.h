// SPDX-License-Identifier: Apache-2.0
// Lists devices, and spreads layers over the devices that the caller chose.
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
#include "placement/facts.h"
#include "placement/fit_experts.h"

namespace minim::placement {

// Returns the CPU first, then the devices of the plug-ins. A plug-in that cannot be loaded is listed as a device of
// its kind that is not usable.
std::vector<backend::DeviceInfo> list_devices(CpuLevel level);

// Opens "cpu", "reference" or "cuda:0". At most `budget` bytes of the device's memory are allocated. Throws invalid
// for a bad name and for a budget of the CPU, not_found or unsupported, with the reason, for a device that does not
// exist or is not usable.
std::shared_ptr<const backend::Backend> open_device(
    std::string_view name, const Threads& threads, CpuLevel level,
    backend::Arithmetic arithmetic = backend::Arithmetic::fast, uint64_t budget_bytes = backend::k_no_budget);

// Returns the names and budgets of devices in a text: "cuda:0,CUDA1=20GiB,cuda:2=0.9". "auto" stands for all usable devices,
// and there may be none. Throws invalid if the text is malformed or names a device twice.
std::vector<DeviceBudget> wanted_devices(std::string_view text, CpuLevel level);

struct Spread {
    std::vector<std::shared_ptr<const backend::Backend>> devices = {};
    // Shares of the layers, one for each device; empty: layers are split by their bytes, embedding and head included,
    // in proportion to the memory that may be allocated.
    std::vector<double> shares = {};
    // The number of layers on the devices: the last layers of the model. The others stay on `host`. -1: all.
    int64_t n_device_layers = -1;
    std::shared_ptr<const backend::Backend> host = nullptr;
    ExpertRules experts = {};  // with their own `host`
    // The context that must fit on the devices, in tokens, with a KV cache of these formats. Experts that no rule places go to
    // the host as needed (fit_experts.h). 0: none.
    int64_t fit_context = 0;
    Format k_format = backend::k_default_kv_format;
    Format v_format = backend::k_default_kv_format;
    // Bytes on the devices for a cache of experts; k_cache_all_room: the room that the context leaves free; 0: no cache. Without
    // fit_context, a size is not checked against the context, and all experts that no rule places go to the host.
    uint64_t expert_cache_bytes = 0;
    // Returns when steps copy missing experts to a device with a cache. expert_bytes: the bytes of one expert, on average. Empty:
    // steps never copy experts.
    std::function<runtime::StreamRule(const backend::Backend& device, const model::Config& config,
                                      double expert_bytes)>
        stream_rule = {};
    // True if the caller gives no option for experts. split_over() then chooses a context, and makes a cache if not all experts
    // fit beside it.
    bool chooses_fit = false;
};

// Spreads the layers. Throws invalid for impossible numbers. Writes a chosen context to `log`, which must outlive the
// result.
model::Model::Split split_over(Spread spread, const Logger* log = nullptr);

// Returns "cuda:0 (layers 0-30), cuda:1 (layers 31-61, cache of 900 experts), cpu (experts of layers 31-61)". n_cached has, for
// each share, the number of experts that the cache of its device has room for. It may be shorter than the shares.
std::string placement_text(std::span<const model::Share> shares, std::span<const int64_t> n_cached = {});
std::string placement_text(const model::Model& model);

}  // namespace minim::placement
