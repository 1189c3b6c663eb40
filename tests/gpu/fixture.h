// SPDX-License-Identifier: Apache-2.0
// A device and the reference beside it, with host data put into the device's memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "cuda/cuda_backend.h"
#include "reference/reference_backend.h"
#include "support/catch.h"
#include "support/upload_places.h"
#include "unit/cpu/support.h"

namespace minim::test {

inline constexpr backend::StepLimits k_limits = {.n_rows = 40,
                                                 .n_context = 200,
                                                 .hidden = 1024,
                                                 .n_head = 12,
                                                 .n_head_kv = 4,
                                                 .head_dim = 128,
                                                 .n_expert = 9,
                                                 .n_expert_used = 3,
                                                 .expert_ff = 512,
                                                 .n_vocab = 1000};

// Adds an expert of the shape of the others.
inline void add_expert(backend::ExpertStack& stack, const backend::Matrix& matrix, float scale) {
    stack.expert.push_back(matrix.data);
    stack.scale.push_back(scale);
    stack.row_bytes = matrix.row_bytes;
    stack.packed = matrix.packed;
    stack.format = matrix.format;
    stack.rows = matrix.rows;
    stack.cols = matrix.cols;
}

// Both backends, and copies of host data in the device's memory.
struct Fixture {
    explicit Fixture(backend::Arithmetic arithmetic) : device(cuda::make_cuda_backend(0, arithmetic)) {}

    std::unique_ptr<backend::Backend> device;
    std::unique_ptr<backend::Backend> reference = reference::make_reference_backend();
    std::unique_ptr<backend::Scratch> stream = device->reserve(k_limits);
    std::unique_ptr<backend::Scratch> none = reference->reserve(k_limits);
    std::vector<std::unique_ptr<backend::Memory>> blocks;

    template <typename T>
    T* put(const std::vector<T>& data) {
        blocks.push_back(device->allocate(data.size() * sizeof(T), "a test"));
        device->upload(*stream, blocks.back()->data(), reinterpret_cast<const std::byte*>(data.data()),
                       data.size() * sizeof(T));
        device->synchronize(*stream);  // `data` may be gone soon
        return reinterpret_cast<T*>(blocks.back()->data());
    }
    backend::Matrix put(const TestMatrix& matrix) {
        backend::Matrix view = matrix.view;
        view.data = put(matrix.bytes);
        return view;
    }
    // Copies the matrix in the order that the device's kernels need.
    backend::Matrix put_packed(const TestMatrix& matrix) {
        backend::Matrix view = put(matrix);
        if (!device->packs(view.format)) return view;
        auto* data = const_cast<std::byte*>(view.data);
        device->pack({&data, 1}, view);
        view.packed = true;
        return view;
    }
    // Returns the weights with the table of their experts in the device's memory.
    backend::ExpertWeights with_table(backend::ExpertWeights weights) {
        blocks.push_back(upload_places(*device, weights));
        weights.places = reinterpret_cast<const backend::ExpertPlace*>(blocks.back()->data());
        return weights;
    }
    template <typename T>
    std::vector<T> get(const T* data, size_t count) {
        std::vector<T> out(count);
        device->download(*stream, reinterpret_cast<std::byte*>(out.data()),
                         reinterpret_cast<const std::byte*>(data), count * sizeof(T));
        device->synchronize(*stream);
        return out;
    }
};

// Returns the largest difference in proportion to the largest value.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 1e-30;
    double difference = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(a[i])));
        difference = std::max(difference, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
    return a.size() == b.size() && !(difference != difference) ? difference / largest : 1.0;
}

// Checks route() of n rows to n_used experts, with and without a bias.
inline void check_route(Fixture& f, backend::Scratch& stream, const TestMatrix& router,
                        const std::vector<float>& x, int64_t n, int64_t n_used, Random& random) {
    const int64_t n_expert = router.view.rows;
    const std::vector<float> bias = random.normal(n_expert, 0.5F);
    for (const bool has_bias : {false, true}) {
        std::vector<int32_t> ids(static_cast<size_t>(n * n_used));
        std::vector<float> gates(ids.size());
        int32_t* device_ids = f.put(ids);
        float* device_gates = f.put(gates);
        const auto bias_of = [&](const float* data) {
            return has_bias ? backend::Vector{data, n_expert} : backend::Vector{};
        };
        f.reference->route(*f.none, x.data(), n, router.view, bias_of(bias.data()), n_used, ids.data(),
                           gates.data());
        const float* device_x = f.put(x);
        const backend::Matrix device_router = f.put(router);
        const backend::Vector device_bias = bias_of(f.put(bias));
        f.device->synchronize(*f.stream);
        f.device->route(stream, device_x, n, device_router, device_bias, n_used, device_ids, device_gates);
        f.device->synchronize(stream);
        CHECK(ids == f.get(device_ids, ids.size()));
        // A score is a sum of as many products as there are columns, in another order.
        const double rounding = 2e-8 * static_cast<double>(router.view.cols);
        CHECK(distance(gates, f.get(device_gates, gates.size())) < rounding);
    }
}

// Checks route() of rows of 96 over nine experts, of which three are chosen.
inline void check_route(Fixture& f, const std::vector<float>& x, int64_t n, Random& random) {
    const TestMatrix router(Format::f32, 9, 96, random);
    check_route(f, *f.stream, router, x, n, 3, random);
}

}  // namespace minim::test
