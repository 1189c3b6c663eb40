// SPDX-License-Identifier: Apache-2.0
// The shares of a layer that ranks on GPUs compute, against one rank that computes all of it.
#include <cmath>
#include <span>

#include "cuda/cuda_backend.h"
#include "gpu/fixture.h"
#include "gpu/support.h"
#include "reference/reference_backend.h"
#include "support/catch.h"
#include "support/rank_operations.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertStack;
using backend::ExpertWeights;

constexpr Arithmetic k_arithmetics[] = {Arithmetic::fast, Arithmetic::deterministic, Arithmetic::exact};

constexpr int64_t k_experts = 7;
constexpr int64_t k_used = 3;

struct RankCase {
    Format gate, up, down;
    int64_t ff, hidden;
};

// Gate and up in one launch and in two; rows beyond the last panel; floats; tensor cores for floats of 8 and 16 bits; formats
// that have exact kernels alone.
constexpr RankCase k_rank_cases[] = {
    {Format::q8_0, Format::q8_0, Format::q8_0, 96, 128},
    {Format::q4_k, Format::q5_k, Format::iq3_s, 256, 256},
    {Format::bf16, Format::bf16, Format::q8_0, 64, 40},
    {Format::nvfp4, Format::nvfp4, Format::bf16, 64, 128},
    {Format::f32, Format::f32, Format::f32, 23, 42},
    {Format::f16, Format::f16, Format::f16, 128, 128},
    {Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, 128, 128}};

backend::StepLimits limits_of(const RankCase& c, int64_t n_rows) {
    return {.n_rows = n_rows,
            .n_context = 64,
            .hidden = c.hidden,
            .n_head = 2,
            .n_head_kv = 2,
            .head_dim = 32,
            .n_expert = k_experts,
            .n_expert_used = k_used,
            .expert_ff = c.ff};
}

// The experts of a layer on a device, packed where it packs them.
ExpertWeights put_experts(RankDevice& on, const RankCase& c) {
    Random random(8);
    const auto stack = [&](Format format, int64_t rows, int64_t cols) {
        ExpertStack s;
        for (int64_t e = 0; e < k_experts; ++e) {
            const TestMatrix matrix(format, rows, cols, random);
            backend::Matrix view = matrix.view;
            std::byte* data = on.put(matrix.bytes);
            view.data = data;
            if (on.device().packs(format)) {
                on.device().pack({&data, 1}, view);
                view.packed = true;
            }
            add_expert(s, view, 1.0F + static_cast<float>(e) / 8.0F);
        }
        return s;
    };
    return {stack(c.gate, c.ff, c.hidden), stack(c.up, c.ff, c.hidden), stack(c.down, c.hidden, c.ff)};
}

bool any_expert(int64_t /*expert*/) {
    return true;
}

}  // namespace

TEST_CASE("gpu ranks: heads that are divided attend as on one rank") {
    if (!has_devices(1)) return;
    const auto reference = reference::make_reference_backend();
    for (const HeadRows& rows : {HeadRows(70, 12, 4, 32, Format::f16), HeadRows(1, 12, 4, 128, Format::f16),
                                 HeadRows(5, 8, 8, 64, Format::q8_0), HeadRows(3, 4, 2, 20, Format::f32)}) {
        const std::vector<float> expected = attend_on_ranks(*reference, rows, 0, rows.n);
        for (const Arithmetic arithmetic : k_arithmetics) {
            INFO(rows.n << " rows of " << rows.n_head << "/" << rows.n_head_kv << "/" << rows.head_dim
                        << ", arithmetic " << static_cast<int>(arithmetic));
            const auto device = cuda::make_cuda_backend(0, arithmetic);
            const std::vector<float> whole = attend_on_ranks(*device, rows, 0, rows.n);
            for (const int64_t n_ranks : {int64_t{1}, int64_t{2}, rows.n_head_kv}) {
                const std::vector<float> o = attend_on_ranks(*device, rows, n_ranks, rows.n);
                CHECK(largest_difference(o, expected) < 1e-2);
                CHECK(largest_difference(o, whole) < (arithmetic == Arithmetic::exact ? 1e-3 : 5e-3));
                // The kernels for few heads sum the squares as those of attention do.
                if (n_ranks == 1 && arithmetic != Arithmetic::exact && rows.head_dim % 32 == 0)
                    CHECK(same_bits(o, whole));
            }
        }
    }
}

