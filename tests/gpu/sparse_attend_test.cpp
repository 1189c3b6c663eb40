// SPDX-License-Identifier: Apache-2.0
// Block-sparse attention of a GPU in exact arithmetic, beside the formulas.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "cuda/cuda_backend.h"
#include "gpu/support.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/sparse_attention.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

SparseModel sparse_model(int64_t block, Format format) {
    return {.n_head = 6,
            .head_dim = 32,
            .rotary = 16,
            .sparse = {.n_head = 3, .dim = 32, .block = block, .top = 3},
            .k_format = format,
            .v_format = format};
}

}  // namespace

TEST_CASE("gpu: sparse attention agrees with the formulas") {
    if (!has_devices(1)) return;
    const auto device = cuda::make_cuda_backend(0, backend::Arithmetic::exact);
    for (const auto& [block, format] :
         {std::pair(int64_t{16}, Format::f32), std::pair(int64_t{32}, Format::f16),
          std::pair(int64_t{64}, Format::q8_0), std::pair(int64_t{128}, Format::bf16),
          std::pair(int64_t{16}, Format::q4_0)}) {
        INFO("block " << block << " in " << traits(format).name);
        const SparseModel model = sparse_model(block, format);
        const SparseRows rows(model, model.sparse.top * block + 150, 5);
        SparseSequence sequence(*device, model, rows, rows.n);
        const std::vector<float> o = sequence.attend_all(rows.n);
        const auto pages = sequence.contents();
        int64_t n_unclear = 0;
        for (int64_t p = 5; p < rows.n; p += 23) {
            const PlainRow plain = attend_plainly(model, rows, pages, p);
            n_unclear += plain.margin < 1e-4 ? 1 : 0;
            if (plain.margin < 1e-4) continue;
            double worst = 0.0;
            for (size_t i = 0; i < plain.o.size(); ++i)
                worst = std::max(worst,
                                 std::abs(static_cast<double>(o[p * std::ssize(plain.o) + i]) - plain.o[i]));
            CHECK(worst <= 2e-5);
        }
        CHECK(n_unclear <= 1);
    }
}

TEST_CASE("gpu: sparse attention has the same bits whatever the chunks") {
    if (!has_devices(1)) return;
    const auto device = cuda::make_cuda_backend(0, backend::Arithmetic::exact);
    const SparseModel model = sparse_model(16, Format::f16);
    const SparseRows rows(model, 150, 6);
    SparseSequence whole(*device, model, rows, rows.n);
    const std::vector<float> expected = whole.attend_all(rows.n);
    for (const int64_t chunk : {1, 7, 70}) {
        SparseSequence sequence(*device, model, rows, chunk);
        CHECK(same_bits(sequence.attend_all(chunk), expected));
        CHECK(sequence.contents() == whole.contents());
    }
    SparseSequence dense(*device, model, rows, rows.n);
    const std::vector<float> all = dense.attend_all(rows.n, true);
    const int64_t n_dense = 3 * 16 * model.n_head * model.head_dim;
    CHECK(same_bits(std::span(all).first(n_dense), std::span(expected).first(n_dense)));
    CHECK_FALSE(same_bits(all, expected));
}

TEST_CASE("gpu: fast arithmetic refuses block-sparse attention") {
    if (!has_devices(1)) return;
    const auto limits = sparse_model(16, Format::f16).limits(1, 100);
    for (const auto arithmetic : {backend::Arithmetic::fast, backend::Arithmetic::deterministic}) {
        const auto device = cuda::make_cuda_backend(0, arithmetic);
        expect_error(Status::unsupported, "block-sparse attention", [&] { device->step_bytes(limits); });
        expect_error(Status::unsupported, "block-sparse attention", [&] { device->reserve(limits); });
    }
}

}  // namespace minim::test
