// SPDX-License-Identifier: Apache-2.0
#include "open_model.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "output.h"
#include "progress_bar.h"

namespace cli {

minim::Runtime open_runtime(const Options& options) {
    minim::RuntimeOptions runtime;
    runtime.n_threads = options.n_threads_batch > 0 ? options.n_threads_batch : options.n_threads;
    runtime.n_threads_decode = options.n_threads_batch > 0 ? options.n_threads : 0;
    runtime.pin_threads = options.pin_threads;
    runtime.numa = options.numa;
    runtime.log_level = options.verbose ? MINIM_LOG_DEBUG : MINIM_LOG_WARNING;
    runtime.log = [](int32_t, const char* line) { print_note(fmt::format("minim: {}\n", printable(line))); };
    return minim::Runtime(runtime);
}

namespace {

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

// Returns the devices' names, each with its budget behind it.
std::string with_budgets(const minim::Runtime& runtime, const std::string& devices,
                         const std::vector<std::string>& budgets) {
    if (budgets.empty()) return devices;
    const std::string names = devices == "auto" ? accelerators(runtime) : devices;
    const auto n_names = static_cast<size_t>(std::ranges::count(names, ',')) + 1;
    if (budgets.size() != n_names)
        throw std::runtime_error(fmt::format("{} budgets for {} devices", budgets.size(), n_names));
    std::string all;
    size_t begin = 0;
    for (const std::string& budget : budgets) {
        const size_t end = std::min(names.find(',', begin), names.size());
        const bool is_part = budget.find('.') != std::string::npos;
        all += fmt::format("{}{}", all.empty() ? "" : ",", names.substr(begin, end - begin));
        if (budget != "0") all += fmt::format("={}{}", budget, is_part ? "" : "B");
        begin = end + 1;
    }
    return all;
}

void choose_devices(const minim::Runtime& runtime, const Options& options, minim::ModelOptions& model) {
    if (options.n_gpu_layers == 0) return;
    model.devices = options.devices;
    // With llama.cpp's -ngl, no device needs to be named.
    const bool parts_experts =
        options.cpu_moe || options.n_cpu_moe != 0 || options.fit_context > 0 || !options.overrides.empty();
    const bool wants_any = options.n_gpu_layers > 0 || !options.tensor_split.empty() ||
                           !options.device_memory.empty() || parts_experts || options.expert_cache > 0;
    if (model.devices.empty() && wants_any) {
        model.devices = accelerators(runtime);
        if (model.devices.empty() && options.allow_cpu) return;
        if (model.devices.empty())
            throw std::runtime_error("-ngl: only the CPU is usable (`minim devices` shows why)");
    }
    model.split = options.tensor_split;
    model.devices = with_budgets(runtime, model.devices, options.device_memory);
    model.n_device_layers = std::max(options.n_gpu_layers, 0);
    model.allow_cpu = options.allow_cpu;
    model.overrides = joined_overrides(options);
    model.n_host_experts = options.cpu_moe ? std::numeric_limits<int32_t>::max() : options.n_cpu_moe;
    model.fit_context = options.fit_context;
    model.fit_n_ubatch = options.n_ubatch;
    model.expert_cache_bytes = options.expert_cache;
    model.expert_moves = options.expert_moves;
    model.expert_profile = options.expert_profile;
    model.fit_k_format = options.k_format;
    model.fit_v_format = options.v_format;
    // Keep room on the devices for the requested context.
    const bool says_nothing = !parts_experts && options.expert_cache == 0;
    if (options.n_context == 0 || options.fit_context > 0 || model.devices.empty()) return;
    if (says_nothing) model.expert_cache_bytes = MINIM_EXPERT_CACHE_ROOM;
    if (says_nothing || options.expert_cache == MINIM_EXPERT_CACHE_ROOM)
        model.fit_context = options.n_context;
}

}  // namespace

std::string joined_overrides(const Options& options) {
    return fmt::format("{}", fmt::join(options.overrides, ","));
}

void print_expert_caches(const minim::Model& model) {
    const std::vector<minim_device_memory> devices = model.memory();
    for (size_t i = 0; const minim_expert_cache& cache : model.expert_caches()) {
        const char* device = devices[i++].name;
        if (cache.n_places == 0) continue;
        const auto uses = static_cast<double>(std::max<int64_t>(cache.n_hits + cache.n_misses, 1));
        print_note(fmt::format("experts:    {}: {} cached, {:.1f} % of uses hit, {} moved\n", device,
                               cache.n_places, 100.0 * static_cast<double>(cache.n_hits) / uses,
                               cache.n_moves));
    }
}

void save_expert_profile(const minim::Model& model, const Options& options) {
    const auto has_cache = [](const minim_expert_cache& cache) { return cache.n_places > 0; };
    if (!options.expert_profile.empty() && std::ranges::any_of(model.expert_caches(), has_cache))
        model.save_expert_profile(options.expert_profile);
}

minim::Model open_model(const minim::Runtime& runtime, const Options& options, const minim::Cancel& cancel) {
    ProgressBar bar;
    minim::ModelOptions model;
    model.backend = options.backend;
    choose_devices(runtime, options, model);
    model.lock = options.mlock;
    model.prefault = options.prefault;
    model.deterministic = options.deterministic;
    model.expand = options.expand;
    model.packed_file = options.packed_file;
    if (options.mmap) model.residence = MINIM_RESIDENCE_MAPPED;
    if (options.no_mmap) model.residence = MINIM_RESIDENCE_OWNED;
    model.progress = [&bar](uint64_t done_bytes, uint64_t total_bytes) {
        bar.show(done_bytes, total_bytes);
        return true;
    };
    return minim::Model(runtime, options.model, model, &cancel);
}

}  // namespace cli
