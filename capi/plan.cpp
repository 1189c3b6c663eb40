// SPDX-License-Identifier: Apache-2.0
#include "placement/plan.h"

#include <cstddef>

#include "handles.h"
#include "kv_format.h"
#include "model/bind.h"
#include "model/headers.h"
#include "placement/devices.h"
#include "placement/measure_device.h"
#include "placement/measure_host.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

// Returns the devices that the parameters name, or the usable devices of this machine.
std::vector<std::string> device_texts(const Runtime& runtime, const minim_plan_params& p) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < p.n_devices; ++i) texts.emplace_back(&required(p.devices[i], "devices"));
    if (p.devices != nullptr) return texts;
    for (const backend::DeviceInfo& info : placement::list_devices(runtime.cpu_level))
        if (info.name != "cpu" && info.why_not.empty()) texts.push_back(info.name);
    return texts;
}

int64_t positive_or(int32_t value, int64_t otherwise, const char* name) {
    if (value < 0) fail(Status::invalid, "{} is {}", name, value);
    return value == 0 ? otherwise : value;
}

placement::Plan plan_of(const Runtime& runtime, const char* path, const minim_plan_params& p) {
    if (p.devices == nullptr && p.n_devices > 0) fail(Status::invalid, "argument devices is NULL");
    if (p.n_device_layers < 0) fail(Status::invalid, "n_device_layers is {}", p.n_device_layers);
    if (p.split == nullptr && p.n_split > 0) fail(Status::invalid, "argument split is NULL");
    std::vector<placement::DeviceFacts> devices;
    for (const auto& [facts, text] : placement::parse_devices(device_texts(runtime, p))) {
        devices.push_back(facts);
        placement::complete_device(devices.back(), text, runtime.threads, runtime.cpu_level);
    }
    placement::HostFacts host = p.host != nullptr
                                    ? placement::parse_host(p.host)
                                    : placement::measured_host(runtime.threads.decode->n_threads());
    const checkpoint::Checkpoint checkpoint = checkpoint::Checkpoint::open(path, runtime.log);
    model::Config config = model::read_config(checkpoint, runtime.log);
    const std::vector<weights::WeightSpec> weights = model::bind_weights(checkpoint, config, runtime.log);
    if (p.host == nullptr)
        placement::measure_rates(host, weights, runtime.threads, runtime.cpu_level, runtime.log);
    return placement::make_plan(
        {.config = config,
         .weights = weights,
         .devices = devices,
         .host = host,
         .n_context = p.n_context,
         .n_sequences = positive_or(p.n_sequences, 1, "n_sequences"),
         .for_engine = flag(p.for_engine, "for_engine"),
         .n_ubatch = positive_or(p.n_ubatch, 0, "n_ubatch"),
         .k_format = kv_format(p.k_format, "k_format").value_or(backend::k_default_kv_format),
         .v_format = kv_format(p.v_format, "v_format").value_or(backend::k_default_kv_format),
         .overrides = std::string(optional_text(p.overrides)),
         .n_host_experts = p.n_host_experts,
         .most_cache_bytes = p.expert_cache_bytes > 0 ? p.expert_cache_bytes : MINIM_EXPERT_CACHE_ROOM,
         .caches_host_experts = p.expert_cache_bytes > 0,
         .n_device_layers = p.n_device_layers > 0 ? p.n_device_layers : -1,
         .shares = {p.split, p.split + p.n_split}});
}

}  // namespace

minim_status minim_plan_make(minim_runtime* runtime, const char* path, const minim_plan_params* params,
                             minim_text** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const std::shared_ptr<Runtime> shared = required(runtime, "runtime").runtime;
        shared->require_threads();
        const minim_plan_params p =
            params_of(params, "minim_plan_params", offsetof(minim_plan_params, n_device_layers));
        *out = new minim_text{placement::to_json(plan_of(*shared, &required(path, "path"), p))};
    });
}
