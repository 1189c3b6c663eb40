// SPDX-License-Identifier: Apache-2.0
// Operations on packed weights and quantised inputs against the reference. Inputs are numbers that 8-bit blocks hold exactly,
// so that only the order of sums is different.
#include <algorithm>
#include <cmath>

#include "cuda/fast/operations.h"
#include "format/blocks.h"
#include "gpu/fixture.h"
#include "gpu/support.h"
#include "panel/panel.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;

std::vector<Format> packed_formats() {
    std::vector<Format> formats;
    for_each_block(AllBlocks{}, [&](auto block) {
        if (cuda::fast::has_panels(decltype(block)::format)) formats.push_back(decltype(block)::format);
    });
    return formats;
}

// Returns multiples of 1/64 between -127/64 and 127/64; one in every 32 is 127/64.
std::vector<float> exact_inputs(int64_t count, Random& random) {
    std::vector<float> x(static_cast<size_t>(count));
    for (size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(i % 32 == 7 ? 127 : random.below(255) - 127) / 64.0F;
    return x;
}

}  // namespace

TEST_CASE("gpu: panels that the host has packed become those that the device packs, in every format") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    for (const Format format : packed_formats()) {
        INFO(traits(format).name);
        Random random(8);
        const TestMatrix matrix(format, 37, 512, random);  // two panels and five rows
        const auto bytes = static_cast<size_t>(matrix.view.rows * matrix.view.row_bytes);
        const std::byte* rows = matrix.view.data;
        std::vector<std::byte> panels(rows, rows + bytes);
        const auto panel_bytes = static_cast<size_t>(panel::k_panel_rows * matrix.view.row_bytes);
        for (size_t at = 0; at + panel_bytes <= bytes; at += panel_bytes)
            panel::pack_panel(format, rows + at, matrix.view.row_bytes, panel::k_panel_rows, matrix.view.cols,
                              panels.data() + at);
        std::byte* adopted = f.put(panels);
        f.device->adopt(*f.stream, {&adopted, 1}, matrix.view);
        CHECK(f.get(adopted, bytes) == f.get(f.put_packed(matrix).data, bytes));
    }
}

TEST_CASE("gpu: packed weights of every format give the reference's products") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    const std::vector<Format> formats = packed_formats();
    // All of them on a GPU; without MINIM_FULL_TESTS those that emulated_kernels.cpp names.
    CHECK((formats.size() == 55 || formats.size() == 16));
    for (const Format format : formats) {
        Random random(7);
        const int64_t block = traits(format).block_elems;
        const int64_t cols = 512 + (block < 256 ? block : 0);  // the last stage is not full
        // Two panels and some rows; seven panels, which are no whole tile.
        const TestMatrix few(format, 37, cols, random);
        const TestMatrix many(format, 112, cols, random);
        const Matrix few_on_device = f.put_packed(few);
        Matrix many_on_device = f.put_packed(many);
        Matrix many_on_host = many.view;
        many_on_host.scale = many_on_device.scale = 0.75F;
        CHECK((few_on_device.packed && many_on_device.packed));
        for (const int64_t n : {0, 1, 3, 7, 66}) {
            if (n == 66 && format != Format::iq4_xs && format != Format::iq2_s) continue;
            INFO(traits(format).name << ", " << n << " rows");
            const std::vector<float> h = exact_inputs(n * cols, random);
            std::vector<float> y_few = random.normal(n * 37);
            std::vector<float> y_many = random.normal(n * 112);
            float* device_few = f.put(y_few);
            float* device_many = f.put(y_many);
            const LinearTask expected[] = {{&few.view, y_few.data(), false},
                                           {&many_on_host, y_many.data(), true}};
            const LinearTask tasks[] = {{&few_on_device, device_few, false},
                                        {&many_on_device, device_many, true}};
            f.reference->linear(*f.none, h.data(), n, expected);
            f.device->linear(*f.stream, f.put(h), n, tasks);
            CHECK(distance(y_few, f.get(device_few, y_few.size())) < 1e-5);
            CHECK(distance(y_many, f.get(device_many, y_many.size())) < 1e-5);
        }
    }
}

