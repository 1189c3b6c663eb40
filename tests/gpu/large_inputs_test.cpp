// SPDX-License-Identifier: Apache-2.0
// Inputs of up to a million: no number that the kernels store overflows, neither of inputs nor of their sums.
#include "unit/cpu/large_inputs.h"

#include "format/blocks.h"
#include "gpu/fixture.h"
#include "gpu/support.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;

std::vector<Format> formats_on(const backend::Backend& device) {
    std::vector<Format> formats;
    for (const FormatTraits& format : all_formats())
        if (format.decode_row != nullptr && device.runs(format.format)) formats.push_back(format.format);
    return formats;
}

// Inputs become 8-bit codes for packed weights, and for many rows the type of floats that tensor cores take.
double tolerance(Format format) {
    if (!takes_floats(format)) return 5e-3;
    if (format == Format::f32) return 1e-5;
    return format == Format::bf16 ? 4e-3 : 5e-4;
}

}  // namespace

TEST_CASE("gpu: products with inputs of up to a million are finite and near the exact ones") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    for (const Format format : formats_on(*f.device)) {
        Random random(23);
        const LargeMatrix weight(format, 37, 512, random);
        const Matrix on_device = f.put_packed(weight.matrix);
        const auto check = [&](int64_t n, int64_t first_kind) {
            const std::vector<float> x = large_rows(n, 512, first_kind, random);
            float* y = f.put(std::vector<float>(static_cast<size_t>(n * 37)));
            const LinearTask task = {&on_device, y, false};
            f.device->linear(*f.stream, f.put(x), n, {&task, 1});
            INFO(traits(format).name << ", " << n << " rows of kinds from " << first_kind);
            CHECK(weight.products(x).worst(f.get(y, static_cast<size_t>(n * 37))) < tolerance(format));
        };
        for (int64_t kind = 0; kind < k_kinds_of_rows; ++kind) check(1, kind);
        check(3, 0);
        check(3, 3);
        check(33, 0);
    }
}

TEST_CASE(
    "gpu: many rows of F16 and BF16 weights with inputs of up to a million are finite and near the exact "
    "ones") {
    if (!has_devices(1)) return;
    // With the vendor's library if there is one, and with the kernels that are used without it.
    for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::deterministic}) {
        Fixture f(arithmetic);
        const auto stream = f.device->reserve(
            {.n_rows = 64, .n_context = 64, .hidden = 256, .n_head = 2, .n_head_kv = 1, .head_dim = 128});
        for (const Format format : {Format::f16, Format::bf16}) {
            Random random(24);
            const LargeMatrix weight(format, 40, 256, random);
            const Matrix on_device = f.put(weight.matrix);
            const std::vector<float> x = large_rows(64, 256, 0, random);
            const std::vector<float> before = random.normal(64 * 40, 1e3F);
            const float* device_x = f.put(x);
            float* y = f.put(std::vector<float>(before.size()));
            float* sum = f.put(before);
            f.device->synchronize(*f.stream);
            const LinearTask tasks[] = {{&on_device, y, false}, {&on_device, sum, true}};
            f.device->linear(*stream, device_x, 64, tasks);
            f.device->synchronize(*stream);
            INFO(traits(format).name << (arithmetic == Arithmetic::fast ? ", fast" : ", deterministic"));
            const std::vector<float> product = f.get(y, before.size());
            CHECK(weight.products(x).worst(product) < tolerance(format));
            // The rows are added to the product without a loss beyond the rounding of their sum.
            const std::vector<float> added = f.get(sum, before.size());
            for (size_t i = 0; i < before.size(); ++i) {
                const float expected = before[i] + product[i];
                REQUIRE(std::abs(added[i] - expected) <=
                        1e-6F * (std::abs(product[i]) + std::abs(before[i])));
            }
        }
    }
}

TEST_CASE("gpu: experts with inputs of up to a million are finite and near the exact ones") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    for (const Format format : formats_on(*f.device)) {
        Random random(25);
        const LargeExperts experts(format, traits(format).block_elems == 256 ? 256 : 128, random);
        const auto stack = [&](const std::vector<LargeMatrix>& matrices) {
            ExpertStack s;
            for (const LargeMatrix& each : matrices) add_expert(s, f.put_packed(each.matrix), 1.0F);
            return s;
        };
        const ExpertWeights weights =
            f.with_table({stack(experts.gate), stack(experts.up), stack(experts.down)});
        const auto check = [&](int64_t n, int64_t first_kind) {
            const std::vector<float> x = large_rows(n, experts.size, first_kind, random);
            float* y = f.put(std::vector<float>(x.size()));
            f.device->experts(*f.stream, f.put(x), n, f.put(LargeExperts::ids(n)),
                              f.put(LargeExperts::gates(n)), LargeExperts::k_n_used, weights, y, true);
            INFO(traits(format).name << ", " << n << " rows of kinds from " << first_kind);
            CHECK(experts.sums(x, tolerance(format)).worst(f.get(y, x.size())) < tolerance(format));
        };
        for (int64_t kind = 0; kind < k_kinds_of_rows; ++kind) check(1, kind);
        check(3, 0);
        check(33, 0);
    }
}

}  // namespace minim::test
