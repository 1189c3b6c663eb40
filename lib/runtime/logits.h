// SPDX-License-Identifier: Apache-2.0
// The logits of a step. A device with its own memory computes a group of rows at a time; those of the last group stay
// there until the next step, and its top-k is available. A device on host memory computes them where the caller wants
// them, all at once. Ranks that share the output head compute a group of rows at a time, and rank 0 gathers them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "base/top_k.h"
#include "runtime/architecture.h"
#include "runtime/placement.h"
#include "runtime/rank_links.h"
#include "runtime/top_k_space.h"
#include "runtime/transfer.h"

namespace minim::runtime {

// The output of a step: logits for the rows that request them, in row order.
struct StepOutput {
    float* logits = nullptr;  // [number of such rows, n_vocab]; null: not written; they stay on the device
    // The query of each such row; empty: all logits are written. Rows with a query for candidates get their top-k,
    // the logits of the others are written.
    std::span<const TopKQuery> queries;
};

// Rows are counted among those that request logits. `last`: the stream of the last stage; `h`: its normalised rows.
class Logits {
  public:
    // Makes room for steps of at most n_rows rows. `last` is the last stage. Throws out_of_memory or
    // out_of_device_memory.
    // n_vocab: of the rank.
    Logits(const Stage& last, int64_t n_vocab, int64_t n_rows, const RankLinks& links);
    // Returns the bytes that it allocates on the stage's device.
    static uint64_t device_bytes(const Stage& last, int64_t n_vocab, int64_t n_rows, const RankLinks& links);

    // Returns whether logits stay on the device until the next step, with top-k available.
    bool stay() const noexcept { return top_k_lists_ != nullptr; }
    // Returns the maximum number of rows of a group.
    int64_t group_rows() const noexcept;

    // Begins a step in which n_wanted rows request logits.
    void begin(int64_t n_wanted, const StepOutput& output);
    bool has_queries() const noexcept { return !output_.queries.empty(); }

    // For the group of rows that begins with `first`: upload its queries to the device, compute its logits, and bring
    // what was requested to the host. compute() issues operations only, so that it may be part of a recorded step.
    void upload_queries(const Side& last, int64_t first);
    // `ranks`: those that share the output head; null: none do.
    void compute(const Side& last, const float* h, int64_t first, const Architecture& architecture,
                 backend::Group* ranks);
    void fetch(const Side& last, int64_t first);

    // Returns the top-k of a row of the last step, valid until the next one.
    TopK top_k(int64_t row) const { return top_k_lists_->answer(row); }

    // Return the answer to another query for a row of the last step, and the row itself. Both throw device_lost.
    TopK ask_again(const Side& last, const float* h, int64_t row, const TopKQuery& query,
                   const Architecture& architecture);
    void fetch_row(const Side& last, const float* h, int64_t row, float* logits,
                   const Architecture& architecture);

  private:
    int64_t count_of(int64_t first) const noexcept;
    const float* on_device(int64_t row) const noexcept;
    void project(const Side& last, const float* h, int64_t first, const Architecture& architecture,
                 backend::Group* ranks);
    void download(const Side& last, int64_t first, int64_t count, float* logits) const;
    void bring_back(const Side& last, const float* h, int64_t row, const Architecture& architecture);

    const int64_t n_vocab_;                  // of all ranks
    std::unique_ptr<backend::Memory> part_;  // this rank's logits of a group; null: it has all
    std::unique_ptr<backend::Memory>
        memory_;  // of a group; null: the device works on host memory, or is not on rank 0
    std::unique_ptr<TopKSpace> top_k_lists_;  // null: the device does not make them
    StepOutput output_;                       // of the running step
    int64_t n_wanted_ = 0;                    // of the last step
    int64_t first_ = 0;                       // first row of the group that is in memory_
};

}  // namespace minim::runtime