TEST_CASE("gpu: weights of 8 and 16 bits that are floats give the reference's products") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    const auto stream = f.device->reserve(
        {.n_rows = 130, .n_context = 64, .hidden = 384, .n_head = 2, .n_head_kv = 1, .head_dim = 128});
    for (const Format format : {Format::f16, Format::bf16, Format::fp8_e4m3_b128}) {
        INFO(traits(format).name);
        Random random(9);
        // No whole tile; two tiles and some rows.
        const TestMatrix few(format, 37, 384, random);
        const TestMatrix many(format, 130, 384, random);
        const Matrix few_on_device = f.put_packed(few);
        Matrix many_on_device = f.put_packed(many);
        Matrix many_on_host = many.view;
        many_on_host.scale = many_on_device.scale = 0.75F;
        CHECK_FALSE(few_on_device.packed);
        const auto largest_distance = [&](const std::vector<float>& h) {
            const auto n = std::ssize(h) / 384;
            std::vector<float> y_few = random.normal(n * 37);
            std::vector<float> y_many = random.normal(n * 130);
            float* device_few = f.put(y_few);
            float* device_many = f.put(y_many);
            const float* device_h = f.put(h);
            f.device->synchronize(*f.stream);
            const LinearTask expected[] = {{&few.view, y_few.data(), false},
                                           {&many_on_host, y_many.data(), true}};
            const LinearTask tasks[] = {{&few_on_device, device_few, false},
                                        {&many_on_device, device_many, true}};
            f.reference->linear(*f.none, h.data(), n, expected);
            f.device->linear(*stream, device_h, n, tasks);
            f.device->synchronize(*stream);
            return std::max(distance(y_few, f.get(device_few, y_few.size())),
                            distance(y_many, f.get(device_many, y_many.size())));
        };
        for (const int64_t n : {0, 1, 2, 4, 5, 64, 66, 130}) {
            INFO(n << " rows");
            CHECK(largest_distance(exact_inputs(n * 384, random)) < 1e-5);
        }
        // F16 alone would lose the large and the small ones; BF16 has them all, with eight bits.
        const double near = format == Format::bf16 ? 4e-3 : 5e-4;
        for (const float size : {1.0F, 1e9F, 1e-9F})
            CHECK(largest_distance(random.normal(9 * 384, size)) < near);
        // NaN and infinity show.
        for (const float bad : {NAN, INFINITY}) {
            std::vector<float> h = random.normal(9 * 384);
            h[3 * 384 + 200] = bad;
            float* y = f.put(std::vector<float>(9 * 37));
            const LinearTask task = {&few_on_device, y, false};
            f.device->linear(*f.stream, f.put(h), 9, {&task, 1});
            const std::vector<float> out = f.get(y, 9 * 37);
            for (size_t i = 0; i < out.size(); ++i) CHECK(std::isfinite(out[i]) == (i / 37 != 3));
        }
    }
}

