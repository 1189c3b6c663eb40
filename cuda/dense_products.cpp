// SPDX-License-Identifier: Apache-2.0
#include "cuda/dense_products.h"

#include <algorithm>

namespace minim::cuda {
namespace {

bool is_aligned(const void* place) {
    return reinterpret_cast<uintptr_t>(place) % 16 == 0;
}

}  // namespace

bool DenseProducts::takes(const backend::LinearTask& task, int64_t n) const noexcept {
    const backend::Matrix& weight = *task.weight;
    return library_ != nullptr && n >= k_min_rows && !weight.packed &&
           (weight.format == Format::f16 || weight.format == Format::bf16) && weight.cols % 8 == 0 &&
           weight.rows % 8 == 0 && weight.row_bytes == 2 * weight.cols && is_aligned(weight.data) &&
           is_aligned(task.y);
}

bool DenseProducts::multiply(const backend::LinearTask& task, const uint16_t* x, int64_t n, void* workspace,
                             void* stream, const char*& error) {
    const backend::Matrix& weight = *task.weight;
    const auto plan = plan_for(task, n);
    if (plan == nullptr) return false;
    error = plan->multiply({weight.data, x, task.y, weight.scale, task.add}, workspace, stream);
    return true;
}

std::shared_ptr<const blas::Plan> DenseProducts::plan_for(const backend::LinearTask& task, int64_t n) {
    const blas::Problem problem = {task.weight->format, task.weight->rows, task.weight->cols, n};
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(plans_, problem, &Entry::problem);
    if (known != plans_.end()) {
        plans_.splice(plans_.begin(), plans_, known);
    } else {
        plans_.push_front({problem, library_->plan(problem, k_workspace_bytes)});
        if (plans_.size() > k_max_plans) plans_.pop_back();
    }
    return plans_.front().plan;
}

size_t DenseProducts::n_plans() const {
    const std::lock_guard lock(mutex_);
    return plans_.size();
}

}  // namespace minim::cuda
