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

// Every device that is usable, but the processor.
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

void choose_devices(const minim::Runtime& runtime, const Options& options, minim::ModelOptions& model) {
    if (options.n_gpu_layers == 0) return;
    model.devices = options.devices;
    // llama.cpp's -ngl needs no name of a device.
    const bool parts_experts =
        options.cpu_moe || options.n_cpu_moe != 0 || options.fit_context > 0 || !options.overrides.empty();
    const bool wants_any = options.n_gpu_layers > 0 || !options.tensor_split.empty() ||
                           !options.device_memory.empty() || parts_experts;
    if (model.devices.empty() && wants_any) {
        model.devices = accelerators(runtime);
        if (model.devices.empty() && options.allow_cpu) return;
        if (model.devices.empty())
            throw std::runtime_error(
                "-ngl: no device but the processor is usable (`minim devices` says why)");
    }
    model.split = options.tensor_split;
    model.budgets = options.device_memory;
    model.n_device_layers = std::max(options.n_gpu_layers, 0);
    model.allow_cpu = options.allow_cpu;
    for (const std::string& rule : options.overrides)
        model.overrides.append(model.overrides.empty() ? "" : ",").append(rule);
    model.n_host_experts = options.cpu_moe ? std::numeric_limits<int32_t>::max() : options.n_cpu_moe;
    model.fit_context = options.fit_context;
}

}  // namespace

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