TEST_CASE("gpu: quantised inputs are near, and a normalised row is quantised once") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    Random random(8);
    const TestMatrix weight(Format::q8_0, 48, 512, random);
    const Matrix on_device = f.put_packed(weight);
    for (const int64_t n : {1, 9}) {
        const std::vector<float> x = random.normal(n * 512);
        const std::vector<float> norm = random.normal(512);
        std::vector<float> h(x.size());
        std::vector<float> expected(static_cast<size_t>(n * 48));
        float* device_h = f.put(h);
        float* y = f.put(expected);
        f.reference->norm(*f.none, x.data(), n, {norm.data(), 512}, 1e-6F, h.data());
        f.device->norm(*f.stream, f.put(x), n, {f.put(norm), 512}, 1e-6F, device_h);
        CHECK(distance(h, f.get(device_h, h.size())) < 1e-6);
        const LinearTask task = {&weight.view, expected.data(), false};
        const LinearTask device_task = {&on_device, y, false};
        f.reference->linear(*f.none, h.data(), n, {&task, 1});
        f.device->linear(*f.stream, device_h, n, {&device_task, 1});
        CHECK(distance(expected, f.get(y, expected.size())) < 1.5e-2);
        // The last row alone, of what the norm has quantised; then other rows in the same place.
        for (const bool is_new : {false, true}) {
            std::vector<float> last(h.end() - 512, h.end());
            if (is_new) {
                last = random.normal(512);
                f.device->upload(*f.stream, reinterpret_cast<std::byte*>(device_h + (n - 1) * 512),
                                 reinterpret_cast<const std::byte*>(last.data()), 512 * sizeof(float));
            }
            f.reference->linear(*f.none, last.data(), 1, {&task, 1});
            f.device->linear(*f.stream, device_h + (n - 1) * 512, 1, {&device_task, 1});
            expected.resize(48);
            CHECK(distance(expected, f.get(y, 48)) < 1.5e-2);
        }
    }
    // NaN and infinity show.
    for (const float bad : {NAN, INFINITY}) {
        std::vector<float> h = random.normal(512);
        h[100] = bad;
        float* y = f.put(std::vector<float>(48));
        const LinearTask task = {&on_device, y, false};
        f.device->linear(*f.stream, f.put(h), 1, {&task, 1});
        for (const float value : f.get(y, 48)) CHECK(!std::isfinite(value));
    }
}

TEST_CASE("gpu: rows of floats, norm, scale and route in fast arithmetic") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    Random random(4);
    for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
        // In one launch: of 37 rows, and of so many that a warp has a row for itself.
        const TestMatrix few(format, 37, 200, random);
        const TestMatrix many(format, 4200, 200, random);
        const Matrix device_few = f.put(few);
        const Matrix device_many = f.put(many);
        for (const int64_t n : {0, 1, 3, 6}) {
            const std::vector<float> h = random.normal(n * 200);
            const float* device_h = f.put(h);
            std::vector<float> y[] = {random.normal(n * 37), random.normal(n * 37), random.normal(n * 4200)};
            float* device_y[] = {f.put(y[0]), f.put(y[1]), f.put(y[2])};
            for (const size_t n_tasks : {size_t{2}, size_t{3}}) {
                const LinearTask tasks[] = {{&few.view, y[0].data(), true},
                                            {&few.view, y[1].data(), false},
                                            {&many.view, y[2].data(), true}};
                const LinearTask device_tasks[] = {{&device_few, device_y[0], true},
                                                   {&device_few, device_y[1], false},
                                                   {&device_many, device_y[2], true}};
                f.reference->linear(*f.none, h.data(), n, std::span(tasks).first(n_tasks));
                f.device->linear(*f.stream, device_h, n, std::span(device_tasks).first(n_tasks));
            }
            for (size_t i = 0; i < 3; ++i) CHECK(distance(y[i], f.get(device_y[i], y[i].size())) < 1e-5);
        }
    }
    for (const int64_t n : {1, 5, 33}) {
        for (const int64_t size : {96, 80}) {  // 80: no whole blocks
            const std::vector<float> x = random.normal(n * size);
            const std::vector<float> weight = random.normal(size);
            std::vector<float> expected(x.size());
            f.reference->norm(*f.none, x.data(), n, {weight.data(), size}, 1e-6F, expected.data());
            f.reference->scale(*f.none, expected.data(), n * size, 1.5F);
            float* h = f.put(x);
            f.device->norm(*f.stream, h, n, {f.put(weight), size}, 1e-6F, h);
            f.device->scale(*f.stream, h, n * size, 1.5F);
            CHECK(distance(expected, f.get(h, x.size())) < 1e-6);
        }
        std::vector<float> x = random.normal(n * 96);
        if (n == 5) std::fill(x.begin() + 96, x.begin() + 2 * 96, 0.0F);  // ties
        check_route(f, x, n, random);
    }
}

