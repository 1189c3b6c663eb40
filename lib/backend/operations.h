// SPDX-License-Identifier: Apache-2.0
// The coarse operations of the forward pass. A model calls them in order (lib/model/minimax_m2.cpp); a backend may fuse,
// tile, quantise activations and overlap inside an operation. Activations are float, row by row, without padding.
// Weights, activations and the pages of a page table are in the backend's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/device.h"
#include "backend/exchange.h"
#include "backend/experts.h"
#include "backend/kv_view.h"
#include "backend/matrix.h"
#include "backend/sparse_attention.h"
#include "backend/top_k.h"
#include "format/format.h"

namespace minim::backend {

// y = W h, or y += W h. Several tasks share one h, so that it is quantised once.
struct LinearTask {
    const Matrix* weight = nullptr;
    float* y = nullptr;  // [n, weight->rows]
    bool add = false;
};

// Queries, keys and values of n rows, before normalisation and rotation.
struct AttendArgs {
    int64_t n = 0;
    float* q = nullptr;  // [n, n_head * head_dim], overwritten
    float* k = nullptr;  // [n, n_head_kv * head_dim], overwritten
    const float* v = nullptr;
    float* o = nullptr;  // [n, n_head * head_dim]
    std::span<const KvRow>
        rows;  // the sequence and position of each row; earlier rows of a sequence come first
    int64_t layer = 0;
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    int64_t head_dim = 0;
    Vector q_norm;  // [n_head * head_dim]: one mean square over all heads together; [head_dim]: one a head
    Vector k_norm;  // [n_head_kv * head_dim] or [head_dim]
    float norm_eps = 0.0F;
    std::span<const float> rope_frequency;  // [rotary_dim / 2]: theta^(-2i / rotary_dim)
    // Of ranks that divide the heads of a layer, where one mean square is of the heads of all ranks. q_norm is then
    // [n_head * head_dim] and k_norm [n_head_kv * head_dim], even if a rank has one head.
    const float* squares =
        nullptr;             // [n, 2]: sums of squares of q and of k over all ranks; null: all heads are here
    int64_t n_head_all = 0;  // the heads of all ranks; not read without `squares`
    int64_t n_head_kv_all = 0;
    const IndexArgs* index = nullptr;  // null: each row attends to all keys up to its own position
};

// Any thread.
class Operations {
  public:
    virtual ~Operations() = default;

    // ---- weights ----

    // Returns whether the operations take matrices of this format. Decoding exists for every format; a device may lack
    // kernels.
    virtual bool runs(Format format) const noexcept = 0;

    // Returns whether linear() and experts() read matrices of this format faster once they are packed.
    virtual bool packs(Format format) const noexcept = 0;

    // Returns whether experts() computes the activation.
    virtual bool activates(const Activation& activation) const noexcept = 0;

    // Packs matrices of one shape in place; does not set `packed`. Only matrices of linear() and experts() may be
    // packed. `data`: the address of each. Throws out_of_memory, without changing anything.
    virtual void pack(std::span<std::byte* const> data, const Matrix& shape) const = 0;

    // Does the same, in the stream, with matrices that a HostDevice has packed: panels of panel/panel.h, whose bits some
    // devices have in another order. Only for formats that this backend packs.
    virtual void adopt(Scratch& scratch, std::span<std::byte* const> data, const Matrix& shape) const = 0;

    // ---- operations ----

    // x[i] = row ids[i] of the table.
    virtual void embed(Scratch& scratch, const Matrix& table, std::span<const int32_t> ids,
                       float* x) const = 0;

    // h = x / sqrt(mean(x^2) + eps) * weight, row by row.
    virtual void norm(Scratch& scratch, const float* x, int64_t n, const Vector& weight, float eps,
                      float* h) const = 0;

    virtual void linear(Scratch& scratch, const float* h, int64_t n,
                        std::span<const LinearTask> tasks) const = 0;

    // squares [n, 2] = the sums of squares of q and of k of each row, before normalisation. Reads only n, q, k, n_head,
    // n_head_kv and head_dim. attend() with these sums, and all heads, computes the norms that it computes without them.
    virtual void head_squares(Scratch& scratch, const AttendArgs& args, float* squares) const = 0;

    // QK-norm, partial rotary, KV store, causal grouped-query attention.
    virtual void attend(Scratch& scratch, const AttendArgs& args) const = 0;

    // s = sigmoid(router h); the n_used largest of s + bias (ties: the lower index), in descending order of
    // that sum; gates = s / sum of the chosen s. `bias` may be empty. ids, gates: [n, n_used].
    virtual void route(Scratch& scratch, const float* h, int64_t n, const Matrix& router, const Vector& bias,
                       int64_t n_used, int32_t* ids, float* gates) const = 0;

    // x *= factor
    virtual void scale(Scratch& scratch, float* x, int64_t count, float factor) const = 0;

    // y [n, hidden] = or, with `add`, += sum over slots, in slot order, of gate * down(silu(gate h) * (up h)), or of another
    // activation if the weights have one. Slots whose expert is not on this device add nothing.
    virtual void experts(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                         int64_t n_used, const ExpertWeights& weights, float* y, bool add) const = 0;

    // The two steps of experts() with `add`, for layers whose experts are on several devices. A slot is row * n_used +
    // choice.
    // Computes out[slot] = down(silu(gate h) * (up h)) for slots whose expert is on this device; leaves the others
    // unchanged.
    virtual void expert_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                              const ExpertWeights& weights, float* out) const = 0;
    // Does the same, and stores what `down` reads: middle[slot] = silu(gate h) * (up h), [n * n_used, ff], before any rounding.
    // For steps whose inputs of matrices are observed. Optional.
    virtual bool observes_slots() const noexcept = 0;
    virtual void observe_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                               int64_t n_used, const ExpertWeights& weights, float* middle,
                               float* out) const = 0;
    // y [n, hidden] += sum over slots, in slot order, of gate * out[slot]: the same additions as in experts().
    virtual void add_slots(Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                           int64_t hidden, float* y) const = 0;

    // ---- answers of the host in the middle of a step (exchange.h) ----

    // Returns null if the device does not support it. Throws out_of_memory.
    virtual std::unique_ptr<Exchange> make_exchange(const StepLimits& limits, int64_t n_turns) const = 0;
    // Hands the inputs and choices of n rows to the host, as part of the stream. May be recorded, as collect() may.
    virtual void post(Scratch& scratch, Exchange& exchange, int64_t turn, const float* h, const int32_t* ids,
                      int64_t n, int64_t n_used, int64_t hidden) const = 0;
    // Waits, in the stream, for the host's answer to the turn. Copies the slots whose expert is not in `places`.
    virtual void collect(Scratch& scratch, Exchange& exchange, int64_t turn, const ExpertPlace* places,
                         const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden, float* out) const = 0;

    // Computes the top-k of n rows of logits [n, n_vocab], n at most k_max_top_k_rows. The top-k suffices to choose
    // the next tokens, so the rows need not leave the device. Optional.
    virtual bool makes_top_k() const noexcept = 0;
    virtual void top_k(Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
                       const TopKTask& task) const = 0;
};

}  // namespace minim::backend