TEST_CASE("gpu ranks: in deterministic arithmetic divided heads have the same bits in any chunks") {
    if (!has_devices(1)) return;
    const auto device = cuda::make_cuda_backend(0, Arithmetic::deterministic);
    const HeadRows rows(20, 12, 4, 32, Format::f16);
    const std::vector<float> expected = attend_on_ranks(*device, rows, 2, rows.n);
    for (const int64_t chunk : {1, 7}) CHECK(same_bits(attend_on_ranks(*device, rows, 2, chunk), expected));
}

TEST_CASE("gpu ranks: experts that are divided sum to those of one rank") {
    if (!has_devices(1)) return;
    for (const Arithmetic arithmetic : k_arithmetics) {
        const auto device = cuda::make_cuda_backend(0, arithmetic);
        for (const RankCase& c : k_rank_cases) {
            RankDevice on(*device, limits_of(c, 40));
            const ExpertWeights weights = put_experts(on, c);
            for (const int64_t n : {1, 5, 40}) {
                INFO(traits(c.gate).name << " " << traits(c.down).name << ", " << n << " rows, arithmetic "
                                         << static_cast<int>(arithmetic));
                const ExpertRows rows(n, k_used, k_experts, c.hidden);
                const std::vector<float> whole =
                    experts_on_rank(on, weights, rows, any_expert, rows.before, true, n);
                CHECK(same_bits(experts_on_ranks(on, weights, rows, 1, n), whole));
                for (const int64_t n_groups : {2, 7})
                    CHECK(largest_difference(experts_on_ranks(on, weights, rows, n_groups, n), whole) < 1e-5);
            }
        }
    }
}

TEST_CASE("gpu ranks: without add, experts overwrite y with the sum that add adds to zeros") {
    if (!has_devices(1)) return;
    for (const Arithmetic arithmetic : k_arithmetics) {
        const auto device = cuda::make_cuda_backend(0, arithmetic);
        for (const RankCase& c : k_rank_cases) {
            RankDevice on(*device, limits_of(c, 40));
            const ExpertWeights weights = put_experts(on, c);
            for (const int64_t n : {1, 40}) {
                INFO(traits(c.gate).name << " " << traits(c.down).name << ", " << n << " rows, arithmetic "
                                         << static_cast<int>(arithmetic));
                const ExpertRows rows(n, k_used, k_experts, c.hidden);
                const std::vector<float> zeros(rows.before.size());
                const std::vector<float> nothing(rows.before.size(), NAN);
                const auto y = [&](const auto& has, const std::vector<float>& before, bool add) {
                    return experts_on_rank(on, weights, rows, has, before, add, n);
                };
                const auto some = [](int64_t e) { return e == 1 || e == 4; };
                const auto none = [](int64_t) { return false; };
                CHECK(same_bits(y(some, nothing, false), y(some, zeros, true)));
                CHECK(same_bits(y(none, rows.before, true), rows.before));
                CHECK(same_bits(y(none, nothing, false), zeros));
                // The blocks of threads of later operations are counted from 0 again.
                CHECK(same_bits(y(some, nothing, false), y(some, zeros, true)));
            }
        }
    }
}

