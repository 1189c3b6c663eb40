// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank_space.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "runtime/host_group.h"

namespace minim::runtime {
namespace {

// Returns the floats for each row that a layer with block-sparse attention, and one with a dense feed-forward, need.
int64_t index_row_floats(const backend::StepLimits& limits) {
    return (limits.index.n_head > 0 ? limits.index.n_head + 1 : 0) * limits.index.dim;
}
int64_t dense_row_floats(const backend::StepLimits& limits) {
    return limits.dense_ff > 0 ? 2 : 0;
}

uint64_t stage_bytes(const backend::StepLimits& limits) {
    const int64_t heads = limits.n_head + limits.n_head_kv;
    return float_bytes(limits.n_rows, 2 * limits.hidden + 2 * heads * limits.head_dim +
                                          2 * limits.n_expert_used + index_row_floats(limits) +
                                          dense_row_floats(limits));
}

// Writes the choice of expert 0 with the gate 1 for n_rows rows: the gates, then the ids.
void write_dense_choice(const backend::Backend& device, float* to, int64_t n_rows) {
    const std::vector<float> gates(n_rows, 1.0F);
    const std::vector<int32_t> ids(n_rows, 0);
    const auto write = [&](float* at, const auto& values) {
        const auto bytes = std::as_bytes(std::span(values));
        device.write(reinterpret_cast<std::byte*>(at), bytes.data(), bytes.size());
    };
    write(to, gates);
    write(to + n_rows, ids);
}

// Returns the floats for each row that a rank of a group needs beside its activations.
int64_t group_row_floats(const RankLinks& links, const backend::StepLimits& limits) {
    const int64_t n_pairs = (links.shares_heads() ? 1 : 0) + (links.compares_choices ? 1 : 0);
    return (links.shares_slots() ? limits.n_expert_used * limits.hidden : 0) + 2 * n_pairs;
}

uint64_t offloaded_bytes(const backend::StepLimits& limits) {
    return float_bytes(limits.n_rows, 2 * limits.hidden + 2 * limits.n_expert_used);
}

// Returns the devices of a stage's offloaded experts, each once. Of the devices that share experts with the stage's
// device, only the first is listed.
std::vector<Offloaded> offloaded_of(const Stage& stage) {
    std::vector<Offloaded> all;
    for (int64_t i = 0; i < stage.n_layer; ++i) {
        const backend::Backend* device = stage.experts_of(i).get();
        const bool shares = stage.shares_experts_of(i);
        const bool is_known = std::ranges::any_of(all, [&](const Offloaded& known) {
            return known.shares == shares && (shares || known.device == device);
        });
        if (!is_known && !stage.has_experts_of(i))
            all.push_back({device, stage.host_of_experts(i) != nullptr, shares});
    }
    return all;
}

}  // namespace

RankSpace::ExpertSpace& RankSpace::StageSpace::experts_on(const backend::Backend& device) {
    return *std::ranges::find(experts, &device, &ExpertSpace::backend);
}

Activations RankSpace::StageSpace::activations(int64_t n, int64_t n_expert_used) const noexcept {
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
            std::span(rows).first(n),
            group.get(),
            squares,
            index_q,
            index_k,
            dense_gates == nullptr ? nullptr : reinterpret_cast<const int32_t*>(dense_gates + rows.size()),
            dense_gates};
}

RankSpace::StageSpace RankSpace::make_stage(const Stage& stage, const backend::StepLimits& limits,
                                            const RankLinks& links) const {
    const int64_t q_width = limits.n_head * limits.head_dim;
    const int64_t kv_width = limits.n_head_kv * limits.head_dim;

    StageSpace space = {};
    space.backend = stage.backend.get();
    space.scratch = space.backend->reserve(limits);
    const uint64_t bytes = stage_bytes(limits) + float_bytes(n_rows_, group_row_floats(links, limits));
    space.memory = space.backend->allocate(bytes, "activations");
    auto* next = reinterpret_cast<float*>(space.memory->data());
    const auto take = [&](int64_t row_width) { return std::exchange(next, next + n_rows_ * row_width); };
    // The buffers whose heads devices read 16 bytes at a time come first: they stay aligned with any number of rows.
    space.q = take(q_width);
    space.o = take(q_width);
    space.k = take(kv_width);
    space.v = take(kv_width);
    if (index_row_floats(limits) > 0) {
        space.index_q = take(limits.index.n_head * limits.index.dim);
        space.index_k = take(limits.index.dim);
    }
    space.x = take(limits.hidden);
    space.h = take(limits.hidden);
    space.routing.gates = take(2 * limits.n_expert_used);
    space.rows.resize(n_rows_);
    if (dense_row_floats(limits) > 0) {
        space.dense_gates = take(dense_row_floats(limits));
        write_dense_choice(*space.backend, space.dense_gates, n_rows_);
    }
    if (links.shares_slots()) space.slots = take(limits.n_expert_used * limits.hidden);
    if (links.shares_heads()) space.squares = take(2);
    if (links.compares_choices) space.choices = take(2);
    if (links.group != nullptr)
        space.group =
            make_group(*space.backend, *links.group, links.direct, group_limits(links, limits, n_rows_));
    return space;
}

