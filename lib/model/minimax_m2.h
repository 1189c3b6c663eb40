// SPDX-License-Identifier: Apache-2.0
// The forward pass of MiniMax-M2, written once over the operations of a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/cancel.h"
#include "base/shortlist.h"
#include "model/config.h"
#include "model/expert_pool.h"
#include "model/shared_experts.h"
#include "model/shortlist_space.h"
#include "model/stage.h"
#include "model/weights.h"

namespace minim::model {

// One row of a step.
struct StepRow {
    int32_t token = 0;
    backend::KvRow at;  // its sequence and position
    bool wants_logits = false;
};

// Observes the residual stream after each layer and the chosen experts; for tests and inspection.
// x: [n, hidden], ids and gates: [n, n_expert_used]. With an observer the last layer computes every row.
using LayerObserver =
    std::function<void(int64_t layer, int64_t n, const float* x, const int32_t* ids, const float* gates)>;

// The output of a step: logits for the rows that request them, in row order.
struct StepOutput {
    float* logits = nullptr;  // [number of such rows, n_vocab]; null: nowhere, where they stay on the device
    // The query of each such row; empty: all logits are written. Rows with a query for candidates get their top-k,
    // the logits of the others are written.
    std::span<const ShortlistQuery> queries;
};

// The most rows of a step: the grids of GPU kernels are limited to four times that.
inline constexpr int64_t k_most_step_rows = int64_t{1} << 16;

// The activations and work space of one stream of steps of at most n_rows rows, on every device of the stages. Not
// shared between threads; the devices must outlive it.
class StepSpace {
  public:
    // Throws out_of_memory or out_of_device_memory.
    StepSpace(std::span<const Stage> stages, const Config& config, int64_t n_rows, int64_t n_context);
    // All layers on one device.
    StepSpace(const backend::Backend& backend, const Config& config, int64_t n_rows, int64_t n_context);

    int64_t n_rows() const noexcept { return n_rows_; }

    // Returns whether the logits of a step stay on the device until the next one, with top-k available.
    bool keeps_logits() const noexcept { return shortlists_ != nullptr; }

    // Returns the query of a row of the last step; rows are counted among those that requested logits.
    Shortlist shortlist(int64_t wanted_row) const { return shortlists_->answer(wanted_row); }

  private:
    friend class ForwardPass;
    // Of n rows: gates [n, n_expert_used], then as many ids, so that both cross to another device at once.
    struct Routing {
        float* gates;

        int32_t* ids(int64_t n, int64_t n_expert_used) const noexcept {
            return reinterpret_cast<int32_t*>(gates + n * n_expert_used);
        }
    };
    // Buffers on a device with experts of another device's layers. If it computes on host memory, they are pinned for
    // the layers' device.
    struct ExpertSpace {
        const backend::Backend* backend;
        std::unique_ptr<backend::Memory> memory;  // holds what the pointers below point to
        backend::Scratch* scratch;  // of the device: of the stage that it has, or one of `streams_`
        float *x, *h;               // [n_rows, hidden]
        Routing routing;
    };
    // In the memory of a stage's device.
    struct StageSpace {
        const backend::Backend* backend;
        std::unique_ptr<backend::Memory> memory;    // holds what the pointers below point to
        std::vector<ExpertSpace> experts;           // for offloaded experts, one for each device
        std::unique_ptr<SharedExperts> shared;      // null: no layer shares experts with the host
        std::unique_ptr<backend::Scratch> scratch;  // ends before the memory that its stream works on
        float *x, *h, *q, *k, *v, *o;               // [n_rows, hidden] twice, then [n_rows, heads * head_dim]
        Routing routing;
        std::vector<backend::KvRow> rows;  // [n_rows]

        ExpertSpace& experts_on(const backend::Backend& device);
    };
    struct Stream {
        const backend::Backend* backend;
        std::unique_ptr<backend::Scratch> scratch;
    };
    StageSpace make_stage(const Stage& stage, const backend::StepLimits& limits) const;
    ExpertSpace make_experts(const StageSpace& stage, const backend::Backend& device,
                             const backend::StepLimits& limits);
    backend::Scratch& stream_on(const backend::Backend& device, const backend::StepLimits& limits);
    void add_expert_spaces(std::span<const Stage> stages, const backend::StepLimits& limits);
    template <typename Visit>
    void for_each_stream(const Visit& visit) const;

