// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"

namespace minim::bench {
namespace {

// Returns the median distance from the median.
double spread(const std::vector<double>& values) {
    const double centre = median(values);
    std::vector<double> deviation;
    deviation.reserve(values.size());
    for (const double value : values) deviation.push_back(std::abs(value - centre));
    return median(deviation);
}

double achieved(const Result& result) {
    return result.bytes_per_token * median(result.tokens_per_second);
}

// Returns the tokens a second that bandwidth allows for concurrent sequences.
double bytes_limit(const Result& result) {
    return median(result.bandwidth) / result.bytes_per_token;
}

double hit_rate(const runtime::ExpertPoolState& cache) {
    const int64_t n = cache.n_hits + cache.n_misses;
    return n > 0 ? static_cast<double>(cache.n_hits) / static_cast<double>(n) : 0.0;
}

nlohmann::ordered_json json_of(const Result& result, const Options& options) {
    nlohmann::ordered_json json = {
        {"model", description(options)},
        {"device", fmt::format("{}", fmt::join(options.devices, ","))},
        {"cpu", to_string(active_cpu_level())},
        {"prefetch", options.prefetch},
        {"test", result.test},
        {"n_threads", result.n_threads},
        {"n_ubatch", result.n_ubatch},
        {"depth", result.depth},
        {"tokens_per_second", median(result.tokens_per_second)},
        {"tokens_per_second_deviation", spread(result.tokens_per_second)},
        {"bytes_per_token", result.bytes_per_token},
        {"bandwidth_gbps", achieved(result) / 1e9},
        {"read_bandwidth_gbps", median(result.bandwidth) / 1e9},
        {"bandwidth_share", achieved(result) / median(result.bandwidth)},
        {"repetitions", result.tokens_per_second},
    };
    if (result.n_parallel > 1) {
        json["n_parallel"] = result.n_parallel;
        json["limit_bytes"] = bytes_limit(result);
        if (result.prompt_rate) json["limit_arithmetic"] = *result.prompt_rate;
    }
    if (result.cache)
        json["expert_cache"] = {{"places", result.cache->n_places},
                                {"bytes", result.cache->bytes},
                                {"hits", result.cache->n_hits},
                                {"misses", result.cache->n_misses},
                                {"hit_rate", hit_rate(*result.cache)},
                                {"moves", result.cache->n_moves},
                                {"moved_bytes", result.cache->moved_bytes},
                                {"streamed", result.cache->n_streamed},
                                {"streamed_bytes", result.cache->streamed_bytes}};
    if (!result.seconds) return json;
    for (size_t k = 0; k < k_operation_count; ++k) {
        json["share_of_time"][k_operation_names[k]] = (*result.seconds)[k] / result.total_seconds;
    }
    return json;
}

void print_json(std::span<const Result> results, const Options& options) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Result& result : results) all.push_back(json_of(result, options));
    std::cout << all.dump(2) << '\n';
}

void print_operations(const Result& result) {
    for (size_t k = 0; k < k_operation_count; ++k) {
        fmt::print("    {:<10} {:>5.1f} %\n", k_operation_names[k],
                   100.0 * (*result.seconds)[k] / result.total_seconds);
    }
}

void print_table(std::span<const Result> results, const Options& options) {
    const bool is_host = options.devices == std::vector<std::string>{"cpu"};
    fmt::print("{:<16} {:>7} {:>6} {:>18} {:>8} {:>10} {:>6}\n", "test", "threads", "ubatch", "tokens/s",
               "GB/s", is_host ? "read GB/s" : "copy GB/s", "share");
    for (const Result& r : results) {
        fmt::print("{:<16} {:>7} {:>6} {:>10.2f} +- {:>4.2f} {:>8.2f} {:>10.2f} {:>6.2f}\n", r.test,
                   r.n_threads, r.n_ubatch, median(r.tokens_per_second), spread(r.tokens_per_second),
                   achieved(r) / 1e9, median(r.bandwidth) / 1e9, achieved(r) / median(r.bandwidth));
        if (r.n_parallel > 1) {
            fmt::print("    limits: {:.1f} tokens/s by bytes", bytes_limit(r));
            if (r.prompt_rate) fmt::print(", {:.1f} by arithmetic (the prompt test)", *r.prompt_rate);
            fmt::print("\n");
        }
        if (r.cache)
            fmt::print(
                "    cache of {} experts: {:.1f} % hits ({} of {}), {} moves of {:.1f} MB, {} copied "
                "for a step, {:.1f} MB\n",
                r.cache->n_places, 100.0 * hit_rate(*r.cache), r.cache->n_hits,
                r.cache->n_hits + r.cache->n_misses, r.cache->n_moves,
                static_cast<double>(r.cache->moved_bytes) / 1e6, r.cache->n_streamed,
                static_cast<double>(r.cache->streamed_bytes) / 1e6);
        if (options.operations) print_operations(r);
    }
}

void print_csv(std::span<const Result> results) {
    fmt::print(
        "test,n_threads,n_ubatch,depth,tokens_per_second,deviation,bandwidth_gbps,read_gbps,bandwidth_"
        "share,cache_hits,cache_misses,cache_moves,cache_moved_bytes\n");
    for (const Result& r : results) {
        const runtime::ExpertPoolState cache = r.cache.value_or(runtime::ExpertPoolState());
        fmt::print("{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f},{},{},{},{}\n", r.test, r.n_threads,
                   r.n_ubatch, r.depth, median(r.tokens_per_second), spread(r.tokens_per_second),
                   achieved(r) / 1e9, median(r.bandwidth) / 1e9, achieved(r) / median(r.bandwidth),
                   cache.n_hits, cache.n_misses, cache.n_moves, cache.moved_bytes);
    }
}

}  // namespace

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

void print(std::span<const Result> results, const Options& options) {
    if (options.output == "table") print_table(results, options);
    if (options.output == "csv") print_csv(results);
    if (options.output == "json") print_json(results, options);
}

}  // namespace minim::bench