// Returns the stream of the stage that the device has, or else a stream for experts alone.
backend::Scratch& RankSpace::stream_on(const backend::Backend& device, const backend::StepLimits& limits) {
    const auto of_stage = std::ranges::find(stages_, &device, &StageSpace::backend);
    if (of_stage != stages_.end()) return *of_stage->scratch;
    auto of_experts = std::ranges::find(streams_, &device, &Stream::backend);
    if (of_experts == streams_.end())
        of_experts = streams_.insert(of_experts, {&device, device.reserve(limits)});
    return *of_experts->scratch;
}

RankSpace::ExpertSpace RankSpace::make_experts(const StageSpace& stage, const Offloaded& offloaded,
                                               const backend::StepLimits& limits) {
    const backend::Backend& device = *offloaded.device;
    ExpertSpace space = {};
    space.backend = &device;
    space.scratch = &stream_on(device, limits);
    constexpr const char* k_what = "activations for experts";
    space.memory = offloaded.is_on_host ? stage.backend->allocate_staging(offloaded_bytes(limits), k_what)
                                        : device.allocate(offloaded_bytes(limits), k_what);
    space.x = reinterpret_cast<float*>(space.memory->data());
    space.h = space.x + n_rows_ * limits.hidden;
    space.routing.gates = space.h + n_rows_ * limits.hidden;
    return space;
}

void RankSpace::add_expert_spaces(std::span<const Stage> stages, const backend::StepLimits& limits) {
    for (size_t s = 0; s < stages.size(); ++s) {
        StageSpace& stage = stages_[s];
        for (const Offloaded& offloaded : offloaded_of(stages[s])) {
            if (offloaded.shares) {
                stage.shared = std::make_unique<SharedExperts>(stages[s], *offloaded.device,
                                                               stream_on(*offloaded.device, limits), limits);
            } else {
                stage.experts.push_back(make_experts(stage, offloaded, limits));
            }
        }
    }
}

std::map<const backend::Backend*, uint64_t> step_bytes(std::span<const Stage> stages,
                                                       const backend::StepLimits& shape, int64_t n_rows,
                                                       int64_t n_context, const RankLinks& links) {
    std::map<const backend::Backend*, uint64_t> all;
    const auto add = [&](const backend::Backend* device, uint64_t bytes) {
        if (!checked_add(all[device], bytes, all[device])) fail_out_of_memory("a step", UINT64_MAX, 0);
    };
    backend::StepLimits limits = shape;
    limits.n_rows = n_rows;
    limits.n_context = n_context;
    std::set<const backend::Backend*> with_stream;
    for (const Stage& stage : stages) {
        with_stream.insert(stage.backend.get());
        add(stage.backend.get(), stage.backend->step_bytes(limits));
        add(stage.backend.get(), stage_bytes(limits));
        add(stage.backend.get(), float_bytes(n_rows, group_row_floats(links, limits)));
        if (links.direct != nullptr)
            add(stage.backend.get(), links.direct->group_bytes(group_limits(links, limits, n_rows)));
    }
    limits.n_context = 1;
    for (const Stage& stage : stages) {
        for (const Offloaded& offloaded : offloaded_of(stage)) {
            if (with_stream.insert(offloaded.device).second)
                add(offloaded.device, offloaded.device->step_bytes(limits));
            if (offloaded.shares) {
                add(stage.backend.get(), SharedExperts::device_bytes(stage, limits));
            } else if (!offloaded.is_on_host || stage.is_on_host()) {
                add(offloaded.is_on_host ? stage.backend.get() : offloaded.device, offloaded_bytes(limits));
            }
        }
    }
    add(stages.back().backend.get(), Logits::device_bytes(stages.back(), shape.n_vocab, n_rows, links));
    return all;
}

RankSpace::RankSpace(std::span<const Stage> stages, const backend::StepLimits& shape, int64_t n_rows,
                     int64_t n_context, const RankLinks& links)
    : n_rows_(n_rows), tokens_(n_rows) {
    backend::StepLimits limits = shape;
    limits.n_rows = n_rows;
    limits.n_context = n_context;
    for (const Stage& stage : stages) stages_.push_back(make_stage(stage, limits, links));
    limits.n_context = 1;  // experts look at a row alone
    add_expert_spaces(stages, limits);
    const bool changes_device = stages.size() > 1 || !stages_.front().experts.empty();
    if (changes_device || links.pipeline != nullptr)
        passing_ = Buffer(float_bytes(n_rows, shape.hidden + 2 * shape.n_expert_used), "activations");
    logits_ = std::make_unique<Logits>(stages.back(), shape.n_vocab, n_rows, links);
}

}  // namespace minim::runtime
