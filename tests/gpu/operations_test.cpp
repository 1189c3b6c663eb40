// SPDX-License-Identifier: Apache-2.0
// Every operation of the CUDA backend in exact arithmetic against the reference.
#include <algorithm>
#include <cstring>

#include "cuda/exact/kv_rows.h"
#include "format/blocks.h"
#include "format/encode.h"
#include "gpu/fixture.h"
#include "gpu/support.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;

std::vector<Format> weight_formats() {
    std::vector<Format> formats;
    for_each_block(AllBlocks{}, [&](auto block) { formats.push_back(decltype(block)::format); });
    return formats;
}

}  // namespace

TEST_CASE("gpu: linear and embed agree with the reference for every format and batch size") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::exact);
    for (const Format format : weight_formats()) {
        Random random(3);
        TestMatrix weight(format, 37, 512, random);
        weight.view.scale = 0.75F;
        const Matrix on_device = f.put(weight);
        CHECK(f.device->runs(format));
        for (const int64_t n : {0, 1, 7}) {
            INFO(traits(format).name << ", " << n << " rows");
            const std::vector<float> h = random.normal(n * 512);
            std::vector<float> expected = random.normal(n * 37);
            float* y = f.put(expected);
            for (const bool add : {true, false, true}) {
                const LinearTask task = {&weight.view, expected.data(), add};
                const LinearTask device_task = {&on_device, y, add};
                f.reference->linear(*f.none, h.data(), n, {&task, 1});
                f.device->linear(*f.stream, f.put(h), n, {&device_task, 1});
            }
            CHECK(distance(expected, f.get(y, expected.size())) < 1e-5);

            std::vector<int32_t> ids;
            for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(random.below(37)));
            std::vector<float> x(static_cast<size_t>(n * 512));
            f.reference->embed(*f.none, weight.view, ids, x.data());
            float* device_x = f.put(std::vector<float>(x.size()));
            f.device->embed(*f.stream, on_device, ids, device_x);
            CHECK(same_bits(x, f.get(device_x, x.size())));
        }
    }
}

TEST_CASE("gpu: norm, scale and route agree with the reference") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::exact);
    Random random(4);
    for (const int64_t n : {1, 5, 33}) {
        const std::vector<float> x = random.normal(n * 96);
        const std::vector<float> weight = random.normal(96);
        std::vector<float> expected(x.size());
        f.reference->norm(*f.none, x.data(), n, {weight.data(), 96}, 1e-6F, expected.data());
        f.reference->scale(*f.none, expected.data(), n * 96, 1.5F);
        float* h = f.put(x);
        f.device->norm(*f.stream, h, n, {f.put(weight), 96}, 1e-6F, h);
        f.device->scale(*f.stream, h, n * 96, 1.5F);
        CHECK(distance(expected, f.get(h, x.size())) < 1e-6);

        check_route(f, x, n, random);
    }
}

TEST_CASE("gpu: experts agree with the reference") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::exact);
    for (const Format format :
         {Format::f32, Format::q8_0, Format::q4_k, Format::iq4_xs, Format::iq2_s, Format::iq5_k}) {
        Random random(5);
        std::vector<TestMatrix> matrices;
        const auto stack = [&](bool on_device, size_t first) {
            ExpertStack s;
            for (size_t e = 0; e < 9; ++e) {
                const TestMatrix& matrix = matrices[first + e];
                add_expert(s, on_device ? f.put(matrix) : matrix.view, 1.0F + static_cast<float>(e) / 8.0F);
            }
            return s;
        };
        for (int part = 0; part < 2; ++part)
            for (int e = 0; e < 9; ++e) matrices.emplace_back(format, 256, 512, random);
        for (int e = 0; e < 9; ++e) matrices.emplace_back(format, 512, 256, random);
        const auto weights = [&](bool on_device) {
            return ExpertWeights{stack(on_device, 0), stack(on_device, 9), stack(on_device, 18)};
        };
        const ExpertWeights host = weights(false);
        const ExpertWeights device = f.with_table(weights(true));
        for (const int64_t n : {1, 12}) {
            const std::vector<float> h = random.normal(n * 512, 0.05F);
            std::vector<float> y = random.normal(n * 512);
            std::vector<int32_t> ids;
            std::vector<float> gates;
            for (int64_t i = 0; i < 3 * n; ++i) {
                ids.push_back(static_cast<int32_t>((i / 3 + 2 * (i % 3)) % 9));
                gates.push_back(0.2F + static_cast<float>(i % 3) / 5.0F);
            }
            float* device_y = f.put(y);
            f.device->experts(*f.stream, f.put(h), n, f.put(ids), f.put(gates), 3, device, device_y, true);
            f.reference->experts(*f.none, h.data(), n, ids.data(), gates.data(), 3, host, y.data(), true);
            INFO(traits(format).name << ", " << n << " rows");
            CHECK(distance(y, f.get(device_y, y.size())) < 1e-5);
        }
    }
}

TEST_CASE("gpu: the KV cache is stored as the encoders of the formats do, and read back as the decoders do") {
    Random random(6);
    for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_0}) {
        for (const float size : {1.0F, 1e-30F, 1e30F, 0.0F}) {
            const std::vector<float> x = random.normal(128, size);
            uint64_t bytes = 0;
            REQUIRE(row_bytes(format, 128, bytes));
            std::vector<std::byte> expected(bytes);
            std::vector<std::byte> row(bytes);
            row_encoder(format)(x.data(), 128, expected.data());
            cuda::exact::encode_kv_row(format, x.data(), 128, reinterpret_cast<uint8_t*>(row.data()));
            INFO(traits(format).name << ", size " << size);
            CHECK(row == expected);
            std::vector<float> decoded(128);
            traits(format).decode_row(row.data(), 128, decoded.data());
            for (int64_t i = 0; i < 128; ++i)
                CHECK(same_bits(
                    cuda::exact::kv_element(format, reinterpret_cast<const uint8_t*>(row.data()), i),
                    decoded[static_cast<size_t>(i)]));
        }
    }
}

}  // namespace minim::test