TEST_CASE("gpu: routers of every size, for one row and for many") {
    if (!has_devices(1)) return;
    struct Case {
        Format format;
        int64_t n_expert, cols, n_used;
    };
    // Whole and partial tiles; enough columns for every part, or for one part only; numbers of columns that no vector
    // takes.
    const Case cases[] = {{Format::f32, 256, 512, 8},
                          {Format::f32, 70, 288, 3},
                          {Format::bf16, 64, 96, 32},
                          {Format::f16, 33, 256, 1},
                          {Format::fp8_e4m3_b128, 100, 384, 6},
                          {Format::f32, 40, 77, 4},
                          {Format::f32, 48, 64, 4},
                          {Format::bf16, 40, 32, 2}};
    Fixture f(Arithmetic::fast);
    const auto stream = f.device->reserve({.n_rows = 150,
                                           .n_context = 64,
                                           .hidden = 512,
                                           .n_head = 1,
                                           .n_head_kv = 1,
                                           .head_dim = 32,
                                           .n_expert = 256,
                                           .n_expert_used = 32,
                                           .expert_ff = 32});
    for (const Case& c : cases) {
        Random random(8);
        const TestMatrix router(c.format, c.n_expert, c.cols, random);
        // Some row counts twice: the work space must be as it was before.
        for (const int64_t n : {1, 4, 5, 33, 150, 1, 33}) {
            INFO(traits(c.format).name << ", " << c.n_expert << " experts, " << n << " rows");
            check_route(f, *stream, router, random.normal(n * c.cols), n, c.n_used, random);
        }
    }
}

TEST_CASE("gpu: many rows of F16 and BF16 weights") {
    if (!has_devices(1)) return;
    // With the vendor's library if there is one, and with the kernels that are used without it.
    for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::deterministic}) {
        Fixture f(arithmetic);
        const auto stream = f.device->reserve(
            {.n_rows = 130, .n_context = 64, .hidden = 256, .n_head = 2, .n_head_kv = 1, .head_dim = 128});
        for (const Format format : {Format::f16, Format::bf16}) {
            Random random(6);
            const TestMatrix wide(format, 200, 256, random);
            const TestMatrix narrow(format, 40, 256, random);
            const TestMatrix odd(format, 37, 256, random);
            Matrix wide_on_device = f.put(wide);
            Matrix wide_on_host = wide.view;
            wide_on_host.scale = wide_on_device.scale = 0.5F;
            const Matrix narrow_on_device = f.put(narrow);
            const Matrix odd_on_device = f.put(odd);
            for (const int64_t n : {47, 48, 130}) {
                INFO(traits(format).name << ", " << n << " rows");
                const std::vector<float> h = exact_inputs(n * 256, random);
                std::vector<float> y[] = {random.normal(n * 200), random.normal(n * 40),
                                          random.normal(n * 37)};
                float* device_y[] = {f.put(y[0]), f.put(y[1]), f.put(y[2])};
                const float* device_h = f.put(h);
                f.device->synchronize(*f.stream);
                const LinearTask expected[] = {{&wide_on_host, y[0].data(), true},
                                               {&narrow.view, y[1].data(), false},
                                               {&odd.view, y[2].data(), false}};
                const LinearTask tasks[] = {{&wide_on_device, device_y[0], true},
                                            {&narrow_on_device, device_y[1], false},
                                            {&odd_on_device, device_y[2], false}};
                f.reference->linear(*f.none, h.data(), n, expected);
                f.device->linear(*stream, device_h, n, tasks);
                f.device->synchronize(*stream);
                for (size_t i = 0; i < 3; ++i) CHECK(distance(y[i], f.get(device_y[i], y[i].size())) < 1e-5);
            }
        }
    }
}

