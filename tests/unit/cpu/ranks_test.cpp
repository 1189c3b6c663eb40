// SPDX-License-Identifier: Apache-2.0
// The shares of a layer that ranks on host devices compute, against one rank that computes all of it.
#include <cmath>

#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"
#include "support/catch.h"
#include "support/rank_operations.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

using backend::ExpertStack;
using backend::ExpertWeights;

// The matrices of a layer's experts, on the host. For each expert the rows are in two blocks, if the caller wants it.
struct ExpertMatrices {
    std::vector<TestMatrix> matrices;
    std::vector<backend::RowBlocks> blocks;
    ExpertWeights weights;

    ExpertMatrices(Format format, int64_t n_expert, int64_t hidden, int64_t ff) {
        Random random(8);
        const auto stack = [&](ExpertStack& out, int64_t rows, int64_t cols) {
            for (int64_t e = 0; e < n_expert; ++e) {
                matrices.emplace_back(format, rows, cols, random);
                out.expert.push_back(matrices.back().view.data);
                out.scale.push_back(1.0F + 0.25F * static_cast<float>(e));
            }
            out.format = format;
            out.rows = rows;
            out.cols = cols;
            out.row_bytes = matrices.back().view.row_bytes;
        };
        stack(weights.gate, ff, hidden);
        stack(weights.up, ff, hidden);
        stack(weights.down, hidden, ff);
    }
    // Cuts the rows of every expert for which has() is true after the first 32.
    template <typename Has>
    void cut_rows(const Has& has) {
        blocks.reserve(matrices.size());
        for (ExpertStack* stack : {&weights.gate, &weights.up, &weights.down}) {
            for (size_t e = 0; e < stack->expert.size(); ++e) {
                const std::byte* first = stack->expert[e];
                blocks.push_back({{0, 32, stack->rows}, {first, first + 32 * stack->row_bytes}});
                stack->blocks.push_back(has(static_cast<int64_t>(e)) ? &blocks.back() : nullptr);
            }
        }
    }
};

backend::StepLimits limits_of(const ExpertRows& rows, const ExpertWeights& weights) {
    return {.n_rows = rows.n,
            .hidden = rows.hidden,
            .n_expert = weights.n_expert(),
            .n_expert_used = rows.n_used,
            .expert_ff = weights.gate.rows};
}

bool every_expert(int64_t /*expert*/) {
    return true;
}

}  // namespace

TEST_CASE("ranks: heads that are divided attend as on one rank") {
    const ThreadPool pool(2);
    const auto reference = reference::make_reference_backend();
    const auto cpu = cpu::make_cpu_backend(pool, detected_cpu_level());
    for (const HeadRows& rows : {HeadRows(70, 12, 4, 32, Format::f32), HeadRows(9, 8, 8, 20, Format::f32),
                                 HeadRows(3, 6, 2, 64, Format::f16), HeadRows(5, 4, 4, 32, Format::q8_0)}) {
        for (const auto* device : {&cpu, &reference}) {
            INFO((*device)->name() << " " << rows.n_head << "/" << rows.n_head_kv << " "
                                   << traits(rows.kv_format).name);
            const std::vector<float> whole = attend_on_ranks(**device, rows, 0, rows.n);
            const double rounding = rows.kv_format == Format::f32 ? 1e-5 : 1e-2;
            for (const int64_t n_ranks : {int64_t{1}, int64_t{2}, rows.n_head_kv})
                CHECK(largest_difference(attend_on_ranks(**device, rows, n_ranks, rows.n), whole) < rounding);
        }
    }
}

TEST_CASE("ranks: on the CPU one rank with its own sums of squares gives the bits of no sums") {
    for (const CpuLevel level : cpu_levels()) {
        const ThreadPool pool(2);
        const auto cpu = cpu::make_cpu_backend(pool, level);
        for (const HeadRows& rows :
             {HeadRows(70, 12, 4, 32, Format::f16), HeadRows(3, 6, 2, 20, Format::f32)}) {
            INFO(to_string(level) << " " << rows.n << " rows");
            CHECK(same_bits(attend_on_ranks(*cpu, rows, 1, rows.n), attend_on_ranks(*cpu, rows, 0, rows.n)));
        }
    }
}

TEST_CASE("ranks: divided heads have the same bits whatever the chunks, threads and instruction set") {
    const HeadRows rows(67, 12, 4, 32, Format::f16);
    std::vector<float> expected;
    for (const CpuLevel level : cpu_levels()) {
        for (const int32_t n_threads : {1, 3}) {
            for (const int64_t chunk : {67, 1, 10}) {
                INFO(to_string(level) << " threads " << n_threads << " chunk " << chunk);
                const ThreadPool pool(n_threads);
                const auto cpu = cpu::make_cpu_backend(pool, level);
                const std::vector<float> o = attend_on_ranks(*cpu, rows, 2, chunk);
                if (expected.empty()) expected = o;
                CHECK(same_bits(o, expected));
            }
        }
    }
}

