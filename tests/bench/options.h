// SPDX-License-Identifier: Apache-2.0
// The options of minim-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "routing.h"
#include "runtime/expert_pool.h"
#include "synthetic.h"

namespace CLI {
class App;
}

namespace minim::bench {

struct Options {
    std::string model;
    bool synthetic = false;
    SyntheticShape shape;
    std::vector<std::string> experts_format = {"IQ4_XS"};  // of all three, or of gate, up and down
    std::string dense_format = "Q8_0";
    std::string head_format;  // of embedding and head; empty: as dense_format
    bool mapped = false;
    std::string packed_file;
    std::string expand = "auto";
    bool locked = false;
    bool prefault = false;
    bool pinned = false;
    std::string numa = "off";
    std::string prefetch = "auto";
    std::vector<std::string> devices = {"cpu"};
    bool deterministic = false;
    std::vector<std::string> overrides;  // "PATTERN=DEVICE": experts on another device than their layer
    int64_t n_cpu_moe = 0;  // this number of first layers has its experts on the CPU; below 0: of last layers
    uint64_t expert_cache = 0;  // bytes on the devices; 0: none
    runtime::ExpertMoves expert_moves = runtime::ExpertMoves::reproducible;
    std::optional<Routing> routing;  // synthetic; empty: by chance, as the routers score
    std::vector<int64_t> n_prompt = {512};
    std::vector<int64_t> n_generate = {64};
    std::vector<int64_t> depths = {0};
    bool synthetic_depth = false;
    std::vector<int64_t> n_parallel = {1};
    std::vector<int64_t> n_ubatch = {512};
    std::vector<int32_t> n_threads;
    int repetitions = 5;
    std::string output = "table";
    std::string kv = "F16";
    bool operations = false;
    bool kernels = false;
};

// Parses the command line. Throws CLI::ParseError, and Error for unknown formats.
void parse(int argc, char** argv, CLI::App& app, Options& options);

// Returns the model in a few words.
std::string description(const Options& options);

}  // namespace minim::bench
