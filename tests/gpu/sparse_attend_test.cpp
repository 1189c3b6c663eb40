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

// Returns how far the attention of some rows is from the formulas on the keys that the device has stored. Rows whose last chosen block
// and the first one that is not have nearly the same score are left out: at most one.
double worst_error(const backend::Backend& device, const SparseModel& model, int64_t chunk) {
    const SparseRows rows(model, model.sparse.top * model.sparse.block + 150, 5);
    SparseSequence sequence(device, model, rows, chunk);
    const std::vector<float> o = sequence.attend_all(chunk);
    const auto pages = sequence.contents();
    int64_t n_unclear = 0;
    double worst = 0.0;
    for (int64_t p = 5; p < rows.n; p += 23) {
        const PlainRow plain = attend_plainly(model, rows, pages, p);
        n_unclear += plain.margin < 1e-4 ? 1 : 0;
        if (plain.margin < 1e-4) continue;
        for (size_t i = 0; i < plain.o.size(); ++i)
            worst =
                std::max(worst, std::abs(static_cast<double>(o[p * std::ssize(plain.o) + i]) - plain.o[i]));
    }
    CHECK(n_unclear <= 1);
    return worst;
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
        CHECK(worst_error(*device, model, model.sparse.top * block + 150) <= 2e-5);
    }
}

// Blocks of whole pages take the kernels of F16, others those of exact arithmetic.
TEST_CASE("gpu: sparse attention in fast arithmetic is near the formulas") {
    if (!has_devices(1)) return;
    for (const auto arithmetic : {backend::Arithmetic::fast, backend::Arithmetic::deterministic}) {
        const auto device = cuda::make_cuda_backend(0, arithmetic);
        for (const auto& [block, format] :
             {std::pair(int64_t{32}, Format::f32), std::pair(int64_t{64}, Format::f16),
              std::pair(int64_t{64}, Format::q8_0), std::pair(int64_t{128}, Format::bf16)}) {
            const SparseModel model = sparse_model(block, format);
            const int64_t n = model.sparse.top * block + 150;
            for (const int64_t chunk : {n, int64_t{97}}) {
                INFO("block " << block << " in " << traits(format).name << ", " << chunk << " rows at once");
                CHECK(worst_error(*device, model, chunk) <= 4e-3);
            }
        }
    }
}

TEST_CASE("gpu: sparse attention has the same bits whatever the chunks") {
    if (!has_devices(1)) return;
    for (const auto& [arithmetic, block] : {std::pair(backend::Arithmetic::exact, int64_t{16}),
                                            std::pair(backend::Arithmetic::deterministic, int64_t{64})}) {
        const auto device = cuda::make_cuda_backend(0, arithmetic);
        const SparseModel model = sparse_model(block, Format::f16);
        const int64_t n_all = model.sparse.top * block;  // rows that see no more blocks than they choose
        const SparseRows rows(model, n_all + 102, 6);
        SparseSequence whole(*device, model, rows, rows.n);
        const std::vector<float> expected = whole.attend_all(rows.n);
        for (const int64_t chunk : {1, 7, 70}) {
            INFO("blocks of " << block << ", " << chunk << " rows at once");
            SparseSequence sequence(*device, model, rows, chunk);
            CHECK(same_bits(sequence.attend_all(chunk), expected));
            CHECK(sequence.contents() == whole.contents());
        }
        if (arithmetic != backend::Arithmetic::exact)
            continue;  // parts of a context depend on its tiles there
        SparseSequence dense(*device, model, rows, rows.n);
        const std::vector<float> all = dense.attend_all(rows.n, true);
        const int64_t n_same = n_all * model.n_head * model.head_dim;
        CHECK(same_bits(std::span(all).first(n_same), std::span(expected).first(n_same)));
        CHECK_FALSE(same_bits(all, expected));
    }
}

}  // namespace minim::test
