// SPDX-License-Identifier: Apache-2.0
// Products of F16 and BF16 matrices with many rows, which the vendor's library computes on tensor cores: which
// products these are, and the library's plan for each shape.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "cuda/blas.h"

namespace minim::cuda {

// Any thread.
class DenseProducts {
  public:
    // The least rows of a batch for the library: with fewer, reading the weights takes all the time. No recorded step
    // has as many.
    static constexpr int64_t k_min_rows = 48;
    // Work space for a product. NVIDIA advises 32 MiB for sm_90 and later; on an H200 prompts are as fast with 8.
    static constexpr uint64_t k_workspace_bytes = uint64_t{8} << 20;
    static constexpr size_t k_max_plans = 256;

    // `library` may be null.
    explicit DenseProducts(std::unique_ptr<blas::Library> library) : library_(std::move(library)) {}

    bool has_library() const noexcept { return library_ != nullptr; }

    // Returns whether the library should compute the product.
    bool takes(const backend::LinearTask& task, int64_t n) const noexcept;

    // Returns whether the library can compute a product of this shape.
    bool has_way(const backend::LinearTask& task, int64_t n) { return plan_for(task, n) != nullptr; }

    // Starts the product of `x`, which has the weight's format. Returns false, and starts nothing, if the library
    // cannot compute it. `workspace`: k_workspace_bytes. `error`: the error text, or null.
    bool multiply(const backend::LinearTask& task, const uint16_t* x, int64_t n, void* workspace,
                  void* stream, const char*& error);

    size_t n_plans() const;

  private:
    struct Entry {
        blas::Problem problem;
        std::shared_ptr<const blas::Plan> plan;  // null: the library cannot compute it
    };
    std::shared_ptr<const blas::Plan> plan_for(const backend::LinearTask& task, int64_t n);

    const std::unique_ptr<blas::Library> library_;  // ends after its plans
    mutable std::mutex mutex_;
    std::list<Entry> plans_;  // the most recently used first
};

}  // namespace minim::cuda
