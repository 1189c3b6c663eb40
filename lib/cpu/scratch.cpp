// SPDX-License-Identifier: Apache-2.0
#include "cpu/scratch.h"

#include <algorithm>
#include <initializer_list>

#include "base/checked.h"
#include "base/error.h"
#include "base/page.h"

namespace minim::cpu {
namespace {

constexpr uint64_t k_alignment = 64;
// The number of queries of a block, unless one KV head has more. It is large enough that a page of keys is read once from
// memory and then multiplied from the cache.
constexpr int64_t k_block_queries = 96;

int64_t block_queries(const backend::StepLimits& limits) {
    const int64_t heads_of_kv = limits.n_head_kv > 0 ? limits.n_head / limits.n_head_kv : 0;
    return std::max({heads_of_kv, limits.index.n_head, k_block_queries});
}

constexpr const char* k_what = "work space of the CPU backend";

// Lays out buffers one behind the other: once without memory, to find the size, and then again in the allocated memory.
class Carver {
  public:
    explicit Carver(std::byte* base) : base_(base) {}

    template <typename T>
    void take(T*& buffer, std::initializer_list<int64_t> shape) {
        uint64_t bytes = sizeof(T);
        for (const int64_t extent : shape) {
            const auto count = static_cast<uint64_t>(std::max<int64_t>(extent, 0));
            if (!checked_mul(bytes, count, bytes)) fail_out_of_memory(k_what, UINT64_MAX, 0);
        }
        buffer = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
        uint64_t end = 0;
        if (!checked_add(used_, bytes, end) || end > UINT64_MAX - k_alignment) {
            fail_out_of_memory(k_what, UINT64_MAX, 0);
        }
        used_ = align_up(end, k_alignment);
    }

    // Makes the next buffer begin on a new page.
    void begin_page() {
        if (used_ > UINT64_MAX - k_page_bytes) fail_out_of_memory(k_what, UINT64_MAX, 0);
        used_ = align_up(used_, k_page_bytes);
    }

    uint64_t used() const noexcept { return used_; }

  private:
    std::byte* base_;
    uint64_t used_ = 0;
};

void carve_attention(Carver& carver, CpuScratch& scratch) {
    const backend::StepLimits& limits = scratch.limits;
    const int64_t n_spans = (limits.n_context + k_attend_span_positions - 1) / k_attend_span_positions;
    carver.take(scratch.first_row_of_run, {limits.n_rows + 1});
    carver.take(scratch.query_codes, {limits.n_rows, limits.n_head, limits.head_dim});
    carver.take(scratch.query_scales, {limits.n_rows, limits.n_head});
    carver.take(scratch.row_totals, {n_spans, limits.n_head});
    carver.take(scratch.row_sums, {n_spans, limits.n_head, limits.head_dim});
    const backend::SparseAttention& sparse = limits.index;
    if (sparse.n_head == 0) return;
    scratch.n_index_blocks = (limits.n_context + sparse.block - 1) / sparse.block;
    scratch.n_scored_rows = std::min(limits.n_rows, k_scored_rows);
    carver.take(scratch.block_scores, {scratch.n_scored_rows, sparse.n_head, scratch.n_index_blocks});
    carver.take(scratch.chosen_blocks, {limits.n_rows, sparse.n_head, sparse.top});
}

void carve_experts(Carver& carver, CpuScratch& scratch) {
    const backend::StepLimits& limits = scratch.limits;
    carver.take(scratch.first_of_expert, {limits.n_expert + 1});
    carver.take(scratch.active_expert, {limits.n_expert});
    carver.take(scratch.entry_row, {limits.n_rows, limits.n_expert_used});
    carver.take(scratch.entry_of_slot, {limits.n_rows, limits.n_expert_used});
    carver.take(scratch.activated, {limits.n_rows, limits.n_expert_used,
                                    activation_row_bytes(Activation::f32, limits.slot_ff())});
    carver.take(scratch.expert_output, {limits.n_rows, limits.n_expert_used, limits.hidden});
}

void carve_thread(Carver& carver, const CpuScratch& scratch, ThreadScratch& thread) {
    const int64_t head_dim = scratch.limits.head_dim;
    const int64_t n_queries = scratch.n_block_queries;
    carver.take(thread.tile, {tile_scratch_bytes(scratch.max_cols)});
    if (scratch.limits.n_expert_used > 0) {
        carver.take(thread.gate, {k_gate_tile_tokens, k_gate_tile_rows});
        carver.take(thread.up, {k_gate_tile_tokens, k_gate_tile_rows});
    }
    carver.take(thread.rotation, {head_dim});
    carver.take(thread.key_tile, {score_tile_floats(std::max(head_dim, scratch.limits.index.dim))});
    carver.take(thread.scores, {n_queries, k_attend_span_positions});
    carver.take(thread.query_totals, {n_queries});
    carver.take(thread.span_totals, {n_queries});
    carver.take(thread.span_sums, {n_queries, head_dim});
    carver.take(thread.query_head, {n_queries});
    carver.begin_page();
}

void carve(Carver& carver, CpuScratch& scratch) {
    const backend::StepLimits& limits = scratch.limits;
    for (ThreadScratch& thread : scratch.threads) carve_thread(carver, scratch, thread);
    carver.take(scratch.input[static_cast<size_t>(Activation::q8)],
                {limits.n_rows, activation_row_bytes(Activation::q8, scratch.max_cols)});
    carver.take(scratch.router, {limits.n_rows, limits.n_expert});
    carve_attention(carver, scratch);
    carve_experts(carver, scratch);
}

}  // namespace

CpuScratch::CpuScratch(const backend::StepLimits& step_limits, int32_t n_threads)
    : limits(step_limits),
      max_cols(std::max({limits.hidden, limits.n_head * limits.head_dim, limits.longest_ff()})),
      threads(n_threads),
      n_block_queries(block_queries(limits)) {
    int64_t n_slots = 0;
    if (!checked_mul(limits.n_rows, limits.n_expert_used, n_slots) || n_slots > INT32_MAX) {
        fail(Status::invalid, "{} rows with {} experts each are more than one step can take", limits.n_rows,
             limits.n_expert_used);
    }
    Carver measure(nullptr);
    carve(measure, *this);
    bytes_ = measure.used();
}

uint64_t CpuScratch::bytes_for(const backend::StepLimits& limits, int32_t n_threads) {
    return CpuScratch(limits, n_threads).bytes_;
}

CpuScratch::CpuScratch(const backend::StepLimits& step_limits, int32_t n_threads,
                       const backend::Backend& backend)
    : CpuScratch(step_limits, n_threads) {
    memory_ = backend.allocate(bytes_, k_what);
    Carver carver(memory_->data());
    carve(carver, *this);
}

}  // namespace minim::cpu
