// SPDX-License-Identifier: Apache-2.0
// minim plan: plans where the weights of a checkpoint go, and how fast that is, on this or any other machine.
#include <algorithm>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "options/find_model.h"
#include "options/open_model.h"
#include "output.h"

namespace cli {
namespace {

using nlohmann::json;

double gib(const json& bytes) {
    return bytes.get<double>() / 1073741824.0;
}

void print_place(const std::string& name, const json& place) {
    print(fmt::format("{:10} {:9.1f} {:9.1f} {:9.1f} {:9.1f} {:9.1f}", name, gib(place["dense_bytes"]),
                      gib(place["expert_bytes"]), gib(place["kv_bytes"]), gib(place["work_bytes"]),
                      gib(place["free_bytes"])));
    const std::string speed = place["speed"].get<std::string>();
    if (place.contains("n_layers"))
        print(fmt::format(" {:7} {:8}", place["n_layers"].get<int64_t>(), place["n_experts"].get<int64_t>()));
    print(fmt::format(" {:>{}}\n", speed, place.contains("n_layers") ? 9 : 26));
}

void print_plan(const json& plan) {
    print(fmt::format("{:10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {:>9}\n", "GiB", "dense", "experts",
                      "KV cache", "work", "free", "layers", "experts", "speed"));
    for (const json& device : plan["devices"]) print_place(device["name"].get<std::string>(), device);
    print_place("cpu", plan["host"]);
    print(fmt::format("\n{}\n", plan["fits"].get<bool>() ? "It fits." : "It does not fit."));
    for (const json& choice : plan["choices"]) print(fmt::format("- {}\n", choice.get<std::string>()));
    print(fmt::format("\npredicted: {:.1f} tokens/s decode with a full context, {:.0f} tokens/s prompt\n",
                      plan["decode_tokens_per_second"].get<double>(),
                      plan["prompt_tokens_per_second"].get<double>()));
    for (const auto& [name, seconds] : plan["decode_seconds"].items())
        if (seconds.get<double>() > 0.0)
            print(fmt::format("  {:15} {:8.3f} ms a token\n", name, 1e3 * seconds.get<double>()));
}

}  // namespace

void plan(const Options& options) {
    minim::PlanOptions plan;
    // Without --device, the plan uses the machine's own devices.
    if (!options.plan_devices.empty()) plan.devices = options.plan_devices;
    if (options.n_gpu_layers == 0 || options.plan_devices == std::vector<std::string>{"none"})
        plan.devices.emplace();
    plan.host = options.plan_host;
    plan.n_context = options.n_context;
    plan.n_sequences = static_cast<int32_t>(options.n_parallel);
    plan.n_ubatch = options.n_ubatch;
    plan.k_format = options.k_format;
    plan.v_format = options.v_format;
    plan.split = options.tensor_split;
    plan.overrides = program::joined_overrides(options);
    plan.n_device_layers = std::max(options.n_gpu_layers, 0);
    plan.n_host_experts = options.cpu_moe ? std::numeric_limits<int32_t>::max() : options.n_cpu_moe;
    plan.expert_cache_bytes = options.expert_cache;
    plan.tensor_parallel = options.parallel.tensor;
    plan.expert_parallel = options.parallel.experts;
    plan.pipeline_parallel = options.parallel.pipeline;
    plan.link = options.plan_link;
    minim::RuntimeOptions runtime_options;
    runtime_options.n_threads = options.n_threads;
    const minim::Runtime runtime(runtime_options);
    const std::string path = program::find_model_or_keep(options.model);
    const std::string text =
        program::naming_options(options, [&] { return minim::plan(runtime, path, plan); });
    if (options.prints_json) return print(text + "\n");
    print_plan(json::parse(text));
}

}  // namespace cli
