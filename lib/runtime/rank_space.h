// SPDX-License-Identifier: Apache-2.0
// The activations and work space of a stream of steps, on every device of a rank's stages.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/group.h"
#include "base/buffer.h"
#include "base/top_k.h"
#include "runtime/architecture.h"
#include "runtime/logits.h"
#include "runtime/placement.h"
#include "runtime/rank_links.h"
#include "runtime/shared_experts.h"
#include "runtime/transfer.h"

namespace minim::runtime {

// A device, other than the stage's own, that has experts of the stage's layers.
struct Offloaded {
    const backend::Backend* device;
    bool is_on_host;
    bool shares;  // the stage's device has some of them as well
};

// Returns the bytes of each device's memory that a RankSpace of these arguments allocates, without allocating any.
// Throws out_of_memory if they are more than a number of bytes can say, and what Device::step_bytes() throws.
std::map<const backend::Backend*, uint64_t> step_bytes(std::span<const Stage> stages,
                                                       const backend::StepLimits& shape, int64_t n_rows,
                                                       int64_t n_context, const RankLinks& links = {});

// The space of steps of at most n_rows rows that attend to at most n_context positions. Threads must not share it. The
// devices must outlive it.
class RankSpace {
  public:
    // Throws out_of_memory or out_of_device_memory.
    RankSpace(std::span<const Stage> stages, const backend::StepLimits& shape, int64_t n_rows,
              int64_t n_context, const RankLinks& links = {});

    int64_t n_rows() const noexcept { return n_rows_; }

    // Returns whether the logits of a step stay on the device until the next one, with top-k available.
    bool keeps_logits() const noexcept { return logits_->stay(); }

    // Returns the top-k of a row of the last step; rows are counted among those that requested logits.
    TopK top_k(int64_t wanted_row) const { return logits_->top_k(wanted_row); }

  private:
    friend class RankPass;
    // The routing of n rows: gates [n, n_expert_used], then as many ids, so that one copy takes both to another device.
    struct Routing {
        float* gates;

        int32_t* ids(int64_t n, int64_t n_expert_used) const noexcept {
            return reinterpret_cast<int32_t*>(gates + n * n_expert_used);
        }
    };
    // Buffers on a device with experts of another device's layers. If the device computes on host memory, the buffers
    // are pinned for the layers' device.
    struct ExpertSpace {
        const backend::Backend* backend;
        std::unique_ptr<backend::Memory> memory;  // holds what the pointers below point to
        backend::Scratch* scratch;  // of the device: that of the stage on the device, or one of `streams_`
        float *x, *h;               // [n_rows, hidden]
        Routing routing;

        Side side() const noexcept { return {*backend, *scratch}; }
    };
    // Buffers in the memory of a stage's device.
    struct StageSpace {
        const backend::Backend* backend;
        std::unique_ptr<backend::Memory> memory;    // holds what the pointers below point to
        std::vector<ExpertSpace> experts;           // for offloaded experts, one for each device
        std::unique_ptr<SharedExperts> shared;      // null: no layer shares experts with the host
        std::unique_ptr<backend::Scratch> scratch;  // ends before the memory that its stream works on
        float *x, *h, *q, *k, *v, *o;               // [n_rows, hidden] twice, then [n_rows, heads * head_dim]
        float *index_q, *index_k;                   // [n_rows, heads * dim], [n_rows, dim], or null
        float* dense_gates;                         // [n_rows] ones, then as many ids 0; or null
        Routing routing;
        std::vector<backend::KvRow> rows;  // [n_rows]
        // Of a rank that shares the layers with others: the exchange, the outputs of experts, [n_rows * n_expert_used, hidden],
        // or null, and the sums of squares of heads, [n_rows, 2], or null.
        std::unique_ptr<backend::Group> group;
        float *slots, *squares;
        float* choices;  // [n_rows, 2], to compare what the ranks choose; null: they are not compared

        Side side() const noexcept { return {*backend, *scratch}; }
        ExpertSpace& experts_on(const backend::Backend& device);
        // Returns the activations of the first n rows.
        Activations activations(int64_t n, int64_t n_expert_used) const noexcept;
    };
    struct Stream {
        const backend::Backend* backend;
        std::unique_ptr<backend::Scratch> scratch;
    };
    StageSpace make_stage(const Stage& stage, const backend::StepLimits& limits,
                          const RankLinks& links) const;
    ExpertSpace make_experts(const StageSpace& stage, const Offloaded& offloaded,
                             const backend::StepLimits& limits);
    backend::Scratch& stream_on(const backend::Backend& device, const backend::StepLimits& limits);
    void add_expert_spaces(std::span<const Stage> stages, const backend::StepLimits& limits);
    // Calls visit(backend, scratch) for every stream of a step's work.
    template <typename Visit>
    void for_each_stream(const Visit& visit) const {
        for (const StageSpace& stage : stages_) visit(*stage.backend, *stage.scratch);
        for (const Stream& stream : streams_) visit(*stream.backend, *stream.scratch);
    }

    int64_t n_rows_;
    std::vector<StageSpace> stages_;
    std::vector<Stream> streams_;  // of devices that have experts and no stage; end before the memory
    std::vector<int32_t> tokens_;  // [n_rows]
    Buffer passing_;               // x and routing on the host, between two devices or processes
    std::unique_ptr<Logits> logits_;
};

}  // namespace minim::runtime
