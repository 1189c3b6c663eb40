// SPDX-License-Identifier: Apache-2.0
// Plans with sentences, and as JSON.
#include "placement/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/kv_view.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "placement/planner.h"
#include "placement/rank_plan.h"
#include "placement/sizes_text.h"
#include "placement/unified.h"
#include "runtime/step_space.h"

namespace minim::placement {
namespace {

std::string used_text(const Planner& planner, const Plan& plan, int64_t device) {
    const PlannedPlace& place = plan.places[device];
    return format_text("{} of {} used, {} free; speed {}",
                       size_text(plan.is_unified ? plan.used_bytes() : used(place) + place.work_bytes),
                       size_text(planner.machine().devices[device].memory_bytes), size_text(place.free_bytes),
                       speed_text(place));
}

std::string device_text(const Planner& planner, const Plan& plan, int64_t device) {
    const PlannedPlace& place = plan.places[device];
    if (place.n_layers == 0 && place.n_experts == 0) return format_text("{}: nothing", place.name);
    int64_t n_cached = place.n_experts;
    int64_t with_experts = 0;
    bool caches = false;
    for (size_t l = 0; l < plan.expert_place.size(); ++l) {
        if (plan.expert_place[l] == device) {
            n_cached -= planner.bytes().layers[l].n_experts;
            ++with_experts;
        }
        caches = caches || (plan.layer_place[l] == device && plan.cached_part[l] > 0.0);
    }
    if (caches && n_cached > 0)
        return format_text(
            "{}: attention and KV cache of {} layers, a cache of {} experts, while the CPU computes the "
            "others; {}",
            place.name, place.n_layers, n_cached, used_text(planner, plan, device));
    return format_text("{}: attention and KV cache of {} layers, experts of {} layers; {}", place.name,
                       place.n_layers, with_experts, used_text(planner, plan, device));
}

bool fits_with(const Planner& planner, int64_t n_context, Format k, Format v) {
    Request other = planner.request();
    if (other.n_kv_tokens > 0) other.n_kv_tokens = n_context;
    other.n_context = n_context;
    other.k_format = k;
    other.v_format = v;
    return planner.with(std::move(other)).place().fits;
}

void explain_refusal(const Planner& planner, Plan& plan) {
    const Machine& machine = planner.machine();
    for (int64_t d = 0; d < machine.host_place(); ++d)
        if (planner.used_beside(plan, d) > planner.capacity(d))
            plan.choices.push_back(
                format_text("{}{}: does not fit: {} wanted beside work space and reserve, {} there",
                            plan.places[d].name, plan.is_unified ? " and the host, in one memory" : "",
                            size_text(planner.used_beside(plan, d)), size_text(planner.capacity(d))));
    if (planner.host_overflow(plan) > 0)
        plan.choices.push_back(format_text("host: does not fit: {} wanted, {} there",
                                           size_text(used(plan.host()) + plan.host().work_bytes),
                                           size_text(machine.host.memory_bytes)));
    const Request& request = planner.request();
    const int64_t context = largest_context(request.n_context, [&](int64_t n_context) {
        return fits_with(planner, n_context, request.k_format, request.v_format);
    });
    if (context > 0) plan.choices.push_back(format_text("a context of {} tokens would fit", context));
    const bool is_q8_0 = request.k_format == Format::q8_0 && request.v_format == Format::q8_0;
    if (!is_q8_0 && fits_with(planner, request.n_context, Format::q8_0, Format::q8_0))
        plan.choices.push_back(format_text("a KV cache of Q8_0 would fit {} tokens", request.n_context));
    const uint64_t on_devices = planner.overflow(plan);
    const uint64_t on_host = planner.host_overflow(plan);
    const std::string where = plan.is_unified ? std::string()
                                              : format_text(": {} on devices, {} on the host",
                                                            size_text(on_devices), size_text(on_host));
    plan.choices.push_back(format_text("{} more memory would do{}", size_text(on_devices + on_host), where));
}

std::string json_string(std::string_view text) {
    std::string out;
    json::append_quoted(out, text);
    return out;
}

std::string bytes_of(const PlannedPlace& place) {
    return format_text(
        R"("dense_bytes": {}, "expert_bytes": {}, "kv_bytes": {}, "work_bytes": {}, "free_bytes": {})",
        place.dense_bytes, place.expert_bytes, place.kv_bytes, place.work_bytes, place.free_bytes);
}

void explain(const Planner& planner, Plan& plan) {
    for (int64_t d = 0; d < planner.machine().host_place(); ++d)
        plan.choices.push_back(device_text(planner, plan, d));
    if (plan.is_unified) {
        const uint64_t memory = planner.machine().host.memory_bytes;
        plan.choices.push_back(
            format_text("{} shares the host's memory: {} for both, of which {} stay free for the system and "
                        "the driver; no experts "
                        "are offloaded or cached",
                        plan.places.front().name, size_text(memory), size_text(unified_reserve_of(memory))));
    }
    if (plan.host().n_layers > 0 && !plan.devices().empty() && !plan.is_unified)
        plan.choices.push_back(format_text(
            "{} layers stay with the CPU: the devices have no room for their attention weights and KV cache",
            plan.host().n_layers));
    int64_t n_experts = 0;
    for (const LayerBytes& layer : planner.bytes().layers) n_experts += layer.n_experts;
    if (plan.host().expert_bytes > 0)
        plan.choices.push_back(format_text("{} of {} experts ({}) are in host memory{}",
                                           plan.host().n_experts, n_experts,
                                           size_text(plan.host().expert_bytes),
                                           planner.request().overrides ? ", as far as -ot says so" : ""));
    if (!plan.fits) explain_refusal(planner, plan);
}

void check(const Request& request, const Machine& machine) {
    const bool is_chosen = request.for_engine && request.n_context == 0;
    if ((request.n_context < 1 && !is_chosen) || request.n_context > INT32_MAX)
        fail(Status::invalid, "a context of {} tokens is not possible", request.n_context);
    if (request.n_sequences < 1 || request.n_sequences > 65536)
        fail(Status::invalid, "{} sequences are not possible; 1 to 65536 are", request.n_sequences);
    if (request.n_device_layers < -1)
        fail(Status::invalid, "{} layers on the devices are not possible", request.n_device_layers);
    if (request.n_rows < 0 || request.n_rows > 65536)
        fail(Status::invalid, "micro-batches of {} rows are not possible; 1 to 65536 are", request.n_rows);
    for (const Format format : {request.k_format, request.v_format})
        if (!backend::is_kv_format(format))
            fail(Status::invalid, "the KV cache cannot hold {}", traits(format).name);
    for (size_t i = 0; i < machine.devices.size(); ++i)
        for (size_t k = 0; k < i; ++k)
            if (machine.devices[i].name == machine.devices[k].name)
                fail(Status::invalid, "device {} is named twice", machine.devices[i].name);
    if (!request.shares.empty() && request.shares.size() != machine.devices.size())
        fail(Status::invalid, "{} shares of the layers for {} devices", request.shares.size(),
             machine.devices.size());
    for (const double share : request.shares)
        if (!(share >= 0.0) || !std::isfinite(share))
            fail(Status::invalid, "a device's share of the layers is {}", share);
}

Plan plan_layers(Request request, const Machine& machine, const model::Config& config,
                 std::span<const weights::WeightSpec> weights) {
    const Rules rules = read_rules(request, machine, config);
    const ModelBytes bytes = model_bytes(config, weights, machine.host);
    choose_kv(request, machine, bytes, rules);
    const bool chooses_rows = request.n_rows == 0;
    Plan plan = Planner(request, machine, bytes, rules).place_with_best_rows();
    check_rules(rules, machine, plan.layer_place);
    request.n_rows = plan.n_ubatch;
    explain(Planner(request, machine, bytes, rules), plan);
    if (chooses_rows && plan.n_ubatch > runtime::k_default_step_rows)
        plan.choices.push_back(
            format_text("prompts in micro-batches of {} rows (-ub {}): each copies the experts that are not "
                        "on the device there, and its rows share the copies",
                        plan.n_ubatch, plan.n_ubatch));
    return plan;
}

// Says how fast the same devices are with layers each, and warns if that is faster.
void compare_with_layers(const Request& request, const Machine& machine, const model::Config& config,
                         std::span<const weights::WeightSpec> weights, Plan& plan) {
    if (machine.devices.empty() || plan.decode_tokens_per_second == 0.0) return;
    Request other = request;
    other.parallel = {};
    other.n_context = plan.n_context;
    other.n_kv_tokens = plan.n_kv_tokens;
    other.n_sequences = plan.n_sequences;
    other.for_engine = false;
    const Plan layers = plan_layers(other, machine, config, weights);
    if (!layers.fits) return;
    if (!plan.fits) {
        plan.choices.push_back(format_text(
            "layers on each device instead of parts of all layers would fit: {:.1f} tokens/s predicted",
            layers.decode_tokens_per_second));
        return;
    }
    const bool is_slower = plan.decode_tokens_per_second < layers.decode_tokens_per_second;
    plan.choices.push_back(format_text(
        "{}layers on each device instead of parts of all layers: {:.1f} tokens/s predicted, {} than {:.1f}",
        is_slower ? "warning: " : "", layers.decode_tokens_per_second, is_slower ? "faster" : "slower",
        plan.decode_tokens_per_second));
}

// Returns whether the request leaves it open that like devices share layers.
bool may_share_layers(const Request& request, const Machine& machine) {
    const bool says_more = !request.shares.empty() || request.n_device_layers >= 0 || request.overrides ||
                           request.n_host_experts != 0 || request.caches_host_experts || request.for_engine;
    if (says_more || machine.devices.size() < 2 || machine.is_open()) return false;
    const DeviceFacts& first = machine.devices.front();
    return std::ranges::all_of(machine.devices, [&](const DeviceFacts& device) {
        return device.memory_bytes == first.memory_bytes && device.bytes_per_second == first.bytes_per_second;
    });
}

// Says how fast like devices would be as ranks, if that is faster.
void advise_ranks(Request request, const Machine& machine, const model::Config& config,
                  std::span<const weights::WeightSpec> weights, Plan& plan) {
    const int64_t n_devices = std::ssize(machine.devices);
    request.parallel = {.tensor = n_devices};
    request.n_context = plan.n_context;
    try {
        const Plan ranks = plan_ranks(request, machine, config, weights);
        if (!ranks.fits || ranks.decode_tokens_per_second <= plan.decode_tokens_per_second) return;
        plan.choices.push_back(format_text(
            "parts of all layers on each device (-tp {}): {:.1f} tokens/s predicted, faster than {:.1f}",
            n_devices, ranks.decode_tokens_per_second, plan.decode_tokens_per_second));
    } catch (const Error& error) {
        if (error.status() != Status::invalid) throw;  // these devices cannot share the model
    }
}

}  // namespace

Plan make_plan(Request request, Machine machine, const model::Config& config,
               std::span<const weights::WeightSpec> weights) {
    check(request, machine);
    check_unified(request, machine);
    even_out(machine.devices);
    request.parallel = with_devices(request.parallel, std::ssize(machine.devices));
    const bool shares_layers =
        asks_for_ranks(request.parallel) && plan_parallel(request.parallel, config, weights).n_ranks() > 1;
    if (!shares_layers) {
        Plan plan = plan_layers(request, machine, config, weights);
        if (may_share_layers(request, machine)) advise_ranks(request, machine, config, weights, plan);
        return plan;
    }
    Plan plan = plan_ranks(request, machine, config, weights);
    compare_with_layers(request, machine, config, weights, plan);
    return plan;
}

std::string to_json(const Plan& plan) {
    std::string devices;
    for (const PlannedPlace& place : plan.devices())
        devices += format_text(R"({}{{"name": {}, {}, "n_layers": {}, "n_experts": {}, "speed": {}}})",
                               devices.empty() ? "" : ", ", json_string(place.name), bytes_of(place),
                               place.n_layers, place.n_experts, json_string(speed_text(place)));
    std::string choices;
    for (const std::string& choice : plan.choices)
        choices += (choices.empty() ? "" : ", ") + json_string(choice);
    const DecodeSeconds& seconds = plan.decode_seconds;
    std::string text =
        format_text(R"({{"fits": {}, "devices": [{}], "host": {{{}, "speed": {}}}, )", plan.fits, devices,
                    bytes_of(plan.host()), json_string(speed_text(plan.host())));
    text += format_text(R"("unified": {}, "used_bytes": {}, )", plan.is_unified, plan.used_bytes());
    text += format_text(R"("bytes_per_token": {{"dense": {}, "experts": {}, "kv_at_context": {}}}, )",
                        plan.token_dense_bytes, plan.token_expert_bytes, plan.token_kv_bytes);
    text += format_text(R"("decode_tokens_per_second": {:.6g}, "prompt_tokens_per_second": {:.6g}, )",
                        plan.decode_tokens_per_second, plan.prompt_tokens_per_second);
    text += format_text(
        R"("decode_seconds": {{"dense": {:.6g}, "kv_cache": {:.6g}, "device_experts": {:.6g}, "host_experts": {:.6g}, )",
        seconds.dense, seconds.kv_cache, seconds.device_experts, seconds.host_experts);
    text += format_text(R"("launches": {:.6g}, "hand_over": {:.6g}, "sums": {:.6g}}}, "choices": [{}], )",
                        seconds.launches, seconds.hand_over, seconds.sums, choices);
    text += format_text(
        R"("parallel": {{"tensor": {}, "expert_groups": {}, "expert_parts": {}, "pipeline": {}}}, )",
        plan.parallel.tensor, plan.parallel.expert_groups, plan.parallel.expert_parts,
        plan.parallel.pipeline);
    text += format_text(R"("n_context": {}, "kv_tokens": {}, "n_sequences": {}, "n_ubatch": {}}})",
                        plan.n_context, plan.n_kv_tokens, plan.n_sequences, plan.n_ubatch);
    return text;
}

}  // namespace minim::placement
