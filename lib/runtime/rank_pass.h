// SPDX-License-Identifier: Apache-2.0
// Drives a model's architecture over the stages of one rank: one loop over layers, for steps that are computed, recorded
// and repeated, with the transfers between devices, the offloaded experts, and the exchange with other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/host_device.h"
#include "base/cancel.h"
#include "base/top_k.h"
#include "runtime/architecture.h"
#include "runtime/expert_pool.h"
#include "runtime/logits.h"
#include "runtime/observe.h"
#include "runtime/placement.h"
#include "runtime/rank_links.h"
#include "runtime/rank_space.h"
#include "runtime/step_row.h"

namespace minim::runtime {

class RankPass {
  public:
    // `pools` must outlive it: one for each stage, null if the stage shares no experts; empty: no stage does.
    RankPass(std::span<const Stage> stages, Architecture architecture,
             std::span<const std::unique_ptr<ExpertPool>> pools = {});
    // Computes a rank's share of the layers of a shard. The transports of `links` must outlive it.
    RankPass(const Shard& shard, Architecture architecture, RankLinks links);

    std::span<const Stage> stages() const noexcept { return stages_; }
    // Returns the sizes of a step of this rank, without its rows and context.
    const backend::StepLimits& shape() const noexcept { return architecture_.shape; }
    const RankLinks& links() const noexcept { return links_; }

    // Stores the rows' K and V, and writes the logits of the rows that request them, in row order:
    // [number of such rows, n_vocab]. Rows of one sequence come in position order. Throws cancelled between
    // layers, and device_lost; the KV entries written until then are garbage beyond the caller's count of kept
    // tokens. `first_view`: of each row, the rank's first view among those of its sequence. Ranks other than rank 0 have no
    // output. `inputs` sees the inputs of all matrices, of every row, and may be null. It needs a rank that is alone, without pools
    // of experts, whose devices observe slots.
    void step(std::span<const StepRow> rows, size_t first_view, RankSpace& space, const StepOutput& output,
              const CancelToken* cancel, const LayerObserver& observer = {},
              InputObserver* inputs = nullptr) const;

    // Return the top-k of one row, and all logits of one row, of the last step in a space that keeps its logits. Rows
    // are counted among those that requested logits. Both throw device_lost.
    TopK top_k(RankSpace& space, int64_t wanted_row, const TopKQuery& query) const;
    void fetch_logits(RankSpace& space, int64_t wanted_row, float* logits) const;

  private:
    using StageSpace = RankSpace::StageSpace;
    using ExpertSpace = RankSpace::ExpertSpace;
    struct Step {
        std::span<const StepRow> rows;
        size_t first_view;
        RankSpace& space;
        const CancelToken* cancel;
        const LayerObserver& observer;
        InputObserver* inputs;  // null: nobody observes them
        int64_t n_wanted;       // rows whose logits are requested
        // True if devices may record the step: all rows want logits, which are computed at once.
        bool is_repeatable;
        int64_t n;  // rows by now: fewer after the last attention if not all logits are wanted
    };
    // Layers of a stage that its device computes without another one: begin .. end - 1, and the layer `end` up to the
    // choice of its experts, which are offloaded. The last part of a stage has no such layer: `end` is the number of
    // the stage's layers.
    struct Part {
        size_t stage;
        int64_t begin, end;
        bool embeds;
        bool projects;
        bool is_empty;
    };
    Part part_from(size_t stage_index, int64_t begin) const;
    ExpertPool* pool_of(size_t stage_index) const noexcept {
        return pools_.empty() ? nullptr : pools_[stage_index].get();
    }
    bool is_shared(size_t stage_index, int64_t layer_of_stage) const noexcept {
        const ExpertPool* pool = pool_of(stage_index);
        return pool != nullptr && pool->has(layer_of_stage);
    }
    bool has_experts(int64_t layer) const {
        return !architecture_.has_experts || architecture_.has_experts(layer);
    }
    bool leaves_rows_out(int64_t layer, const Step& step) const;
    void go_on(const Step& step) const;
    void add_experts(StageSpace& stage, const Activations& a, int64_t layer, InputObserver* inputs) const;
    void add_dense(const Activations& a, int64_t layer, bool adds, InputObserver* inputs) const;
    void add_dense_layer(StageSpace& stage, const Activations& a, int64_t layer, InputObserver* inputs) const;
    void compare_choices(StageSpace& stage, const Activations& a, int64_t layer) const;
    void receive_rows(Step& step) const;
    void send_rows(Step& step) const;
    Activations activations(const StageSpace& stage, const Step& step) const {
        return stage.activations(step.n, architecture_.shape.n_expert_used);
    }
    std::function<void()> answers_of(const Part& part, Step& step) const;
    void compute(Step& step) const;
    void compute_stage(size_t stage_index, Step& step) const;
    void run(const Part& part, Step& step) const;
    bool begin_recorded(const Part& part, Step& step) const;
    void operations(const Part& part, Step& step) const;
    void layers(const Part& part, Step& step) const;
    void experts_offloaded(const Part& part, Step& step) const;
    void leave_rows_out(Step& step, StageSpace& space) const;
    void fetch_logits_of_groups(Step& step) const;
    void observe(int64_t layer, const Activations& a, const Step& step) const;

    const RankLinks links_;
    const bool has_embedding_ = true;
    const bool has_output_ = true;
    const std::vector<Stage> stages_;
    std::vector<int64_t> first_layer_;  // of each stage
    const Architecture architecture_;
    const std::span<const std::unique_ptr<ExpertPool>> pools_;
    const backend::HostDevice* host_beside_devices_;  // null: the host's threads do not wait for a device
    // Their addresses identify recorded steps: [first layer of a part][whether it has queries].
    std::vector<std::byte> part_keys_;
};

}  // namespace minim::runtime
