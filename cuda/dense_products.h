// Products of F16 and BF16 matrices with many rows, which the vendor's library computes on tensor cores: which they are, and
// how the library has decided to compute each shape.
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
    // Rows of a batch from which on the library is asked: below, reading the weights is all there is to do. More than a
    // step that is recorded has.
    static constexpr int64_t k_least_rows = 48;
    static constexpr uint64_t k_workspace_bytes = uint64_t{8} << 20;
    static constexpr size_t k_most_plans = 256;

    // `library`: null where there is none.
    explicit DenseProducts(std::unique_ptr<blas::Library> library) : library_(std::move(library)) {}

    bool has_library() const noexcept { return library_ != nullptr; }

    // Whether the product is one for the library.
    bool takes(const backend::LinearTask& task, int64_t n) const noexcept;

    // Whether the library computes a product of this shape.
    bool has_way(const backend::LinearTask& task, int64_t n) { return plan_for(task, n) != nullptr; }

    // Starts the product of `x`, which has the weight's format. False where the library does not compute it: nothing has
    // been started then. `error`: what went wrong.
    bool multiply(const backend::LinearTask& task, const uint16_t* x, int64_t n, void* workspace,
                  void* stream, const char*& error);

    size_t n_plans() const;

  private:
    struct Entry {
        blas::Problem problem;
        std::shared_ptr<const blas::Plan> plan;  // null: the library has no way
    };
    std::shared_ptr<const blas::Plan> plan_for(const backend::LinearTask& task, int64_t n);

    const std::unique_ptr<blas::Library> library_;  // ends after its plans
    mutable std::mutex mutex_;
    std::list<Entry> plans_;  // the last used first
};

}  // namespace minim::cuda
