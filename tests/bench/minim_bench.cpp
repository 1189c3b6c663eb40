// SPDX-License-Identifier: Apache-2.0
// Prompt and decode speed of a model file or of a synthetic model, over repetitions, context depths, batch
// sizes and thread counts, beside the memory bandwidth that the same threads or devices reach in the same run.
//
//   minim-bench -m model.gguf -p 512 -n 64 -t 1,2 -r 5 -o table
//   minim-bench --synthetic --layers 2 --experts-format IQ4_XS -n 64
//   minim-bench --synthetic --layers 2 --experts-format IQ4_XS -n 32 --parallel 1,8,32
//   minim-bench --synthetic --layers 62 --experts-format IQ2_S -n 64 --device cuda:0 --kernels
//
// A speed is the median of the repetitions. Its bandwidth is the bytes that a token has to read (weights once, KV cache
// once) times tokens a second; the share is relative to the median bandwidth measured around the repetitions. Concurrent
// sequences share the weights of a step: on average they read the experts that at least one of their tokens chooses at
// random. Two limits are printed beside their speed: the bandwidth over those bytes, and the speed of the prompt test of the
// same run, in which sharing is greatest.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/cpu_features.h"
#include "base/error.h"
#include "bench.h"
#include "bytes_read.h"
#include "options.h"
#include "placement/devices.h"
#include "report.h"

namespace minim::bench {
namespace {

void print_heading(const Bench& bench, const Options& options) {
    const bool is_host = options.devices == std::vector<std::string>{"cpu"};
    const std::string where =
        is_host ? std::string(to_string(active_cpu_level())) : to_string(bench.placement());
    fmt::print("{}; {}; {:.0f} MB a token; ready after {:.2f} s\n", description(options), where,
               active_bytes(bench.config(), bench.weights(), 1) / 1e6, bench.load_seconds());
}

// Runs all tests of one depth.
void run_tests(Bench& bench, const Options& options, int64_t depth, int64_t n_ubatch,
               std::vector<Result>& results) {
    std::optional<double> prompt_rate;
    for (const int64_t n : options.n_prompt) {
        if (n == 0) continue;
        results.push_back(bench.prompt(n, depth, n_ubatch));
        prompt_rate = median(results.back().tokens_per_second);
    }
    for (const int64_t n : options.n_generate) {
        for (const int64_t n_parallel : options.n_parallel) {
            if (n == 0) continue;
            results.push_back(bench.generation(n, depth, n_ubatch, n_parallel));
            results.back().prompt_rate = prompt_rate;
        }
    }
}

void print_kernels(Bench& bench, const Options& options) {
    for (const int64_t depth : options.depths) {
        for (const int64_t n_parallel : options.n_parallel) {
            fmt::print("a token of each of {} texts at {}:\n", n_parallel, depth);
            bench::print_kernels(bench.kernels(depth, n_parallel));
        }
    }
}

// Prints how the steps of devices that may record them were done.
void print_step_counts(const Bench& bench) {
    const backend::StepCounts counts = bench.step_counts();
    if (counts.computed + counts.repeated == 0) return;
    fmt::print(stderr, "steps: {} computed, {} recorded, {} repeated, {} records failed{}{}\n",
               counts.computed, counts.recorded, counts.repeated, counts.failed,
               counts.why_failed != nullptr ? ": " : "",
               counts.why_failed != nullptr ? counts.why_failed : "");
}

void run(const Options& options) {
    std::vector<Result> results;
    for (const int32_t n_threads : options.n_threads) {
        Bench bench(options, n_threads);
        if (options.output == "table") print_heading(bench, options);
        for (const int64_t n_ubatch : options.n_ubatch)
            for (const int64_t depth : options.depths) run_tests(bench, options, depth, n_ubatch, results);
        if (options.kernels) print_kernels(bench, options);
        print_step_counts(bench);
    }
    print(results, options);
}

// Uses the plug-ins of the build folder, which is two levels above this program's folder.
void use_plugins_of_build() {
    std::error_code failed;
    const std::filesystem::path program = std::filesystem::canonical("/proc/self/exe", failed);
    const std::filesystem::path build = program.parent_path().parent_path().parent_path();
    if (!failed) ::setenv("MINIM_PLUGIN_PATH", (build / MINIM_PLUGIN_FOLDER).c_str(), 0);
}

}  // namespace
}  // namespace minim::bench

int main(int argc, char** argv) {
    CLI::App app("Speed of prompts and of decoding");
    minim::bench::Options options;
    try {
        minim::bench::use_plugins_of_build();
        minim::bench::parse(argc, argv, app, options);
        minim::bench::run(options);
        return 0;
    } catch (const CLI::ParseError& error) {
        return app.exit(error);
    } catch (const minim::Error& error) {
        std::cerr << "minim-bench: " << error.what() << '\n';
        return 1;
    }
}