TEST_CASE("gpu ranks: in deterministic arithmetic a rank's experts have the same bits in any chunks") {
    if (!has_devices(1)) return;
    const auto device = cuda::make_cuda_backend(0, Arithmetic::deterministic);
    const auto has = [](int64_t e) { return e % 2 == 1; };
    for (const RankCase& c : {k_rank_cases[0], k_rank_cases[2], k_rank_cases[6]}) {
        INFO(traits(c.gate).name);
        RankDevice on(*device, limits_of(c, 20));
        const ExpertWeights weights = put_experts(on, c);
        const ExpertRows rows(20, k_used, k_experts, c.hidden);
        const std::vector<float> nothing(rows.before.size(), NAN);
        const auto y = [&](int64_t chunk) {
            return experts_on_rank(on, weights, rows, has, nothing, false, chunk);
        };
        const std::vector<float> expected = y(20);
        for (const int64_t chunk : {1, 7}) CHECK(same_bits(y(chunk), expected));
    }
}

TEST_CASE("gpu ranks: a rank's share of a layer is recorded and repeated") {
    if (!has_devices(1)) return;
    const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
    const RankCase& c = k_rank_cases[0];
    const HeadRows heads(1, 4, 2, 32, Format::f16);
    const ExpertRows rows(1, k_used, k_experts, c.hidden);
    RankDevice on(*device, limits_of(c, 1));
    std::vector<uint8_t> is_on_device;
    const ExpertWeights own = experts_of_rank(
        on, put_experts(on, c), [](int64_t e) { return e % 2 == 0; }, is_on_device);
    backend::KvLayout layout = {1, 1, 32, Format::f16, Format::f16};
    std::vector<std::byte*> pages = {
        on.put(std::vector<std::byte>(static_cast<size_t>(layout.page_bytes())))};
    const backend::KvSequence sequence = {&layout, pages};
    const backend::KvRow row = {&sequence, 0};
    const auto half = [&](const std::vector<float>& all) { return columns(all, 1, 0, 2); };
    float* squares = on.put(std::vector<float>(2, NAN));
    backend::AttendArgs args;
    args.n = 1;
    args.q = on.put(half(heads.q));
    args.k = on.put(half(heads.k));
    args.v = on.put(half(heads.v));
    args.o = on.put(std::vector<float>(64, NAN));
    args.rows = {&row, 1};
    args.n_head = 2;
    args.n_head_kv = 1;
    args.head_dim = 32;
    args.q_norm = {on.put(half(heads.q_norm)), 64};
    args.k_norm = {on.put(half(heads.k_norm)), 32};
    args.norm_eps = 1e-6F;
    args.rope_frequency = heads.frequency;
    args.squares = squares;
    args.n_head_all = 4;
    args.n_head_kv_all = 2;
    const int32_t* ids = on.put(rows.ids);
    const float* gates = on.put(rows.gates);
    float* h = on.put(rows.h);
    float* y = on.put(rows.before);
    const auto write = [&](float* to, const std::vector<float>& from) {
        device->write(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from.data()),
                      from.size() * sizeof(float));
    };
    const backend::StepBatch batch = {.ids = {}, .rows = {&row, 1}, .n_head = 2, .n_head_kv = 1, .calls = y};
    std::vector<float> computed;
    for (int step = 0; step < 5; ++step) {
        INFO("step " << step);
        std::vector<float> q = half(heads.q);
        for (float& x : q) x += static_cast<float>(step);
        write(args.q, q);
        write(y, std::vector<float>(rows.before.size(), NAN));
        bool is_repeated = false;
        do {
            is_repeated = device->begin_step(on.scratch(), batch);
            if (is_repeated) break;
            device->head_squares(on.scratch(), args, squares);
            device->attend(on.scratch(), args);
            device->experts(on.scratch(), h, 1, ids, gates, k_used, own, y, false);
        } while (!device->end_step(on.scratch()));
        const std::vector<float> sums = on.get(squares, 2);
        CHECK(is_repeated == (step >= 2));
        double expected = 0.0;
        for (const float x : q) expected += static_cast<double>(x) * static_cast<double>(x);
        CHECK(static_cast<double>(sums[0]) == Approx(expected).epsilon(1e-5));
        const std::vector<float> result = on.get(y, rows.before.size());
        if (computed.empty()) computed = result;
        CHECK(same_bits(result, computed));
        CHECK_FALSE(std::isnan(result[0]));
    }
}

}  // namespace minim::test
