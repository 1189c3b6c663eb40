// SPDX-License-Identifier: Apache-2.0
#include "placement/devices.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "model/weights.h"
#include "placement/fit_experts.h"
#include "placement/plugins.h"
#include "runtime/stage.h"
#include "weights/device_target.h"

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

backend::DeviceInfo processor(CpuLevel level) {
    backend::DeviceInfo info;
    info.name = "cpu";
    info.description = format_text("{} cores, {} kernels", usable_core_count(), to_string(level));
    info.memory_bytes = total_memory_bytes();
    info.free_bytes = std::min(available_memory_bytes(), info.memory_bytes);
    return info;
}

// Layers first .. last.
struct Range {
    int64_t first;
    int64_t last;
};

Range first_to_last(const model::Share& share) {
    return {share.first_layer, share.first_layer + share.n_layer - 1};
}

// "layer 3", "layers 0-2, 5"
std::string layers_text(const std::vector<Range>& ranges) {
    const bool is_one = ranges.size() == 1 && ranges[0].first == ranges[0].last;
    std::string text = is_one ? "layer " : "layers ";
    for (size_t i = 0; i < ranges.size(); ++i) {
        const Range& range = ranges[i];
        if (i > 0) text += ", ";
        text += range.first == range.last ? format_text("{}", range.first)
                                          : format_text("{}-{}", range.first, range.last);
    }
    return text;
}

std::vector<double> memory_of(std::span<const std::shared_ptr<const backend::Backend>> devices) {
    std::vector<double> bytes;
    for (const auto& device : devices) bytes.push_back(static_cast<double>(device->available_bytes()));
    return bytes;
}

// Returns the bytes of the layers behind the first n_on_host, without experts that rules place, and of embedding and
// head if they are on the same device.
model::LayerSizes sizes_on_devices(const Spread& spread, int64_t n_on_host,
                                   const std::vector<bool>& is_pinned,
                                   std::span<const weights::WeightSpec> weights) {
    const auto& device = spread.devices.front();  // any device: only shapes matter here
    const auto bytes_of = [&](const model::Share& share) {
        return static_cast<double>(weights::device_bytes(model::part_of(share, weights).weights));
    };
    model::LayerSizes sizes;
    if (n_on_host == 0) sizes.before = bytes_of({.backend = device, .has_embedding = true});
    for (int64_t i = n_on_host; i < std::ssize(is_pinned); ++i) {
        model::Share share = {.backend = device, .first_layer = i, .n_layer = 1};
        if (!is_pinned[static_cast<size_t>(i)]) share.expert_layers = {i};
        sizes.layer.push_back(bytes_of(share));
    }
    sizes.after = bytes_of({.backend = device, .has_output = true});
    return sizes;
}

// Moves experts that no rule places to the host, and divides a cache of the given size among the stages, in proportion to their
// layers with such experts.
void give_caches(const Spread& spread, const std::vector<bool>& is_pinned, std::span<runtime::Stage> stages) {
    size_t layer = 0;
    int64_t n_shared = 0;
    std::vector<int64_t> n_of_stage;
    for (runtime::Stage& stage : stages) {
        stage.cache_bytes =
            spread.expert_cache_bytes;  // shares_experts_of() needs a size; the stage's own follows below
        int64_t n = 0;
        if (stage.experts.empty()) stage.experts.assign(static_cast<size_t>(stage.n_layer), stage.backend);
        for (auto& place : stage.experts) {
            if (!is_pinned[layer++] && !stage.is_on_host()) place = spread.host;
            if (stage.shares_experts_of(&place - stage.experts.data())) ++n;
        }
        n_of_stage.push_back(n);
        n_shared += n;
    }
    for (size_t s = 0; s < stages.size(); ++s) {
        const double share =
            n_of_stage[s] == 0 ? 0.0 : static_cast<double>(n_of_stage[s]) / static_cast<double>(n_shared);
        const auto bytes = static_cast<uint64_t>(static_cast<double>(spread.expert_cache_bytes) * share);
        stages[s].cache_bytes = n_of_stage[s] == 0 ? 0 : std::max(bytes, uint64_t{1});
    }
}

// Sets when steps copy experts to the devices that have a cache.
void set_stream_rules(const Spread& spread, const model::Config& config,
                      std::span<const weights::WeightSpec> weights, std::span<runtime::Stage> stages) {
    if (!spread.stream_rule) return;
    uint64_t bytes = 0;
    for (const weights::WeightSpec& weight : weights)
        if (weight.is_expert()) bytes += weight.bytes();
    const double expert_bytes =
        static_cast<double>(bytes) / static_cast<double>(config.n_layer * config.n_expert);
    for (runtime::Stage& stage : stages)
        if (stage.cache_bytes > 0) stage.stream = spread.stream_rule(*stage.backend, config, expert_bytes);
}

