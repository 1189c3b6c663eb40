// SPDX-License-Identifier: Apache-2.0
// The results of minim-bench, and how they are printed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "options.h"
#include "runtime/expert_pool.h"
#include "timed_backend.h"

namespace minim::bench {

struct Result {
    std::string test;
    int32_t n_threads = 0;
    int64_t depth = 0;
    int64_t n_ubatch = 0;
    int64_t n_parallel = 1;
    std::optional<double> prompt_rate;  // tokens a second of the prompt test, if it was run
    std::vector<double> tokens_per_second;
    std::vector<double> bandwidth;  // of the memory, bytes a second
    double bytes_per_token = 0.0;
    double total_seconds = 0.0;                                    // of all repetitions
    std::optional<std::array<double, k_operation_count>> seconds;  // of them in each operation, if timed
    // A cache of experts, if there is one: hits, misses and moves of all repetitions.
    std::optional<runtime::ExpertPoolState> cache;
};

double median(std::vector<double> values);

// Prints the results to the standard output, as the options say.
void print(std::span<const Result> results, const Options& options);

}  // namespace minim::bench
