// SPDX-License-Identifier: Apache-2.0
#include "open_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint_facts.h"

namespace program {
namespace {

constexpr double k_gib = 1073741824.0;

// Returns every usable device except the CPU.
std::string accelerators(const minim::Runtime& runtime) {
    const minim::Devices all(runtime);
    std::string names;
    for (size_t i = 0; i < all.count(); ++i) {
        const minim_device_info device = all.get(i);
        if (device.usable == 0 || std::string_view(device.name) == "cpu") continue;
        names.append(names.empty() ? "" : ",").append(device.name);
    }
    return names;
}

// Returns the devices' names, each with its budget behind it. One budget is for all.
std::string with_budgets(const std::string& names, const std::vector<std::string>& budgets) {
    if (budgets.empty()) return names;
    const auto n_names = static_cast<size_t>(std::ranges::count(names, ',')) + 1;
    if (budgets.size() != n_names && budgets.size() != 1)
        throw std::runtime_error(
            fmt::format("--device-memory: {} budgets for {} devices", budgets.size(), n_names));
    std::string all;
    size_t begin = 0;
    for (size_t i = 0; i < n_names; ++i) {
        const std::string& budget = budgets[budgets.size() == 1 ? 0 : i];
        const size_t end = std::min(names.find(',', begin), names.size());
        const std::string_view name = std::string_view(names).substr(begin, end - begin);
        if (name.find('=') != std::string_view::npos)
            throw std::runtime_error(fmt::format("--device-memory: {} has a budget already", name));
        const bool is_part = budget.find('.') != std::string::npos;
        all += fmt::format("{}{}", all.empty() ? "" : ",", name);
        if (budget != "0" && name != "cpu") all += fmt::format("={}{}", budget, is_part ? "" : "B");
        begin = end + 1;
    }
    return all;
}

// Returns the options that only devices give a meaning, with commas between.
std::string placement_options(const Options& options) {
    std::string names;
    const auto name = [&](bool is_given, const char* option) {
        if (is_given) names.append(names.empty() ? "" : ", ").append(option);
    };
    name(options.n_gpu_layers > 0, "-ngl");
    name(!options.tensor_split.empty(), "-ts");
    name(!options.device_memory.empty(), "--device-memory");
    name(options.cpu_moe, "--cpu-moe");
    name(options.n_cpu_moe != 0, "-ncmoe");
    name(options.cpu_offload_gib > 0, "--cpu-offload-gb");
    name(!options.overrides.empty(), "-ot");
    name(options.fit_context > 0, "--fit-ctx");
    name(options.expert_cache > 0, "--expert-cache");
    name(!options.expert_profile.empty(), "--expert-profile");
    return names;
}

// Experts of so many layers stay on the CPU; below 0: of the last ones.
int64_t n_host_experts(const minim::Runtime& runtime, const Options& options, const std::string& path) {
    if (options.cpu_moe) return std::numeric_limits<int32_t>::max();
    if (options.cpu_offload_gib <= 0) return options.n_cpu_moe;
    const CheckpointFacts facts = checkpoint_facts(runtime, path);
    if (facts.n_expert_layers == 0) return options.n_cpu_moe;
    const double layer_bytes =
        static_cast<double>(facts.expert_bytes) / static_cast<double>(facts.n_expert_layers);
    return std::min(static_cast<int64_t>(options.cpu_offload_gib * k_gib / layer_bytes),
                    facts.n_expert_layers);
}

// Returns the devices for ranks if the options name none of `all`, which are usable. Without --device they are ranks only if
// there are as many as ranks; else the CPU of each process is one.
std::string devices_of_ranks(const Options& options, const std::string& all) {
    if (all.empty() || !options.device_memory.empty()) return all;
    const Parallel& ranks = options.parallel;
    const bool is_open = ranks.tensor < 0 || ranks.experts < 0;
    const int64_t n_ranks =
        static_cast<int64_t>(std::max(ranks.tensor, ranks.experts)) * std::max(ranks.pipeline, 1);
    const bool are_as_many = std::ranges::count(all, ',') + 1 == n_ranks;
    // The library takes as many of them as this process has ranks.
    return is_open || are_as_many || options.devices == "auto" ? "auto" : "";
}

void choose_devices(const minim::Runtime& runtime, const Options& options, const std::string& path,
                    const Room& room, minim::ModelOptions& model, std::vector<std::string>& notes) {
    const bool asks_for_all = options.devices.empty() || options.devices == "auto";
    const std::string given = placement_options(options);
    if (options.n_gpu_layers != 0) model.devices = asks_for_all ? accelerators(runtime) : options.devices;
    if (asks_for_all && options.parallel.is_given()) model.devices = devices_of_ranks(options, model.devices);
    if (model.devices.empty()) {
        const bool is_chosen = options.n_gpu_layers == 0;
        if (!given.empty() && !is_chosen && !options.allow_cpu)
            throw std::runtime_error(
                fmt::format("{}: only the CPU is usable (`minim devices` shows why)", given));
        if (!given.empty())
            notes.push_back(fmt::format("{} {} no effect: {}", given,
                                        given.find(',') == std::string::npos ? "has" : "have",
                                        is_chosen ? "the CPU has all layers" : "only the CPU is usable"));
        return;
    }
    model.split = options.tensor_split;
    model.devices = with_budgets(model.devices, options.device_memory);
    model.n_device_layers = std::max(options.n_gpu_layers, 0);
    model.allow_cpu = options.allow_cpu;
    model.overrides = joined_overrides(options);
    model.n_host_experts = n_host_experts(runtime, options, path);
    model.fit_context = options.fit_context;
    model.fit_n_ubatch = options.n_ubatch;
    model.expert_cache_bytes = options.expert_cache;
    model.expert_moves = options.expert_moves;
    model.expert_profile = options.expert_profile;
    model.fit_k_format = options.k_format;
    model.fit_v_format = options.v_format;
    // Keep room on the devices for the requested context.
    const bool parts_experts =
        model.n_host_experts != 0 || options.fit_context > 0 || !options.overrides.empty();
    const bool says_nothing = !parts_experts && options.expert_cache == 0;
    const bool is_engine = room.n_requests > 0;
    if (options.fit_context > 0 || (room.n_context == 0 && !is_engine)) return;
    if (says_nothing) model.expert_cache_bytes = MINIM_EXPERT_CACHE_ROOM;
    if (is_engine || says_nothing || options.expert_cache == MINIM_EXPERT_CACHE_ROOM)
        model.fit_context = room.n_context;
    model.fit_requests = room.n_requests;
}

// Replaces a field by an option, and removes the value behind it unless the user gave it: "n_host_experts (2147483647)" becomes
// "--cpu-moe".
void replace_field(std::string& message, std::string_view field, std::string_view option, bool keeps_value) {
    const size_t begin = message.find(fmt::format("{} (", field));
    if (begin == std::string::npos) return;
    const size_t end = keeps_value ? begin + field.size() : message.find(')', begin) + 1;
    message.replace(begin, end - begin, option);
}

}  // namespace

minim::Exception with_option_names(const minim::Exception& error, const Options& options) {
    std::string message = error.what();
    std::string_view host_experts = "-ncmoe";
    if (options.cpu_offload_gib > 0) host_experts = "--cpu-offload-gb";
    if (options.cpu_moe) host_experts = "--cpu-moe";
    replace_field(message, "n_host_experts", host_experts, /*keeps_value=*/host_experts == "-ncmoe");
    replace_field(message, "expert_cache_bytes", "--expert-cache", /*keeps_value=*/true);
    if (message.starts_with("override ")) message.replace(0, std::string_view("override").size(), "-ot");
    constexpr std::string_view field = "(n_device_layers)";
    if (const size_t at = message.find(field); at != std::string::npos)
        message.replace(at, field.size(), "(-ngl)");
    minim_error named = error.error();
    named.message[message.copy(named.message, sizeof(named.message) - 1)] = '\0';
    return minim::Exception(named);
}

std::string joined_overrides(const Options& options) {
    return fmt::format("{}", fmt::join(options.overrides, ","));
}

minim::RuntimeOptions runtime_options(const Options& options) {
    minim::RuntimeOptions runtime;
    runtime.n_threads = options.n_threads_batch > 0 ? options.n_threads_batch : options.n_threads;
    runtime.n_threads_decode = options.n_threads_batch > 0 ? options.n_threads : 0;
    runtime.pin_threads = options.pin_threads;
    runtime.numa = options.numa;
    runtime.log_level = options.verbose ? MINIM_LOG_DEBUG : MINIM_LOG_WARNING;
    return runtime;
}

minim::ModelOptions model_options(const minim::Runtime& runtime, const Options& options,
                                  const std::string& path, const Room& room,
                                  std::vector<std::string>& notes) {
    if (!options.quantization.empty()) check_quantization(path, options.quantization);
    minim::ModelOptions model;
    model.backend = options.backend;
    choose_devices(runtime, options, path, room, model, notes);
    model.lock = options.mlock;
    model.prefault = options.prefault;
    model.deterministic = options.deterministic;
    model.expand = options.expand;
    model.packed_file = options.packed_file;
    model.chat_template = options.chat_template;
    model.tensor_parallel = options.parallel.tensor;
    model.expert_parallel = options.parallel.experts;
    model.pipeline_parallel = options.parallel.pipeline;
    model.rank_timeout_ms = static_cast<int32_t>(std::ceil(options.parallel.timeout_seconds * 1000));
    if (options.mmap) model.residence = MINIM_RESIDENCE_MAPPED;
    if (options.no_mmap) model.residence = MINIM_RESIDENCE_OWNED;
    return model;
}

}  // namespace program
