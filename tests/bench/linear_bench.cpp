// SPDX-License-Identifier: Apache-2.0
// Measures the linears of the CPU backend at the shapes of an expert of MiniMax-M2: bytes of packed weights per second,
// and their share of the memory read bandwidth measured by the same threads in the same program. Weights go round a
// ring larger than the last-level cache, as experts do.
//
//   linear_bench [--benchmark_filter=avx512/Q4_K] ; threads: environment variable MINIM_BENCH_THREADS, else
//   all cores
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/buffer.h"
#include "base/read_bandwidth.h"
#include "cpu/cpu_backend.h"
#include "random_bytes.h"

namespace {

using minim::Buffer;
using minim::CpuLevel;
using minim::Format;
using minim::ThreadPool;
using minim::bench::RandomBytes;

constexpr uint64_t k_ring_bytes = uint64_t{256} << 20;

int32_t thread_count() {
    const char* wanted = std::getenv("MINIM_BENCH_THREADS");
    return wanted != nullptr ? std::atoi(wanted) : minim::usable_core_count();
}

const ThreadPool& pool() {
    static const ThreadPool threads(thread_count());
    return threads;
}

const Buffer& ring(Format format) {
    const auto filled = [](Format with) {
        Buffer bytes(k_ring_bytes, "benchmark weights");
        RandomBytes(with).fill({bytes.data(), k_ring_bytes});
        return bytes;
    };
    static const Buffer plain = filled(Format::f16);
    static const Buffer of_byte_scales = filled(Format::nvfp4);
    return minim::bench::has_byte_scales(format) ? of_byte_scales : plain;
}

double read_bandwidth() {
    static const double best = [] {
        const minim::ReadBandwidth bandwidth(pool(), uint64_t{512} << 20);
        double fastest = 0.0;
        for (int round = 0; round < 5; ++round) fastest = std::max(fastest, bandwidth.measure());
        return fastest;
    }();
    return best;
}

void linear(benchmark::State& state, CpuLevel level, Format format, int64_t rows, int64_t cols, int64_t n) {
    uint64_t row_bytes = 0;
    if (!minim::row_bytes(format, static_cast<uint64_t>(cols), row_bytes)) return;
    const auto backend = minim::cpu::make_cpu_backend(pool(), level);
    const auto scratch = backend->reserve({.n_rows = n, .hidden = cols});
    std::vector<float> h(static_cast<size_t>(n * cols));
    std::mt19937 random(2);
    for (float& value : h) value = std::normal_distribution<float>()(random);
    std::vector<float> y(static_cast<size_t>(n * rows));

    const uint64_t matrix_bytes = static_cast<uint64_t>(rows) * row_bytes;
    uint64_t at = 0;
    while (state.KeepRunning()) {
        if (at + matrix_bytes > k_ring_bytes) at = 0;
        const minim::backend::Matrix weight = {.data = ring(format).data() + at,
                                               .format = format,
                                               .rows = rows,
                                               .cols = cols,
                                               .row_bytes = static_cast<int64_t>(row_bytes),
                                               .packed = backend->packs(format)};
        const minim::backend::LinearTask task = {&weight, y.data(), false};
        backend->linear(*scratch, h.data(), n, {&task, 1});
        benchmark::DoNotOptimize(y.data());
        at += matrix_bytes;
    }
    const double bytes = static_cast<double>(state.iterations()) * static_cast<double>(matrix_bytes);
    state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
    state.counters["of_read"] = benchmark::Counter(bytes / read_bandwidth(), benchmark::Counter::kIsRate);
    state.counters["Gmul/s"] = benchmark::Counter(
        static_cast<double>(state.iterations()) * static_cast<double>(rows * cols * n) / 1e9,
        benchmark::Counter::kIsRate);
}

void register_all() {
    struct Shape {
        int64_t rows, cols;
    };
    for (const CpuLevel level : minim::cpu_levels()) {
        for (const Format format :
             {Format::f32,       Format::f16,     Format::bf16,   Format::q8_0,          Format::iq4_nl,
              Format::mxfp4,     Format::nvfp4,   Format::q4_k,   Format::q6_k,          Format::iq4_xs,
              Format::q5_k,      Format::iq2_k,   Format::iq3_k,  Format::iq4_k,         Format::iq5_k,
              Format::iq6_k,     Format::iq2_ks,  Format::iq3_ks, Format::iq4_ks,        Format::iq4_kss,
              Format::iq5_ks,    Format::iq2_kl,  Format::iq1_kt, Format::iq2_kt,        Format::iq3_kt,
              Format::iq4_kt,    Format::iq1_s,   Format::iq1_m,  Format::iq2_xxs,       Format::iq2_xs,
              Format::iq2_s,     Format::iq3_xxs, Format::iq3_s,  Format::fp8_e4m3_b128, Format::int4_s128,
              Format::int4_z128, Format::x1_s,    Format::x1_m,   Format::x2_xxs,        Format::x2_xs,
              Format::x2_s,      Format::x3_xxs,  Format::x3_s}) {
            for (const Shape shape : {Shape{3072, 1536}, Shape{1536, 3072}}) {
                for (const int64_t n : {1, 2, 3, 4, 8, 16, 32, 128}) {
                    const std::string name = std::string(to_string(level)) + "/" +
                                             std::string(minim::traits(format).name) + "/" +
                                             std::to_string(shape.rows) + "x" + std::to_string(shape.cols) +
                                             "/tokens:" + std::to_string(n);
                    benchmark::RegisterBenchmark(name.c_str(), linear, level, format, shape.rows, shape.cols,
                                                 n)
                        ->UseRealTime()
                        ->Unit(benchmark::kMicrosecond);
                }
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    ring(Format::f16);  // filled before anything is measured
    benchmark::AddCustomContext("threads", std::to_string(pool().n_threads()));
    benchmark::AddCustomContext("read GB/s", std::to_string(read_bandwidth() / 1e9));
    register_all();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
