// SPDX-License-Identifier: Apache-2.0
// The options of the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cli {

enum class Command { generate, chat, inspect, tokenize, perplexity, devices };

struct Options {
    Command command = Command::generate;

    std::string model;                // a checkpoint; for inspect the file to look into
    std::optional<std::string> text;  // -p
    std::string text_file;            // -f
    std::string packed_file;          // file of the CPU's packed weights
    std::string backend = "cpu";
    std::string devices;                     // "cuda:0,cuda:1"; empty: the backend has all layers
    std::vector<std::string> device_memory;  // the most to take of each device: 20GiB, 0.9; 0: no limit
    std::vector<double> tensor_split;
    std::vector<std::string> overrides;  // "PATTERN=DEVICE": experts on another device than their layer
    int32_t n_gpu_layers = -1;           // below 0: all, if devices are named
    bool cpu_moe = false;
    int64_t n_cpu_moe = 0;      // layers whose experts stay on the CPU
    int64_t fit_context = 0;    // tokens of context to keep room for on the devices; 0: none
    uint64_t expert_cache = 0;  // bytes on the devices; 0: none, or all room if no option places experts
    int32_t expert_moves = 0;   // MINIM_EXPERT_MOVES_*
    std::string expert_profile;
    bool allow_cpu = false;
    int32_t n_threads = 0;
    int32_t n_threads_batch = 0;
    int32_t numa = 0;  // MINIM_NUMA_*
    bool pin_threads = false;
    bool mlock = false;
    bool prefault = false;
    int32_t expand = 0;  // MINIM_EXPAND_*
    bool deterministic = false;
    int32_t n_batch = 0;
    int32_t n_ubatch = 0;
    int32_t kv = 0;  // MINIM_KV_*, for K and V without a format of their own
    int32_t k_format = 0;
    int32_t v_format = 0;
    bool mmap = false;
    bool no_mmap = false;
    bool verbose = false;

    int64_t n_predict = -1;  // below 1: until the model ends its turn
    int64_t n_context = 0;   // 0: chosen by the prompt
    // Options without a value: the checkpoint's recommendation is used.
    std::optional<double> temperature;
    std::optional<double> top_p;
    std::optional<int32_t> top_k;
    std::optional<double> min_p;
    std::optional<double> repeat_penalty;
    std::optional<double> dry_multiplier;
    std::optional<double> dry_base;
    std::optional<int32_t> dry_allowed_length;
    std::optional<int32_t> dry_penalty_last_n;
    std::vector<std::string> dry_breakers;  // empty: the usual ones
    int64_t reasoning_budget = 0;           // tokens; 0: no limit
    bool hides_reasoning = false;
    int64_t seed = -1;  // -1: random
    std::string system;
    std::string json_schema;  // of the answer; empty: any text
    bool raw = false;

    bool show_metadata = true;
    bool show_tensors = true;

    bool ids_only = false;
    std::string specials = "exact";

    int64_t chunk_tokens = 256;
};

// Thrown if the command line cannot be understood.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Parses the command line. Returns nothing if --help or --version was requested and has been printed. Throws UsageError.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace cli
