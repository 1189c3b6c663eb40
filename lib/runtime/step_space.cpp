// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_space.h"

#include <array>

#include "base/checked.h"
#include "base/error.h"

namespace minim::runtime {

std::map<const backend::Backend*, uint64_t> step_bytes(const ForwardPass& forward, int64_t n_rows,
                                                       int64_t n_context) {
    std::map<const backend::Backend*, uint64_t> all;
    for (const std::unique_ptr<RankPass>& rank : forward.ranks())
        for (const auto& [device, bytes] :
             step_bytes(rank->stages(), rank->shape(), n_rows, n_context, rank->links()))
            if (!checked_add(all[device], bytes, all[device])) fail_out_of_memory("a step", UINT64_MAX, 0);
    return all;
}

StepSpace::StepSpace(const ForwardPass& forward, int64_t n_rows, int64_t n_context)
    : remote_(forward.remote()) {
    for (const std::unique_ptr<RankPass>& rank : forward.ranks())
        ranks_.push_back(
            std::make_unique<RankSpace>(rank->stages(), rank->shape(), n_rows, n_context, rank->links()));
    if (remote_ != nullptr) number_ = remote_->make_space(n_rows, n_context);
}

StepSpace::StepSpace(std::span<const Stage> stages, const backend::StepLimits& shape, int64_t n_rows,
                     int64_t n_context) {
    ranks_.push_back(std::make_unique<RankSpace>(stages, shape, n_rows, n_context));
}

StepSpace::StepSpace(const backend::Backend& backend, const backend::StepLimits& shape, int64_t n_rows,
                     int64_t n_context)
    : StepSpace(std::array{alone_on(backend, 0)}, shape, n_rows, n_context) {}

StepSpace::~StepSpace() {
    if (remote_ != nullptr) remote_->end_space(number_);
}

}  // namespace minim::runtime
