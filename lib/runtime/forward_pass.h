// SPDX-License-Identifier: Apache-2.0
// The forward pass of a model: on one rank, or on the ranks of this process, each on a thread of its own, together with
// those of other processes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/top_k.h"
#include "runtime/architecture.h"
#include "runtime/logits.h"
#include "runtime/observe.h"
#include "runtime/rank_pass.h"
#include "runtime/rank_threads.h"
#include "runtime/remote_ranks.h"
#include "runtime/step_row.h"

namespace minim::runtime {

class StepSpace;

class ForwardPass {
  public:
    // Computes on one rank that is alone. `pools` must outlive it: one for each stage, null if the stage shares no experts;
    // empty: no stage does.
    ForwardPass(std::span<const Stage> stages, Architecture architecture,
                std::span<const std::unique_ptr<ExpertPool>> pools = {});
    // Computes all layers on one device, which must outlive it.
    ForwardPass(const backend::Backend& backend, Architecture architecture);
    // Computes on the ranks of this process, and on those of other processes, which must outlive it; null: there are none,
    // or this process does not plan the steps.
    ForwardPass(std::vector<std::unique_ptr<RankPass>> ranks, RemoteRanks* remote);

    std::span<const std::unique_ptr<RankPass>> ranks() const noexcept { return ranks_; }
    RemoteRanks* remote() const noexcept { return remote_; }

    // Stores the rows' K and V, and writes the logits of the rows that request them, in row order:
    // [number of such rows, n_vocab]. Rows of one sequence come in position order. Throws cancelled between
    // layers, device_lost and peer_lost; the KV entries written until then are garbage beyond the caller's count of kept
    // tokens. An observer sees rank 0 alone. If there are several ranks, steps of several threads follow each other.
    // `inputs`: as of RankPass::step(); refuse_observing() says why it must be null.
    void step(std::span<const StepRow> rows, StepSpace& space, float* logits, const CancelToken* cancel,
              const LayerObserver& observer = {}) const;
    void step(std::span<const StepRow> rows, StepSpace& space, const StepOutput& output,
              const CancelToken* cancel, const LayerObserver& observer = {},
              InputObserver* inputs = nullptr) const;

    // Throws unsupported, naming the device, if the inputs of matrices cannot be observed.
    void refuse_observing() const;

    // Return the top-k of one row, and all logits of one row, of the last step in a space that keeps its logits. Rows
    // are counted among those that requested logits. Both throw device_lost.
    TopK top_k(StepSpace& space, int64_t wanted_row, const TopKQuery& query) const;
    void fetch_logits(StepSpace& space, int64_t wanted_row, float* logits) const;

  private:
    bool is_alone() const noexcept { return ranks_.size() == 1 && ranks_.front()->links().is_alone(); }
    void give_up(const RankPass& rank) const noexcept;

    const std::vector<std::unique_ptr<RankPass>> ranks_;
    RemoteRanks* const remote_ = nullptr;
    const std::unique_ptr<RankThreads> threads_;  // of the ranks from the second one on; null: there are none
    mutable std::mutex mutex_;                    // locked during a step of several ranks
};

}  // namespace minim::runtime