    int64_t n_rows_;
    std::vector<StageSpace> stages_;
    std::vector<Stream> streams_;  // of devices that have experts and no stage; end before the memory
    std::vector<int32_t> tokens_;  // [n_rows]
    Buffer passing_;               // x and routing on the host, between two devices
    std::unique_ptr<backend::Memory> logits_;     // of a few rows, where the last device's memory is its own
    std::unique_ptr<ShortlistSpace> shortlists_;  // where that device makes them
    int64_t n_wanted_ = 0;                        // rows of the last step whose logits were wanted
    int64_t first_logits_ = 0;                    // of them, the first of those whose logits are there
};

// Rotary frequencies theta^(-2i / rotary_dim), i < rotary_dim / 2.
std::vector<float> rope_frequencies(const Config& config);

class ForwardPass {
  public:
    // The arguments must outlive it. `pools`: one a stage, null where no experts are shared; none: nowhere.
    ForwardPass(std::span<const Stage> stages, const Config& config, const Weights& weights,
                std::span<const std::unique_ptr<ExpertPool>> pools = {});
    // All layers on one device.
    ForwardPass(const backend::Backend& backend, const Config& config, const Weights& weights);

    // Stores the rows' K and V, and writes the logits of the rows that request them, in row order:
    // [number of such rows, n_vocab]. Rows of one sequence come in position order. Throws cancelled between
    // layers, and device_lost; the KV entries written until then are garbage beyond the caller's count of kept
    // tokens.
    void step(std::span<const StepRow> rows, StepSpace& space, float* logits, const CancelToken* cancel,
              const LayerObserver& observer = {}) const;
    void step(std::span<const StepRow> rows, StepSpace& space, const StepOutput& output,
              const CancelToken* cancel, const LayerObserver& observer = {}) const;

    // Return the top-k of one row, and a row itself, of the last step in a space that keeps its logits. Rows are
    // counted among those that requested logits. Both throw device_lost.
    Shortlist shortlist(StepSpace& space, int64_t wanted_row, const ShortlistQuery& query) const;
    void fetch_logits(StepSpace& space, int64_t wanted_row, float* logits) const;

  private:
    using StageSpace = StepSpace::StageSpace;
    struct Step {
        std::span<const StepRow> rows;
        StepSpace& space;
        const StepOutput& output;
        const CancelToken* cancel;
        const LayerObserver& observer;
        int64_t n_wanted;  // rows whose logits are
    };
    // One side of a transfer.
    struct Side {
        const backend::Backend& backend;
        backend::Scratch& scratch;
    };
    using ExpertSpace = StepSpace::ExpertSpace;
    int64_t first_layer(size_t stage_index) const;
    ExpertPool* pool_of(size_t stage_index) const noexcept {
        return pools_.empty() ? nullptr : pools_[stage_index].get();
    }
    bool is_shared(size_t stage_index, int64_t layer_of_stage) const noexcept {
        const ExpertPool* pool = pool_of(stage_index);
        return pool != nullptr && pool->has(layer_of_stage);
    }
    bool keeps_wanted_rows(int64_t layer, const Step& step) const;
    std::function<void()> answers_of_part(size_t stage_index, int64_t begin, int64_t end, Step& step) const;
    int64_t end_of_part(size_t stage_index, int64_t begin) const;
    void compute(Step& step) const;
    void repeatable_stage(size_t stage_index, Step& step) const;
    int64_t layers(size_t stage_index, Step& step) const;
    int64_t part(size_t stage_index, int64_t begin, int64_t end, int64_t n, Step& step) const;
    void attention(const LayerWeights& layer, int64_t layer_of_stage, int64_t n, StageSpace& space) const;
    void choose_experts(const LayerWeights& layer, int64_t n, StageSpace& space) const;
    void experts_elsewhere(size_t stage_index, int64_t layer_of_stage, int64_t n, Step& step) const;
    void keep_wanted_rows(std::span<const StepRow> rows, StageSpace& space) const;
    static void pass(const Side& from, const float* data, const Side& to, float* place, int64_t count,
                     std::byte* passing);
    void pass_on(int64_t n, StageSpace& from, StageSpace& to, std::byte* passing) const;
    void observe(const LayerObserver& observer, int64_t layer, int64_t n, StageSpace& space) const;
    float* logits_place(int64_t first, Step& step) const;
    void project(int64_t first, int64_t count, StageSpace& last, float* logits) const;
    void make_shortlists(int64_t first, int64_t count, StepSpace& space) const;
    void fetch_output(int64_t first, int64_t count, Step& step) const;
    void keep_logits_of(int64_t wanted_row, StepSpace& space) const;
    void download_rows(int64_t first, int64_t count, StepSpace& space, float* logits) const;
    void output(int64_t n, Step& step) const;

    std::vector<Stage> stages_;
    const Config& config_;
    const Weights& weights_;
    std::span<const std::unique_ptr<ExpertPool>> pools_;
    std::vector<float> rope_frequency_;
    const backend::Backend* host_beside_devices_;  // null: the host's threads do not wait for a device
};

}  // namespace minim::model
