// SPDX-License-Identifier: Apache-2.0
#include "unit/cpu/large_inputs.h"

#include <memory>

#include "cpu/cpu_backend.h"
#include "format/expand.h"
#include "reference/reference_backend.h"
#include "support/catch.h"

namespace minim::test {
namespace {

// Returns every format that holds weights.
std::vector<Format> formats() {
    std::vector<Format> all;
    for (const FormatTraits& format : all_formats()) {
        if (format.decode_row != nullptr) all.push_back(format.format);
        if (const auto unpacked = unpacked_format(format.format)) all.push_back(*unpacked);
    }
    return all;
}

struct Computer {
    std::string name;
    bool quantises;  // whether inputs of packed weights are quantised
    std::unique_ptr<backend::Backend> backend;
};

std::vector<Computer> computers(const ThreadPool& pool) {
    std::vector<Computer> all;
    all.push_back({"reference", false, reference::make_reference_backend()});
    for (const CpuLevel level : cpu_levels())
        all.push_back({std::string(to_string(level)), true, cpu::make_cpu_backend(pool, level)});
    return all;
}

// Returns the matrix as the backend wants it; a packed copy is stored in `bytes`.
backend::Matrix stored_by(const backend::Backend& backend, const TestMatrix& matrix,
                          std::vector<std::byte>& bytes) {
    backend::Matrix view = matrix.view;
    if (!backend.packs(view.format)) return view;
    bytes = matrix.bytes;
    std::byte* data = bytes.data();
    view.data = data;
    const_cast<backend::Backend&>(backend).pack({&data, 1}, view);
    view.packed = true;
    return view;
}

// The allowed error of products in proportion to |w| |x|. The largest error measured with quantised inputs is 3.2e-3.
constexpr double k_quantised = 5e-3;
double tolerance(const Computer& computer, Format format) {
    return computer.quantises && !takes_floats(format) ? k_quantised : 1e-5;
}

// The number of rows, and the kind of the first one.
struct Batch {
    int64_t n;
    int64_t first_kind;
};

std::vector<Batch> batches() {
    std::vector<Batch> all = {{3, 0}, {3, 3}, {40, 0}};
    for (int64_t kind = 0; kind < k_kinds_of_rows; ++kind) all.push_back({1, kind});
    return all;
}

std::string text_of(const Computer& computer, Format format, const Batch& batch) {
    return computer.name + " " + std::string(traits(format).name) + ", " + std::to_string(batch.n) +
           " rows, the first of kind " + std::to_string(batch.first_kind);
}

}  // namespace

TEST_CASE("products with inputs of up to a million are finite and near the exact ones") {
    constexpr int64_t k_rows = 37;
    constexpr int64_t k_cols = 512;
    const ThreadPool pool(2);
    const auto all = computers(pool);
    for (const Format format : formats()) {
        Random random(21);
        const LargeMatrix weight(format, k_rows, k_cols, random);
        std::vector<std::vector<std::byte>> bytes(all.size());
        std::vector<backend::Matrix> stored;
        for (size_t c = 0; c < all.size(); ++c)
            stored.push_back(stored_by(*all[c].backend, weight.matrix, bytes[c]));
        for (const Batch& batch : batches()) {
            const std::vector<float> x = large_rows(batch.n, k_cols, batch.first_kind, random);
            const Expected expected = weight.products(x);
            for (size_t c = 0; c < all.size(); ++c) {
                const auto scratch = all[c].backend->reserve({.n_rows = batch.n, .hidden = k_cols});
                std::vector<float> y(expected.exact.size());
                const backend::LinearTask task = {&stored[c], y.data(), false};
                all[c].backend->linear(*scratch, x.data(), batch.n, {&task, 1});
                INFO(text_of(all[c], format, batch));
                CHECK(expected.worst(y) < tolerance(all[c], format));
            }
        }
    }
}

TEST_CASE("experts with inputs of up to a million are finite and near the exact ones", "[slow-emulated]") {
    constexpr int64_t k_size = 256;
    const ThreadPool pool(2);
    const auto all = computers(pool);
    for (const Format format : formats()) {
        Random random(22);
        const LargeExperts experts(format, k_size, random);
        std::vector<std::vector<std::byte>> bytes;
        bytes.reserve(9 * all.size());
        std::vector<backend::ExpertWeights> weights;
        for (const Computer& computer : all) {
            const auto stack_of = [&](const std::vector<LargeMatrix>& matrices) {
                backend::ExpertStack stack;
                for (const LargeMatrix& each : matrices) {
                    const backend::Matrix stored =
                        stored_by(*computer.backend, each.matrix, bytes.emplace_back());
                    stack.expert.push_back(stored.data);
                    stack.format = stored.format;
                    stack.rows = stored.rows;
                    stack.cols = stored.cols;
                    stack.row_bytes = stored.row_bytes;
                    stack.packed = stored.packed;
                }
                return stack;
            };
            weights.push_back({stack_of(experts.gate), stack_of(experts.up), stack_of(experts.down)});
        }
        for (const Batch& batch : batches()) {
            const std::vector<float> x = large_rows(batch.n, k_size, batch.first_kind, random);
            const Expected expected = experts.sums(x, k_quantised);
            const std::vector<int32_t> ids = LargeExperts::ids(batch.n);
            const std::vector<float> gates = LargeExperts::gates(batch.n);
            for (size_t c = 0; c < all.size(); ++c) {
                const auto scratch = all[c].backend->reserve({.n_rows = batch.n,
                                                              .hidden = k_size,
                                                              .n_expert = LargeExperts::k_n_expert,
                                                              .n_expert_used = LargeExperts::k_n_used,
                                                              .expert_ff = k_size});
                std::vector<float> y(x.size());
                all[c].backend->experts(*scratch, x.data(), batch.n, ids.data(), gates.data(),
                                        LargeExperts::k_n_used, weights[c], y.data(), true);
                INFO(text_of(all[c], format, batch));
                CHECK(expected.worst(y) < tolerance(all[c], format));
            }
        }
    }
}

}  // namespace minim::test
