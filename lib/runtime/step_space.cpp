// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_space.h"

#include <algorithm>
#include <array>
#include <utility>

namespace minim::runtime {

StepSpace::ExpertSpace& StepSpace::StageSpace::experts_on(const backend::Backend& device) {
    return *std::ranges::find(experts, &device, &ExpertSpace::backend);
}

Activations StepSpace::StageSpace::activations(int64_t n, int64_t n_expert_used) const noexcept {
    return {*backend,
            *scratch,
            n,
            x,
            h,
            q,
            k,
            v,
            o,
            routing.ids(n, n_expert_used),
            routing.gates,
            std::span(rows).first(static_cast<size_t>(n))};
}

StepSpace::StageSpace StepSpace::make_stage(const Stage& stage, const backend::StepLimits& limits) const {
    const int64_t q_width = limits.n_head * limits.head_dim;
    const int64_t kv_width = limits.n_head_kv * limits.head_dim;
    const int64_t row_floats = 2 * limits.hidden + 2 * q_width + 2 * kv_width + 2 * limits.n_expert_used;

    StageSpace space = {};
    space.backend = stage.backend.get();
    space.scratch = space.backend->reserve(limits);
    space.memory = space.backend->allocate(float_bytes(n_rows_, row_floats), "activations");
    auto* next = reinterpret_cast<float*>(space.memory->data());
    const auto take = [&](int64_t row_width) { return std::exchange(next, next + n_rows_ * row_width); };
    // First those whose heads devices read by 16 bytes, which any number of rows leaves aligned.
    space.q = take(q_width);
    space.o = take(q_width);
    space.k = take(kv_width);
    space.v = take(kv_width);
    space.x = take(limits.hidden);
    space.h = take(limits.hidden);
    space.routing.gates = take(2 * limits.n_expert_used);
    space.rows.resize(static_cast<size_t>(n_rows_));
    return space;
}

// That of the stage which the device has, or one for experts alone.
backend::Scratch& StepSpace::stream_on(const backend::Backend& device, const backend::StepLimits& limits) {
    const auto of_stage = std::ranges::find(stages_, &device, &StageSpace::backend);
    if (of_stage != stages_.end()) return *of_stage->scratch;
    auto of_experts = std::ranges::find(streams_, &device, &Stream::backend);
    if (of_experts == streams_.end())
        of_experts = streams_.insert(of_experts, {&device, device.reserve(limits)});
    return *of_experts->scratch;
}

StepSpace::ExpertSpace StepSpace::make_experts(const StageSpace& stage, const backend::Backend& device,
                                               const backend::StepLimits& limits) {
    ExpertSpace space = {};
    space.backend = &device;
    space.scratch = &stream_on(device, limits);
    const uint64_t bytes = float_bytes(n_rows_, 2 * limits.hidden + 2 * limits.n_expert_used);
    constexpr const char* k_what = "activations for experts";
    space.memory = device.uses_host_memory() ? stage.backend->allocate_staging(bytes, k_what)
                                             : device.allocate(bytes, k_what);
    space.x = reinterpret_cast<float*>(space.memory->data());
    space.h = space.x + n_rows_ * limits.hidden;
    space.routing.gates = space.h + n_rows_ * limits.hidden;
    return space;
}

void StepSpace::add_expert_spaces(std::span<const Stage> stages, const backend::StepLimits& limits) {
    for (size_t s = 0; s < stages.size(); ++s) {
        StageSpace& stage = stages_[s];
        for (int64_t i = 0; i < stages[s].n_layer; ++i) {
            const backend::Backend* device = stages[s].experts_of(i).get();
            if (stages[s].shares_experts_of(i)) {
                if (stage.shared == nullptr)
                    stage.shared = std::make_unique<SharedExperts>(
                        *stage.backend, *device, stream_on(*device, limits), limits, stages[s].n_layer);
                continue;
            }
            if (device == stage.backend ||
                std::ranges::find(stage.experts, device, &ExpertSpace::backend) != stage.experts.end())
                continue;
            stage.experts.push_back(make_experts(stage, *device, limits));
        }
    }
}

StepSpace::StepSpace(std::span<const Stage> stages, const backend::StepLimits& shape, int64_t n_rows,
                     int64_t n_context)
    : n_rows_(n_rows), tokens_(static_cast<size_t>(n_rows)) {
    backend::StepLimits limits = shape;
    limits.n_rows = n_rows;
    limits.n_context = n_context;
    for (const Stage& stage : stages) stages_.push_back(make_stage(stage, limits));
    limits.n_context = 1;  // experts look at a row alone
    add_expert_spaces(stages, limits);
    const bool changes_device = stages.size() > 1 || !stages_.front().experts.empty();
    if (changes_device)
        passing_ = Buffer(float_bytes(n_rows, shape.hidden + 2 * shape.n_expert_used), "activations");
    logits_ = std::make_unique<Logits>(*stages.back().backend, shape.n_vocab, n_rows);
}

StepSpace::StepSpace(const backend::Backend& backend, const backend::StepLimits& shape, int64_t n_rows,
                     int64_t n_context)
    : StepSpace(std::array<Stage, 1>{alone_on(backend, 0)}, shape, n_rows, n_context) {}

}  // namespace minim::runtime
