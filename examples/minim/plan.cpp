// SPDX-License-Identifier: Apache-2.0
// minim plan: plans where the weights of a checkpoint go, and how fast that is, on this or any other machine.
#include "plan.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "minim/minim.hpp"
#include "options.h"
#include "output.h"

namespace cli {
namespace {

using nlohmann::json;

struct PlanArguments {
    std::string model;
    minim::PlanOptions plan;
    std::vector<std::string> devices;
    std::string k_type = "F16";
    std::string v_type = "F16";
    int32_t n_threads = 0;
    bool prints_json = false;
};

// Spells short options out, because CLI11 has no short options of several letters.
std::vector<std::string> spelled_out(int argc, char** argv) {
    static const std::map<std::string_view, const char*> k_long = {
        {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-ot", "--override-tensor"},
        {"-ts", "--tensor-split"},  {"-np", "--parallel"},      {"-ub", "--ubatch-size"},
        {"-dev", "--device"}};
    std::vector<std::string> values;
    for (int i = argc - 1; i > 0; --i) {  // CLI11 takes them last first
        const auto known = k_long.find(argv[i]);
        values.emplace_back(known == k_long.end() ? argv[i] : known->second);
    }
    return values;
}

void add_options(CLI::App& app, PlanArguments& arguments) {
    minim::PlanOptions& plan = arguments.plan;
    app.add_option("-m,--model", arguments.model, "checkpoint; only its headers are read")
        ->type_name("PATH")
        ->required();
    app.add_option(
           "--device", arguments.devices,
           "a device, which need not exist: 'cuda:0=96GiB,1790GB/s,pcie=50GB/s'; may be repeated; in the "
           "order of the layers (default: those of this machine)")
        ->type_name("NAME=MEMORY,BANDWIDTH")
        ->allow_extra_args(false)
        ->delimiter('\0');
    app.add_option("--host", plan.host, "the host's memory: '768GiB,576GB/s' (default: this machine)")
        ->type_name("MEMORY,BANDWIDTH");
    app.add_option("-c,--ctx-size", plan.n_context, "context of one sequence, in tokens")
        ->type_name("N")
        ->required();
    app.add_option("--parallel", plan.n_sequences,
                   "also -np: number of concurrent sequences; each reserves the context")
        ->type_name("N")
        ->check(CLI::PositiveNumber.description(""));
    app.add_option("--ubatch-size", plan.n_ubatch,
                   "also -ub: rows of a prompt step (default: chosen, 512 or more)")
        ->type_name("N")
        ->check(CLI::PositiveNumber.description(""));
    app.add_option("--cache-type-k", arguments.k_type, "also -ctk: F16, F32, BF16, Q8_0 or Q4_0")
        ->type_name("TYPE");
    app.add_option("--cache-type-v", arguments.v_type, "also -ctv: as -ctk")->type_name("TYPE");
    app.add_option("--override-tensor", plan.overrides, "also -ot: 'exps=CPU', 'blk\\.(3|4)\\..*exps=cuda:1'")
        ->type_name("PATTERN=DEVICE");
    app.add_option("--tensor-split", plan.split,
                   "also -ts: each device's share of the layers; shares that add up to the layers are counts")
        ->type_name("SHARES")
        ->delimiter(',');
    app.add_option("-t,--threads", arguments.n_threads,
                   "of the host, to measure its bandwidth (default: all cores)")
        ->type_name("N");
    app.add_flag("--json", arguments.prints_json, "print the plan as one JSON object");
}

int32_t kv_type(std::string name) {
    static const std::map<std::string, int32_t> k_types = {{"F16", MINIM_KV_F16},
                                                           {"F32", MINIM_KV_F32},
                                                           {"BF16", MINIM_KV_BF16},
                                                           {"Q8_0", MINIM_KV_Q8_0},
                                                           {"Q4_0", MINIM_KV_Q4_0}};
    const std::string given = name;
    for (char& c : name)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    const auto found = k_types.find(name);
    if (found == k_types.end())
        throw UsageError("'" + given + "' is not a type of the KV cache; F16, F32, BF16, Q8_0 and Q4_0 are");
    return found->second;
}

double gib(const json& bytes) {
    return bytes.get<double>() / 1073741824.0;
}

void print_place(const std::string& name, const json& place) {
    print(fmt::format("{:10} {:9.1f} {:9.1f} {:9.1f} {:9.1f} {:9.1f}", name, gib(place["dense_bytes"]),
                      gib(place["expert_bytes"]), gib(place["kv_bytes"]), gib(place["work_bytes"]),
                      gib(place["free_bytes"])));
    if (place.contains("n_layers"))
        print(fmt::format(" {:7} {:8}", place["n_layers"].get<int64_t>(), place["n_experts"].get<int64_t>()));
    print("\n");
}

void print_plan(const json& plan) {
    print(fmt::format("{:10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8}\n", "GiB", "dense", "experts",
                      "KV cache", "work", "free", "layers", "experts"));
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

void plan(int argc, char** argv) {
    CLI::App app("Plans where the weights of a checkpoint go and how fast that is, from headers alone.",
                 "minim plan");
    PlanArguments arguments;
    add_options(app, arguments);
    try {
        app.parse(spelled_out(argc, argv));
    } catch (const CLI::CallForHelp&) {
        return print(app.help());
    } catch (const CLI::ParseError& error) {
        throw UsageError(error.what());
    }
    // Without --device, the plan uses the machine's own devices. Only a host program can ask for an empty list.
    if (!arguments.devices.empty()) arguments.plan.devices = arguments.devices;
    arguments.plan.k_format = kv_type(arguments.k_type);
    arguments.plan.v_format = kv_type(arguments.v_type);
    minim::RuntimeOptions runtime_options;
    runtime_options.n_threads = arguments.n_threads;
    const minim::Runtime runtime(runtime_options);
    const std::string text = minim::plan(runtime, arguments.model, arguments.plan);
    if (arguments.prints_json) return print(text + "\n");
    print_plan(json::parse(text));
}

}  // namespace cli
