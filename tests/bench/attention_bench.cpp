// SPDX-License-Identifier: Apache-2.0
// The two kernels of attention on one core: scores of the keys of 1,024 positions and sums of their values, for the six queries
// of a decoded token and the 96 of a block of a prompt. What they read stays in the second-level cache; `minim-bench
// -d` measures how fast a context is read from memory.
//
//   attention_bench [--benchmark_filter=avx512/Q8_0]
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/cpu_features.h"
#include "cpu/kernel_tables.h"
#include "format/encode.h"

namespace {

using minim::CpuLevel;
using minim::Format;
using minim::cpu::KvKernels;

constexpr int64_t k_positions = 1024;
constexpr int64_t k_page = 64;
constexpr int64_t k_cols = 128;   // of a head
constexpr int64_t k_heads = 6;    // query heads of each KV head
constexpr float k_scale = 0.08F;  // about 1 / sqrt(k_cols)

std::vector<float> normal(int64_t count) {
    std::mt19937 random(1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = std::normal_distribution<float>()(random);
    return values;
}

// Keys or values, stored as in a cache.
struct Rows {
    int64_t row_bytes;
    std::vector<std::byte> data;

    explicit Rows(Format format)
        : row_bytes(k_cols / minim::traits(format).block_elems * minim::traits(format).block_bytes),
          data(static_cast<size_t>(k_positions * row_bytes)) {
        minim::row_encoder(format)(normal(k_positions * k_cols).data(), k_positions * k_cols, data.data());
    }
    const std::byte* page(int64_t first) const { return data.data() + first * row_bytes; }
};

// Counts, for all pairs of a query and a position, a multiplication and an addition for each column.
void count_operations(benchmark::State& state, int64_t n_queries) {
    const auto pairs = static_cast<double>(state.iterations()) * static_cast<double>(n_queries * k_positions);
    state.counters["GFLOP/s"] =
        benchmark::Counter(pairs * 2.0 * static_cast<double>(k_cols) / 1e9, benchmark::Counter::kIsRate);
}

void scores(benchmark::State& state, CpuLevel level, Format format, int64_t n_queries) {
    const KvKernels& kernels = minim::cpu::kv_kernels(minim::cpu::kernels_for(level), format);
    const Rows keys(format);
    const std::vector<float> queries = normal(n_queries * k_cols);
    std::vector<int16_t> codes(queries.size());
    std::vector<float> scales(static_cast<size_t>(n_queries));
    std::vector<int32_t> rows(static_cast<size_t>(n_queries));
    for (size_t t = 0; t < rows.size(); ++t) {
        rows[t] = static_cast<int32_t>(t);
        const size_t at = t * k_cols;
        if (kernels.quantize_query != nullptr)
            scales[t] = kernels.quantize_query(queries.data() + at, k_cols, codes.data() + at);
    }
    std::vector<float> y(static_cast<size_t>(n_queries * k_positions));
    alignas(64) static float tile[minim::cpu::score_tile_floats(k_cols)];
    while (state.KeepRunning()) {
        for (int64_t first = 0; first < k_positions; first += k_page) {
            kernels.scores({.keys = keys.page(first),
                            .key_bytes = keys.row_bytes,
                            .n_keys = k_page,
                            .cols = k_cols,
                            .scale = k_scale,
                            .queries = queries.data(),
                            .query_codes = codes.data(),
                            .query_scales = scales.data(),
                            .query_rows = rows.data(),
                            .n_queries = n_queries,
                            .y = y.data() + first,
                            .y_stride = k_positions,
                            .tile = tile});
        }
        benchmark::DoNotOptimize(y.data());
    }
    count_operations(state, n_queries);
}

void sums(benchmark::State& state, CpuLevel level, Format format, int64_t n_queries) {
    const KvKernels& kernels = minim::cpu::kv_kernels(minim::cpu::kernels_for(level), format);
    const Rows values(format);
    const std::vector<float> weights = normal(n_queries * k_positions);
    std::vector<float> y(static_cast<size_t>(n_queries * k_cols));
    while (state.KeepRunning()) {
        for (int64_t first = 0; first < k_positions; first += k_page) {
            for (int64_t query = 0; query < n_queries; query += k_heads) {
                kernels.weighted_sum({.rows = values.page(first),
                                      .row_bytes = values.row_bytes,
                                      .n_rows = k_page,
                                      .cols = k_cols,
                                      .weight = weights.data() + query * k_positions + first,
                                      .weight_stride = k_positions,
                                      .n_sums = k_heads,
                                      .y = y.data() + query * k_cols,
                                      .y_stride = k_cols});
            }
        }
        benchmark::DoNotOptimize(y.data());
    }
    count_operations(state, n_queries);
}

void register_all() {
    struct Kernel {
        const char* name;
        void (*run)(benchmark::State&, CpuLevel, Format, int64_t);
    };
    for (const CpuLevel level : minim::cpu_levels()) {
        for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_0}) {
            for (const Kernel& kernel : {Kernel{"/scores", scores}, Kernel{"/sums", sums}}) {
                for (const int64_t n_queries : {k_heads, 16 * k_heads}) {
                    std::string name(to_string(level));
                    name += '/';
                    name += minim::traits(format).name;
                    name += kernel.name;
                    name += "/queries:";
                    name += std::to_string(n_queries);
                    benchmark::RegisterBenchmark(name.c_str(), kernel.run, level, format, n_queries)
                        ->Unit(benchmark::kMicrosecond);
                }
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    register_all();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