void place_free_experts(const Spread& spread, const FitRequest& fit, const Logger* log,
                        std::span<runtime::Stage> stages) {
    if (spread.chooses_fit) {
        const int64_t n_context = fit_experts_to_any_context(fit, stages);
        const bool all_have_room = std::ranges::all_of(stages, [](const runtime::Stage& stage) {
            return std::ranges::all_of(stage.experts,
                                       [&](const auto& place) { return place == stage.backend; });
        });
        if (!all_have_room && log != nullptr)
            log->info("experts: the devices have no room for all of them beside a context of {} tokens",
                      n_context);
    } else if (spread.fit_context > 0) {
        fit_experts(fit, stages);
    } else if (spread.expert_cache_bytes > 0) {
        give_caches(spread, fit.is_pinned, stages);
    }
}

}  // namespace

std::vector<backend::DeviceInfo> list_devices(CpuLevel level) {
    std::vector<backend::DeviceInfo> devices = {processor(level)};
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

model::Model::Split split_over(Spread spread, const Logger* log) {
    if (spread.devices.empty()) fail(Status::invalid, "no devices for the layers");
    if (!spread.shares.empty() && spread.shares.size() != spread.devices.size())
        fail(Status::invalid, "{} shares of the layers for {} devices", spread.shares.size(),
             spread.devices.size());
    if (spread.n_device_layers < -1)
        fail(Status::invalid, "{} layers on the devices are not possible", spread.n_device_layers);
    if (spread.fit_context < 0)
        fail(Status::invalid, "a context of {} tokens is not possible", spread.fit_context);
    if (spread.expert_cache_bytes == k_cache_all_room && spread.fit_context == 0 && !spread.chooses_fit)
        fail(Status::invalid, "an expert cache of all remaining memory needs a context to leave room for");
    return [spread = std::move(spread), log](const model::Config& config,
                                             std::span<const weights::WeightSpec> weights) {
        const int64_t n_on_devices =
            spread.n_device_layers < 0 ? config.n_layer : std::min(spread.n_device_layers, config.n_layer);
        const int64_t n_on_host = config.n_layer - n_on_devices;
        const std::vector<bool> is_pinned = layers_with_rules(spread.experts, config.n_layer);
        const std::vector<int64_t> counts =
            spread.shares.empty()
                ? model::split_layers(sizes_on_devices(spread, n_on_host, is_pinned, weights),
                                      memory_of(spread.devices))
                : model::split_layers(n_on_devices, spread.shares);
        std::vector<runtime::Stage> stages;
        if (n_on_host > 0) stages.push_back({spread.host, n_on_host});
        for (size_t i = 0; i < counts.size(); ++i) stages.push_back({spread.devices[i], counts[i]});
        std::erase_if(stages, [](const runtime::Stage& stage) { return stage.n_layer == 0; });
        place_experts(spread.experts, stages);
        place_free_experts(spread,
                           {.config = config,
                            .weights = weights,
                            .is_pinned = is_pinned,
                            .host = spread.host,
                            .n_context = spread.fit_context,
                            .k_format = spread.k_format,
                            .v_format = spread.v_format,
                            .cache_bytes = spread.chooses_fit ? k_cache_all_room : spread.expert_cache_bytes},
                           log, stages);
        set_stream_rules(spread, config, weights, stages);
        return stages;
    };
}

std::string placement_text(std::span<const model::Share> shares, std::span<const int64_t> n_cached) {
    std::string text;
    for (size_t i = 0; i < shares.size(); ++i) {
        const model::Share& share = shares[i];
        std::string layers;
        if (share.n_layer > 0) layers = layers_text({first_to_last(share)});
        std::vector<Range> experts;
        for (const int64_t layer : share.expert_layers) {
            if (share.has_layer(layer)) continue;
            if (!experts.empty() && experts.back().last + 1 == layer) {
                experts.back().last = layer;
            } else {
                experts.push_back({layer, layer});
            }
        }
        if (!experts.empty())
            layers += (layers.empty() ? "experts of " : ", experts of ") + layers_text(experts);
        if (i < n_cached.size() && n_cached[i] > 0)
            layers += format_text(", cache of {} experts", n_cached[i]);
        text += format_text("{}{} ({})", text.empty() ? "" : ", ", share.backend->name(), layers);
    }
    return text;
}

std::string placement_text(const model::Model& model) {
    std::vector<int64_t> n_cached;
    for (const auto& pool : model.expert_pools())
        n_cached.push_back(pool == nullptr ? 0 : pool->state().n_places);
    return placement_text(model.shares(), n_cached);
}

}  // namespace minim::placement