TEST_CASE("ranks: experts that are divided sum to those of one rank", "[slow-emulated]") {
    const ThreadPool pool(2);
    const auto reference = reference::make_reference_backend();
    const auto cpu = cpu::make_cpu_backend(pool, detected_cpu_level());
    for (const Format format : {Format::f32, Format::q8_0, Format::q4_k}) {
        const ExpertMatrices layer(format, 7, 256, 256);
        for (const int64_t n : {1, 5, 40}) {
            const ExpertRows rows(n, 3, 7, 256);
            for (const auto* device : {&cpu, &reference}) {
                INFO((*device)->name() << " " << traits(format).name << " " << n << " rows");
                RankDevice on(**device, limits_of(rows, layer.weights));
                const std::vector<float> whole =
                    experts_on_rank(on, layer.weights, rows, every_expert, rows.before, true, n);
                CHECK(same_bits(experts_on_ranks(on, layer.weights, rows, 1, n), whole));
                for (const int64_t n_groups : {2, 3, 7})
                    CHECK(largest_difference(experts_on_ranks(on, layer.weights, rows, n_groups, n), whole) <
                          1e-5);
            }
        }
    }
}

TEST_CASE("ranks: without add, experts overwrite y with the sum that add adds to zeros") {
    const ThreadPool pool(2);
    const auto reference = reference::make_reference_backend();
    const auto cpu = cpu::make_cpu_backend(pool, detected_cpu_level());
    const ExpertMatrices layer(Format::q8_0, 7, 128, 64);
    const ExpertRows rows(6, 3, 7, 128);
    const std::vector<float> zeros(rows.before.size());
    const std::vector<float> nothing(rows.before.size(), NAN);
    for (const auto* device : {&cpu, &reference}) {
        INFO((*device)->name());
        RankDevice on(**device, limits_of(rows, layer.weights));
        const auto has = [](int64_t e) { return e != 2; };
        const std::vector<float> added = experts_on_rank(on, layer.weights, rows, has, zeros, true, rows.n);
        CHECK(same_bits(experts_on_rank(on, layer.weights, rows, has, nothing, false, rows.n), added));
        // No expert is here.
        const auto none = [](int64_t) { return false; };
        CHECK(same_bits(experts_on_rank(on, layer.weights, rows, none, rows.before, true, rows.n),
                        rows.before));
        CHECK(same_bits(experts_on_rank(on, layer.weights, rows, none, nothing, false, rows.n), zeros));
    }
}

TEST_CASE("ranks: a rank's experts have the same bits whatever the chunks, threads and instruction set") {
    const auto has = [](int64_t e) { return e % 2 == 1; };
    for (const Format format : {Format::f32, Format::q8_0, Format::q4_k}) {
        const ExpertMatrices layer(format, 6, 256, 256);
        const ExpertRows rows(11, 3, 6, 256);
        const std::vector<float> nothing(rows.before.size(), NAN);
        std::vector<float> expected;
        for (const CpuLevel level : cpu_levels()) {
            for (const int32_t n_threads : {1, 3}) {
                for (const int64_t chunk : {11, 1, 4}) {
                    INFO(traits(format).name << " " << to_string(level) << " threads " << n_threads
                                             << " chunk " << chunk);
                    const ThreadPool pool(n_threads);
                    const auto cpu = cpu::make_cpu_backend(pool, level);
                    RankDevice on(*cpu, limits_of(rows, layer.weights));
                    const std::vector<float> y =
                        experts_on_rank(on, layer.weights, rows, has, nothing, false, chunk);
                    if (expected.empty()) expected = y;
                    CHECK(same_bits(y, expected));
                }
            }
        }
    }
}

TEST_CASE("ranks: rows in blocks need no blocks of experts that are on another rank") {
    const auto has = [](int64_t e) { return e == 3 || e == 4; };
    const ThreadPool pool(2);
    const auto cpu = cpu::make_cpu_backend(pool, detected_cpu_level());
    for (const Format format : {Format::f32, Format::q8_0}) {
        const ExpertRows rows(5, 3, 6, 128);
        ExpertMatrices layer(format, 6, 128, 96);
        RankDevice on(*cpu, limits_of(rows, layer.weights));
        const std::vector<float> plain =
            experts_on_rank(on, layer.weights, rows, has, rows.before, true, rows.n);
        layer.cut_rows(has);
        CHECK(same_bits(experts_on_rank(on, layer.weights, rows, has, rows.before, true, rows.n), plain));
    }
}

}  // namespace minim::test
