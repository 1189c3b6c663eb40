// SPDX-License-Identifier: Apache-2.0
// Options of both programs: the model, devices, threads, memory and the KV cache.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "minim/minim.h"
#include "set.h"

namespace program {
namespace {

constexpr Word k_backends[] = {{"cpu", 0}, {"reference", 1}};
constexpr Word k_layers[] = {{"all", -1}, {"auto", -1}, {"-1", -1}};
constexpr Word k_all_cores[] = {{"-1", 0}};
constexpr Word k_default[] = {{"-1", 0}};
constexpr Word k_cache_sizes[] = {{"room", static_cast<int64_t>(MINIM_EXPERT_CACHE_ROOM)}};
constexpr Word k_moves[] = {{"auto", MINIM_EXPERT_MOVES_AUTO},
                            {"fixed", MINIM_EXPERT_MOVES_FIXED},
                            {"reproducible", MINIM_EXPERT_MOVES_REPRODUCIBLE},
                            {"eager", MINIM_EXPERT_MOVES_EAGER}};
constexpr Word k_expand[] = {{"auto", MINIM_EXPAND_AUTO}, {"off", MINIM_EXPAND_OFF}, {"on", MINIM_EXPAND_ON}};
constexpr Word k_numa[] = {
    {"auto", MINIM_NUMA_AUTO},   {"off", MINIM_NUMA_OFF},          {"interleave", MINIM_NUMA_INTERLEAVE},
    {"split", MINIM_NUMA_SPLIT}, {"distribute", MINIM_NUMA_SPLIT}, {"numactl", MINIM_NUMA_OFF}};
constexpr Word k_formats[] = {{"auto", MINIM_KV_AUTO},   {"f16", MINIM_KV_F16},   {"f32", MINIM_KV_F32},
                              {"bf16", MINIM_KV_BF16},   {"q8_0", MINIM_KV_Q8_0}, {"q4_0", MINIM_KV_Q4_0},
                              {"float16", MINIM_KV_F16}, {"half", MINIM_KV_F16},  {"bfloat16", MINIM_KV_BF16},
                              {"float32", MINIM_KV_F32}};
constexpr int64_t k_max_ranks = 1024;
constexpr Word k_all_of_ranks[] = {{"all", MINIM_ALL_RANKS}};
constexpr int64_t k_mapped = 1;
constexpr int64_t k_owned = 2;
constexpr int64_t k_locked = 4;
constexpr Word k_load_modes[] = {{"auto", 0},
                                 {"none", k_owned},
                                 {"mmap", k_mapped},
                                 {"mlock", k_owned | k_locked},
                                 {"mmap+mlock", k_mapped | k_locked}};
constexpr Word k_log_levels[] = {{"trace", 1}, {"debug", 1}, {"info", 0},    {"warning", 0},
                                 {"warn", 0},  {"error", 0}, {"critical", 0}};

constexpr int64_t k_one_device = 1;
constexpr int64_t k_within_layers = 2;
constexpr int64_t k_attention_alone = 3;
constexpr Word k_split_modes[] = {{"layer", 0},
                                  {"none", k_one_device},
                                  {"row", k_within_layers},
                                  {"tensor", k_within_layers},
                                  {"graph", k_within_layers},
                                  {"attn", k_attention_alone}};

void set_split_mode(Options& options, const Value& value) {
    if (value.integer == k_attention_alone)
        throw UsageError(
            fmt::format("{} {}: devices have whole layers (layer), share all layers (tensor), or "
                        "one has all (none)",
                        value.option, value.text));
    if (value.integer == k_within_layers && options.parallel.tensor == 0)
        options.parallel.tensor = MINIM_ALL_RANKS;
    if (value.integer != k_one_device) return;
    if (options.command == Command::plan)
        throw UsageError(
            fmt::format("{} {}: a plan for one device names one with --device", value.option, value.text));
    if (options.devices.empty()) options.devices = "cuda:0";
}

template <auto member>
void set_parallel(Options& options, const Value& value) {
    store(options.parallel.*member, value);
}

// Returns a device's name as the library writes it: CUDA0 of llama.cpp is cuda:0.
std::string device_name(std::string_view name) {
    std::string text(name);
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    const std::string_view digits = std::string_view(text).substr(std::min<size_t>(text.size(), 4));
    const bool is_cuda = text.starts_with("cuda") && !digits.empty() &&
                         digits.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_cuda) return fmt::format("cuda:{}", digits);
    return text == "cuda" || text == "gpu" ? "auto" : std::string(name);
}

void set_devices(Options& options, const Value& value) {
    std::string names;
    for (std::string_view rest = value.text;;) {
        const size_t end = rest.find(',');
        const size_t equals = std::min(rest.find('='), end);
        names.append(device_name(rest.substr(0, equals)));
        if (equals < end)
            names.append(rest.substr(equals, end == std::string_view::npos ? end : end - equals));
        if (end == std::string_view::npos) break;
        names.push_back(',');
        rest.remove_prefix(end + 1);
    }
    if (names == "none" || names == "cpu" || names == "CPU") options.n_gpu_layers = 0;
    options.devices = names == "none" ? "" : names;
}

void set_override(Options& options, const Value& value) {
    const size_t equals = value.text.rfind('=');
    if (equals == std::string::npos) {
        options.overrides.push_back(value.text);
        return;
    }
    const std::string_view device = std::string_view(value.text).substr(equals + 1);
    options.overrides.push_back(value.text.substr(0, equals + 1) + device_name(device));
}

void set_budgets(Options& options, const Value& value) {
    options.device_memory.clear();
    for (std::string_view rest = value.text;;) {
        const size_t end = rest.find(',');
        options.device_memory.emplace_back(rest.substr(0, end));
        if (end == std::string_view::npos) return;
        rest.remove_prefix(end + 1);
    }
}

void set_load_mode(Options& options, const Value& value) {
    options.mmap = (value.integer & k_mapped) != 0;
    options.no_mmap = (value.integer & k_owned) != 0;
    options.mlock = (value.integer & k_locked) != 0;
}

void set_mapping(Options& options, const Value& value) {
    options.mmap = value.on;
    options.no_mmap = !value.on;
}

// minim-server takes several models, each with a name before it: NAME=PATH.
void add_model(Options& options, const Value& value) {
    options.model = value.text;
    if (options.command != Command::server) return;
    const size_t end = value.text.find('=');
    std::error_code error;
    const bool is_path = end == std::string::npos || value.text.starts_with('/') ||
                         value.text.starts_with('.') || std::filesystem::exists(value.text, error);
    if (is_path) return options.models.push_back({"", value.text});
    options.models.push_back({value.text.substr(0, end), value.text.substr(end + 1)});
    options.model = options.models.back().path;
    if (end == 0 || options.model.empty())
        throw UsageError(fmt::format("{}: '{}' is not NAME=PATH", value.option, value.text));
}

constexpr Row k_model_rows[] = {
    {"-m --model --model-path -hf -hfr --hf-repo", "", text("MODEL"), k_open | k_plan, "",
     "a GGUF file, a safetensors file, a folder, or ORG/NAME[:QUANT] in the cache of downloaded models "
     "(HF_HUB_CACHE, HF_HOME); nothing is downloaded. minim-server takes several, also as NAME=MODEL",
     add_model},
    {"-q --quantization", "", text("METHOD"), k_open, "",
     "refuse a checkpoint with another method of quantisation: fp8, awq, gptq, gguf, modelopt_fp4 ...",
     set<&Options::quantization>},
    {"--backend", "", choice("NAME", k_backends), k_open, "cpu",
     "cpu, or reference: plain float arithmetic, slow and exact",
     [](Options& o, const Value& v) { o.backend = v.integer == 0 ? "cpu" : "reference"; }},
    {"-dev --device", "", text("NAMES"), k_open, "all usable GPUs, else the CPU",
     "devices for the layers, as `minim devices` names them: cuda:0 or cuda:0,cuda:1, each with a budget if "
     "need be (cuda:0=20GiB, cuda:0=0.9); auto: all usable ones; none: the CPU",
     set_devices},
    {"-ngl --n-gpu-layers --gpu-layers", "", integer("N", 0, k_largest_int32, k_layers), k_open | k_plan,
     "all", "the number of layers on the devices, the last ones; all, auto or -1: all",
     set<&Options::n_gpu_layers>},
    {"-ts --tensor-split", "", Type{.kind = Kind::numbers, .value = "SHARES", .low = 0, .high = 1e9},
     k_open | k_plan, "by bytes, in proportion to free memory",
     "each device's share of the layers, 3,1; shares that add up to the layers are counts",
     set<&Options::tensor_split>},
    {"-sm --split-mode", "", choice("MODE", k_split_modes), k_open | k_plan, "layer",
     "layer: devices have whole layers; none: one device has all, the first GPU if --device names none; "
     "tensor, "
     "row or graph: all devices share every layer, as -tp with their number",
     set_split_mode},
    {"-tp --tensor-parallel --tensor-parallel-size --tp-size --tp", "", integer("N", 1, k_max_ranks),
     k_open | k_plan, "1",
     "N ranks share every layer, each on a device: parts of the heads, of the KV cache and of the experts",
     set_parallel<&Parallel::tensor>},
    {"-ep --expert-parallel --expert-parallel-size --ep-size --ep", "",
     Type{.kind = Kind::integer,
          .value = "N",
          .least = 1,
          .most = k_max_ranks,
          .words = k_all_of_ranks,
          .bare = "all"},
     k_open | k_plan, "with -tp what is best for few requests",
     "N groups of ranks, each with whole experts of its own; without -tp N ranks, each with all of the "
     "attention; all, or nothing behind it: as many as -tp",
     set_parallel<&Parallel::experts>},
    {"--enable-expert-parallel --enable-ep-moe", "", flag(), k_open | k_plan, "",
     "as -ep all: whole experts on each rank",
     [](Options& o, const Value& v) { o.parallel.experts = v.on ? MINIM_ALL_RANKS : 0; }},
    {"-pp --pipeline-parallel --pipeline-parallel-size --pp-size --pp", "", integer("N", 1, k_max_ranks),
     k_open | k_plan, "1", "N stages of layers, each on the devices of a process of its own",
     set_parallel<&Parallel::pipeline>},
    {"--rank-timeout", "", real("SECONDS", 0.1, 86400), k_open, "30",
     "seconds after which a rank that does not answer counts as lost",
     set_parallel<&Parallel::timeout_seconds>},
    {"--device-memory --gpu-memory-utilization --mem-fraction-static", "",
     Type{.kind = Kind::part, .value = "SIZES"}, k_open, "no limits",
     "the maximum memory to use of each device: 20GiB,24GiB, or parts of it: 0.9,0.5; one value is for all "
     "devices; 0: no limit",
     set_budgets},
    {"-cmoe --cpu-moe", "", flag(), k_open | k_plan, "",
     "all experts stay on the CPU, the rest goes to the devices", set<&Options::cpu_moe>},
    {"-ncmoe --n-cpu-moe", "", integer("N", -k_largest_int32, k_largest_int32), k_open | k_plan, "0",
     "the experts of the first N layers stay on the CPU; below 0: of the last", set<&Options::n_cpu_moe>},
    {"-ot --override-tensor", "", text("PATTERN=DEVICE"), k_open | k_plan, "",
     "put experts whose tensor names match on another device than their layer: exps=CPU, "
     "'blk\\.(3|4)\\..*exps=cuda:1'; several with commas between, the first that matches counts",
     set_override},
    {"--cpu-offload-gb", "", real("GIB", 0, 1e6), k_open, "0",
     "keeps this many GiB of weights on the CPU: the experts of the first layers, in whole layers",
     set<&Options::cpu_offload_gib>},
    {"-fitc --fit-ctx", "", count("N", 1, k_largest_int32), k_open, "",
     "keep experts on the CPU as needed to leave room for a context of N tokens on the devices",
     set<&Options::fit_context>},
    {"--expert-cache", "", Type{.kind = Kind::size, .value = "SIZE", .words = k_cache_sizes}, k_open | k_plan,
     "room, if no other option is about experts",
     "device memory for the experts that are used most, while the CPU computes the others: 4GiB, or room for "
     "what is left beside the context",
     set_bytes<&Options::expert_cache>},
    {"--moe-cache-mib", "", integer("MIB", 0, k_largest_int32), k_open, "", "--expert-cache in MiB",
     [](Options& o, const Value& v) { o.expert_cache = static_cast<uint64_t>(v.integer) << 20U; }},
    {"--expert-moves", "", choice("MODE", k_moves), k_open, "auto",
     "when experts of the cache change: fixed (never), reproducible (the same requests give the same texts) "
     "or eager (as soon as possible)",
     set<&Options::expert_moves>},
    {"--expert-profile", "", text("FILE"), k_open, "",
     "which experts the cache holds at first: read from this file if it exists, and written at the end",
     set<&Options::expert_profile>},
    {"--deterministic --enable-deterministic-inference", "", flag(), k_open, "",
     "results of devices do not depend on batch composition and prompt chunks; slower",
     set<&Options::deterministic>},
    {"--allow-cpu", "", flag(), k_open, "", "go on without a device that cannot be used",
     set<&Options::allow_cpu>},
    {"-t --threads", "", integer("N", 0, k_largest_int32, k_all_cores), k_open | k_plan | k_conversions, "0",
     "threads; 0 or -1: the cores that this process may use", set<&Options::n_threads>},
    {"-tb --threads-batch", "", integer("N", 0, k_largest_int32, k_all_cores), k_open, "0",
     "threads for prompts, with -t for single tokens; 0 or -1: as -t", set<&Options::n_threads_batch>},
    {"--pin-threads", "", flag(), k_open, "", "bind each thread to a core of its own",
     set<&Options::pin_threads>},
    {"--numa", "", choice("MODE", k_numa), k_open, "auto",
     "several NUMA nodes: off (also numactl), interleave (weights over all nodes), split (also distribute: "
     "rows on the node of the threads that read them) or auto (split if there are several)",
     set<&Options::numa>},
    {"--expand", "", choice("MODE", k_expand), k_open, "auto",
     "unpack the codebooks of IQ1 to IQ3 weights at load: off, on, or auto (if that is faster)",
     set<&Options::expand>},
    {"--packed-file", "", text("FILE"), k_open, "",
     "map the CPU's packed weights from this file, and write it if needed", set<&Options::packed_file>},
    {"--mmap", "--no-mmap --weight-loader-disable-mmap", flag(), k_open, "if memory is short",
     "map the file instead of reading the weights into memory; --no-mmap: read them in any case",
     set_mapping},
    {"--mlock", "", flag(), k_open, "", "lock weights and KV cache in memory", set<&Options::mlock>},
    {"--prefault", "", flag(), k_open, "", "prefault mapped weights before the first token",
     set<&Options::prefault>},
    {"-lm --load-mode", "", choice("MODE", k_load_modes), k_open, "auto",
     "llama.cpp's word for --mmap, --no-mmap and --mlock: auto, none, mmap, mlock or mmap+mlock",
     set_load_mode},
    {"-b --batch-size --max-num-batched-tokens --chunked-prefill-size", "",
     count("N", 1, k_largest_int32, k_default), k_run, "",
     "upper bound of -ub, as other engines have it; of the server the tokens of a step if -ub is not given",
     set<&Options::n_batch>},
    {"-ub --ubatch-size", "", count("N", 1, k_largest_int32), k_run | k_plan,
     "512, or what is best with a cache of experts", "tokens evaluated together", set<&Options::n_ubatch>},
    {"--kv --kv-cache-dtype", "", choice("FORMAT", k_formats), k_run | k_plan, "f16",
     "format of the KV cache: f16, f32, bf16, q8_0 or q4_0", set<&Options::kv_format>},
    {"-ctk --cache-type-k", "", choice("FORMAT", k_formats), k_run | k_plan, "as --kv",
     "format of the keys alone", set<&Options::k_format>},
    {"-ctv --cache-type-v", "", choice("FORMAT", k_formats), k_run | k_plan, "as --kv",
     "format of the values alone", set<&Options::v_format>},
    {"-v --verbose --log-verbose", "", flag(), k_open | k_conversions, "", "log what the library does",
     set<&Options::verbose>},
    {"-lv --verbosity --log-verbosity", "", integer("N", -1, 100), k_open, "",
     "llama.cpp's levels: 4 and more are --verbose",
     [](Options& o, const Value& v) { o.verbose = v.integer >= 4; }},
    {"--log-level --uvicorn-log-level", "", choice("LEVEL", k_log_levels), k_open, "",
     "trace and debug are --verbose", [](Options& o, const Value& v) { o.verbose = v.integer != 0; }},
    {"--log-file", "", text("FILE"), k_open, "", "log to this file instead of standard error",
     set<&Options::log_file>},
};

}  // namespace

std::span<const Row> model_rows() {
    return k_model_rows;
}

}  // namespace program
