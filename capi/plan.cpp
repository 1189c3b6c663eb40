// SPDX-License-Identifier: Apache-2.0
#include "placement/plan.h"

#include <cstddef>

#include "handles.h"
#include "kv_format.h"
#include "model/bind.h"
#include "model/headers.h"
#include "placement/devices.h"
#include "placement/measure.h"
#include "placement/measure_kernels.h"
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

placement::ParallelRequest parallel_of(const minim_plan_params& p) {
    if (p.reserved != 0) fail(Status::invalid, "reserved is {}, not 0", p.reserved);
    return {.tensor = p.tensor_parallel, .experts = p.expert_parallel, .pipeline = p.pipeline_parallel};
}

placement::Request request_of(const minim_plan_params& p) {
    if (p.n_device_layers < 0) fail(Status::invalid, "n_device_layers is {}", p.n_device_layers);
    if (p.split == nullptr && p.n_split > 0) fail(Status::invalid, "argument split is NULL");
    placement::Request request;
    request.shares = {p.split, p.split + p.n_split};
    if (p.n_device_layers > 0) request.n_device_layers = p.n_device_layers;
    if (p.overrides != nullptr && *p.overrides != '\0') request.overrides = p.overrides;
    request.n_host_experts = p.n_host_experts;
    request.n_context = p.n_context;
    request.n_sequences = positive_or(p.n_sequences, 1, "n_sequences");
    request.for_engine = flag(p.for_engine, "for_engine");
    request.n_rows = positive_or(p.n_ubatch, 0, "n_ubatch");
    request.k_format = kv_format(p.k_format, "k_format").value_or(backend::k_default_kv_format);
    request.v_format = kv_format(p.v_format, "v_format").value_or(backend::k_default_kv_format);
    request.cache_bytes = p.expert_cache_bytes > 0 ? p.expert_cache_bytes : placement::k_cache_all_room;
    request.caches_host_experts = p.expert_cache_bytes > 0;
    request.parallel = parallel_of(p);
    if (p.link != nullptr && *p.link != '\0') request.link = placement::parse_link(p.link);
    return request;
}

placement::Plan plan_of(const Runtime& runtime, const char* path, const minim_plan_params& p) {
    if (p.devices == nullptr && p.n_devices > 0) fail(Status::invalid, "argument devices is NULL");
    placement::Request request = request_of(p);
    placement::Machine machine;
    std::string unified_text;  // of a device that shares the host's memory
    std::vector<std::string> texts;
    for (const auto& [facts, text] : placement::parse_devices(device_texts(runtime, p))) {
        machine.devices.push_back(facts);
        texts.push_back(text);
        placement::complete_device(machine.devices.back(), text, runtime.threads, runtime.cpu_level);
        if (machine.devices.back().is_unified) unified_text = text;
    }
    // A described device that shares the host's memory describes the host.
    const bool describes_host = machine.is_unified() && !machine.devices.front().is_measured;
    if (machine.is_unified() && p.host != nullptr)
        fail(Status::invalid,
             "device '{}' shares the host's memory, and host '{}' describes another one: leave out the host, "
             "whose memory and bandwidth are the device's",
             unified_text, p.host);
    if (describes_host) {
        machine.host = {
            machine.devices.front().memory_bytes, machine.devices.front().bytes_per_second, false, {}};
    } else {
        machine.host = p.host != nullptr ? placement::parse_host(p.host)
                                         : placement::measured_host(runtime.threads.decode->n_threads());
        if (machine.is_unified()) machine.host.memory_bytes = machine.devices.front().memory_bytes;
    }
    const checkpoint::Checkpoint checkpoint = checkpoint::Checkpoint::open(path, runtime.log);
    model::Config config = model::read_config(checkpoint, runtime.log);
    const std::vector<weights::WeightSpec> weights = model::bind_weights(checkpoint, config, runtime.log);
    for (size_t d = 0; d < machine.devices.size(); ++d)
        if (machine.devices[d].is_measured)
            placement::measure_kernels(machine.devices[d], texts[d], weights, runtime.threads,
                                       runtime.cpu_level, runtime.log);
    if (p.host == nullptr && !describes_host)
        placement::measure_rates(machine.host, weights, runtime.threads, runtime.cpu_level, runtime.log);
    return placement::make_plan(std::move(request), std::move(machine), config, weights);
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