TEST_CASE("gpu: experts of packed weights") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    struct Case {
        Format gate, up, down;
        int64_t ff, hidden;
    };
    // One launch for gate and up; formats that want two; rows beyond the last panel; floats in between.
    const Case cases[] = {{Format::q8_0, Format::q8_0, Format::q8_0, 96, 128},
                          {Format::iq2_s, Format::iq2_s, Format::iq4_xs, 256, 256},
                          {Format::q4_k, Format::q5_k, Format::iq3_s, 256, 256},
                          {Format::iq4_nl, Format::iq4_nl, Format::q8_0, 96, 72},
                          {Format::nvfp4, Format::nvfp4, Format::bf16, 64, 128},
                          {Format::bf16, Format::bf16, Format::q8_0, 64, 40},
                          {Format::bf16, Format::bf16, Format::q8_0, 64, 80},
                          {Format::f32, Format::f32, Format::f32, 23, 42},
                          {Format::f16, Format::f16, Format::f16, 40, 128},
                          {Format::bf16, Format::bf16, Format::bf16, 128, 256},
                          {Format::bf16, Format::fp8_e4m3_b128, Format::f16, 128, 256},
                          {Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, 128, 256},
                          {Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, Format::q8_0, 64, 256},
                          {Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, Format::bf16, 40, 128},
                          {Format::fp8_e4m3_b128, Format::q8_0, Format::fp8_e4m3_b128, 128, 256},
                          {Format::iq4_xs, Format::iq4_xs, Format::fp8_e4m3_b128, 128, 256}};
    for (const Case& c : cases) {
        Random random(5);
        const int64_t cols = traits(c.gate).block_elems == 1 ? c.hidden : (c.hidden + 255) / 256 * 256;
        const int64_t hidden = cols;
        std::vector<TestMatrix> matrices;
        for (int e = 0; e < 9; ++e) matrices.emplace_back(c.gate, c.ff, cols, random);
        for (int e = 0; e < 9; ++e) matrices.emplace_back(c.up, c.ff, cols, random);
        for (int e = 0; e < 9; ++e) matrices.emplace_back(c.down, hidden, c.ff, random);
        const auto stack = [&](bool on_device, size_t first) {
            ExpertStack s;
            for (size_t e = 0; e < 9; ++e) {
                const Matrix matrix =
                    on_device ? f.put_packed(matrices[first + e]) : matrices[first + e].view;
                add_expert(s, matrix, 1.0F + static_cast<float>(e) / 8.0F);
            }
            return s;
        };
        ExpertWeights host = {stack(false, 0), stack(false, 9), stack(false, 18)};
        ExpertWeights device = f.with_table({stack(true, 0), stack(true, 9), stack(true, 18)});
        struct Batch {
            int64_t n;
            backend::Activation activation = {};
        };
        constexpr backend::Activation k_clamped = {.alpha = 1.702F, .limit = 0.25F};
        for (const auto& [n, activation] :
             {Batch{0}, Batch{1}, Batch{4}, Batch{5}, Batch{40}, Batch{1, k_clamped}, Batch{40, k_clamped}}) {
            host.activation = device.activation = activation;
            const std::vector<float> h = random.normal(n * hidden, 0.05F);
            std::vector<float> y = random.normal(n * hidden);
            std::vector<int32_t> ids;
            std::vector<float> gates;
            for (int64_t i = 0; i < 3 * n; ++i) {
                // Most of 40 rows choose expert 4, which then has more slots than a tile.
                ids.push_back(static_cast<int32_t>(n == 40 && i % 3 == 0 ? 4 : (i / 3 + 2 * (i % 3)) % 9));
                gates.push_back(0.2F + static_cast<float>(i % 3) / 5.0F);
            }
            float* device_y = f.put(y);
            f.device->experts(*f.stream, f.put(h), n, f.put(ids), f.put(gates), 3, device, device_y, true);
            f.reference->experts(*f.none, h.data(), n, ids.data(), gates.data(), 3, host, y.data(), true);
            INFO(traits(c.gate).name << ", " << traits(c.up).name << ", " << traits(c.down).name << ", " << n
                                     << " rows, limit " << activation.limit);
            CHECK(distance(y, f.get(device_y, y.size())) < 2.5e-2);
        }
    }
}

}  // namespace minim::test
