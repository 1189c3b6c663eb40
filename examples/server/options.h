// SPDX-License-Identifier: Apache-2.0
// The options of the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "minim/minim.h"

namespace server {

// Values for requests without these fields. If a value is absent, the checkpoint's is used, then the model family's.
struct SamplingDefaults {
    std::optional<double> temperature;
    std::optional<double> top_p;
    std::optional<int64_t> top_k;
    std::optional<double> min_p;
    std::optional<double> repetition_penalty;
    int64_t penalty_last_n = -1;
};

struct Options {
    std::string model;  // a path, or ORG/NAME[:QUANT]
    std::string host = "127.0.0.1";
    uint16_t port = 8080;
    std::string api_key;             // "": requests need no key
    std::vector<std::string> names;  // of the model; empty: from the file's
    bool requires_name = false;      // other names in requests are refused
    int64_t n_context = 0;           // tokens of one request; 0: the longest that fits, at most the model's
    int64_t n_parallel = 0;          // requests worked on at once; 0: 16, or fewer if memory is short
    int64_t n_queue = 2048;          // requests that wait
    uint64_t kv_tokens = 0;          // 0: what fits, from one context to one for each slot
    int32_t kv_format = MINIM_KV_AUTO;
    int32_t n_batch = 0;
    double ping_seconds = 15;
    int64_t timeout_seconds = 0;  // of one answer; 0: none
    int32_t reasoning = MINIM_REASONING_SPLIT;
    std::vector<std::string> reasoning_fields = {"reasoning_content", "reasoning"};  // of a chat's thoughts
    bool remembers_reasoning = true;
    bool constrains_calls = true;   // constrain optional tool calls
    int64_t reasoning_budget = -1;  // tokens of thought; -1: no limit, 0: none
    SamplingDefaults sampling;
    std::string metrics_prefix = "minim_";
    std::string cors_origin;
    std::string log_file;  // "": standard error

    // As in the `minim` program.
    int32_t n_threads = 0;
    int32_t n_threads_batch = 0;
    std::string devices;
    int32_t n_gpu_layers = -1;  // -1: all
    std::vector<double> tensor_split;
    bool cpu_moe = false;
    int64_t n_cpu_moe = 0;
    std::vector<std::string> overrides;
    uint64_t expert_cache = 0;  // bytes; 0: none, or all room if nothing is said of experts
    bool mlock = false;
    bool mmap = false;
    bool no_mmap = false;
    bool verbose = false;

    std::vector<std::string> ignored;  // flags of other servers that have no effect here
};

class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Parses the command line. Returns nothing if it printed --help or --version. Throws UsageError.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace server
