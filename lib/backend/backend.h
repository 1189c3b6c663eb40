// SPDX-License-Identifier: Apache-2.0
// The device interface: memory, transfers, streams of work, and the coarse operations of the forward pass. The model
// calls them in order (lib/model/minimax_m2.cpp); a backend may fuse, tile, quantise activations and overlap inside
// an operation. Activations are float, row by row, without padding.
//
// Pointers to weights and activations, and those in a page table, are in the backend's memory; the host may access
// them only if uses_host_memory() returns true. Operations and transfers of one stream (Scratch) run in the order of
// the calls, perhaps after the call has returned. Spans are copied at the call; what their elements point to, and
// host buffers of transfers, must stay unchanged until synchronize().
//
// A device that fails is lost: later operations do nothing, and synchronize() of any of its streams throws the reason.
//
// On the CPU, a row's result does not depend on batch composition, chunking or the number of threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "backend/exchange.h"
#include "backend/experts.h"
#include "backend/kv_view.h"
#include "backend/matrix.h"
#include "backend/shortlist.h"
#include "base/host_memory.h"
#include "format/format.h"

namespace minim {
class ThreadPool;
}

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
        rows;  // which sequence and position each row is; earlier rows of a sequence come first
    int64_t layer = 0;
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    int64_t head_dim = 0;
    Vector q_norm;  // [n_head * head_dim]: one mean square over all heads together; [head_dim]: one a head
    Vector k_norm;  // [n_head_kv * head_dim] or [head_dim]
    float norm_eps = 0.0F;
    std::span<const float> rope_frequency;  // [rotary_dim / 2]: theta^(-2i / rotary_dim)
};

// The limits of a step. A backend reserves its work space for them once, so that no operation
// allocates.
struct StepLimits {
    int64_t n_rows = 0;     // rows of a step
    int64_t n_context = 0;  // the most positions that a row attends to
    int64_t hidden = 0;
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    int64_t head_dim = 0;
    int64_t n_expert = 0;
    int64_t n_expert_used = 0;
    int64_t expert_ff = 0;
    int64_t n_vocab = 0;
};

// The parts that differ from step to step.
struct StepBatch {
    std::span<const int32_t> ids;  // of embed(); empty if it is not called
    std::span<const KvRow> rows;   // of attend()
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    // Steps with equal `calls` and row counts run the same operations; only ids and rows differ.
    const void* calls = nullptr;
};

// How the steps of a device were executed so far, in all streams. A step that is cut into parts counts once for each part.
struct StepCounts {
    int64_t computed = 0;  // launched operation by operation
    int64_t recorded = 0;
    int64_t repeated = 0;  // as records
    int64_t failed = 0;    // records that could not be made or started
    // The reason of the last failure; null: none.
    const char* why_failed = nullptr;
};

// One stream of steps with its work space. Steps that share it must not overlap.
class Scratch {
  public:
    virtual ~Scratch() = default;
};

// The uses of memory.
enum class MemoryUse : uint8_t { weights, kv, work };
inline constexpr size_t k_memory_uses = 3;

struct MemoryState;  // device_memory.h

// A block of a backend's memory. It is freed by its destructor, and must not outlive the backend.
class Memory {
  public:
    virtual ~Memory() = default;
    std::byte* data() const noexcept { return data_; }
    uint64_t size() const noexcept { return size_; }

  protected:
    Memory(std::byte* data, uint64_t size) : data_(data), size_(size) {}
    std::byte* data_;
    uint64_t size_;
};

// Throws out_of_memory.
std::unique_ptr<Memory> allocate_host_memory(uint64_t bytes, std::string_view what);

// Any thread. The default implementations are for a device that uses host memory and has completed its work when a call
// returns.
class Backend {
  public:
    virtual ~Backend() = default;

    virtual std::string_view name() const noexcept = 0;  // "cpu", "reference", "cuda:0"

    // Returns a remark on its arithmetic for the user; empty: none.
    virtual std::string_view remark() const noexcept { return {}; }

    // Sets a function that is called, from any thread, if something makes later steps slower without an error. Call
    // it before the first reserve(); `say` must outlive the backend.
    virtual void on_warning(const std::function<void(std::string_view)>& /*say*/) const {}

    // ---- memory ----

    virtual bool uses_host_memory() const noexcept { return true; }

    // Returns the host memory of a backend that computes there; allocate() uses it. If it has several nodes, linear()
    // and experts() accept matrices whose rows are split over them.
    virtual const HostMemory& host_memory() const noexcept;

    // Returns approximately the bytes that can still be allocated; UINT64_MAX: unknown.
    virtual uint64_t available_bytes() const noexcept;

    // Allocates memory with unspecified contents. Throws out_of_memory or out_of_device_memory, naming `what`, the
    // bytes needed and the bytes available.
    virtual std::unique_ptr<Memory> allocate(uint64_t bytes, std::string_view what,
                                             MemoryUse use = MemoryUse::work) const;

    // Returns the allocated bytes by use.
    virtual MemoryState memory() const noexcept;

    // Gives memory back to the device that is kept for the next allocate().
    virtual void give_back_kept() const noexcept {}

    // Memory of the host that upload() reads in its time, without a copy in between where the device can. Throws
    // out_of_memory.
    virtual std::unique_ptr<Memory> allocate_staging(uint64_t bytes, std::string_view what) const;

    // Between steps: complete when the call returns. write() and read() throw device_lost.
    virtual void write(std::byte* to, const std::byte* from_host, uint64_t bytes) const;
    virtual void read(std::byte* to_host, const std::byte* from, uint64_t bytes) const;
    virtual void copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept;

    // ---- streams ----

    // Creates a stream with work space. Throws out_of_memory or out_of_device_memory. Every operation below takes a
    // scratch of this backend, reserved for at least its size, and neither throws nor allocates. Without limits: only
    // for transfers.
    virtual std::unique_ptr<Scratch> reserve(const StepLimits& limits) const = 0;

    // Transfers in a stream.
    virtual void upload(Scratch& scratch, std::byte* to, const std::byte* from_host, uint64_t bytes) const;
    virtual void download(Scratch& scratch, std::byte* to_host, const std::byte* from, uint64_t bytes) const;
    virtual void move(Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const;

    // Copies data that the stream of another device has computed so far, directly from that device; it must stay
    // unchanged until this stream is synchronised. Returns false, and does nothing, if the two devices cannot do
    // that.
    virtual bool receive(Scratch& scratch, std::byte* to, const Backend& peer, Scratch& peer_scratch,
                         const std::byte* from, uint64_t bytes) const;

    // Blocks until all work of the stream is done. Throws device_lost.
    virtual void synchronize(Scratch& scratch) const;
    // The same in the middle of a step, whose rows point to what they did before.
    virtual void wait(Scratch& scratch) const;

    // A step between these two calls may be recorded and repeated as a whole; it has only operations and moves, no
    // other transfers. begin_step() returns true if it has started a record of an earlier step: then the operations
    // and end_step() must not be called. end_step() returns false if nothing was computed: the step must begin again.
    virtual bool begin_step(Scratch& scratch, const StepBatch& batch) const;
    virtual bool end_step(Scratch& scratch) const;

    virtual StepCounts step_counts() const noexcept { return {}; }

    // ---- weights ----

    // Returns whether the operations take matrices of this format. Decoding exists for every format; a device may lack
    // kernels.
    virtual bool runs(Format) const noexcept { return true; }

    // Returns whether linear() and experts() read matrices of this format faster once they are packed.
    virtual bool packs(Format) const noexcept { return false; }

    // Returns the number of rows that are packed together: a matrix can be packed in runs of so many rows.
    virtual int64_t pack_rows_together() const noexcept { return 1; }

    // Packs shape.rows rows that begin at a multiple of pack_rows_together() to `to`, which must not overlap them, on
    // the calling thread. Only for a device that computes on host memory.
    virtual void pack_rows(const Matrix& shape, const std::byte* rows, std::byte* to) const noexcept;

    // Calls task(i, thread) once for each i in [0, n_tasks), on all n_threads() threads of a backend that computes on
    // host memory; returns when all are done. `task` must not throw.
    virtual int32_t n_threads() const noexcept { return 1; }
    virtual void run_tasks(int64_t n_tasks,
                           const std::function<void(int64_t index, int32_t thread)>& task) const;

    // Returns the pool whose threads compute operations on n_rows rows; null: no thread pool.
    virtual const ThreadPool* threads_for(int64_t n_rows) const noexcept;

    // Packs matrices of one shape in place; does not set `packed`. Only matrices of linear() and experts() may be
    // packed. `data`: the address of each. Throws out_of_memory, without changing anything.
    virtual void pack(std::span<std::byte* const> data, const Matrix& shape) const {
        static_cast<void>(data);
        static_cast<void>(shape);
    }

    // ---- operations ----

    // x[i] = row ids[i] of the table.
    virtual void embed(Scratch& scratch, const Matrix& table, std::span<const int32_t> ids,
                       float* x) const = 0;

    // h = x / sqrt(mean(x^2) + eps) * weight, row by row.
    virtual void norm(Scratch& scratch, const float* x, int64_t n, const Vector& weight, float eps,
                      float* h) const = 0;

    virtual void linear(Scratch& scratch, const float* h, int64_t n,
                        std::span<const LinearTask> tasks) const = 0;

    // QK-norm, partial rotary, KV store, causal grouped-query attention.
    virtual void attend(Scratch& scratch, const AttendArgs& args) const = 0;

    // s = sigmoid(router h); the n_used largest of s + bias (ties: the lower index), in descending order of
    // that sum; gates = s / sum of the chosen s. `bias` may be empty. ids, gates: [n, n_used].
    virtual void route(Scratch& scratch, const float* h, int64_t n, const Matrix& router, const Vector& bias,
                       int64_t n_used, int32_t* ids, float* gates) const = 0;

    // x *= factor
    virtual void scale(Scratch& scratch, float* x, int64_t count, float factor) const;

    // y += sum over slots, in slot order, of gate * down(silu(gate h) * (up h)).
    virtual void experts(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                         int64_t n_used, const ExpertWeights& weights, float* y) const = 0;

    // The two steps of experts(), for layers whose experts are on several devices. A slot is row * n_used + choice.
    // Computes out[slot] = down(silu(gate h) * (up h)) for slots whose expert is on this device; leaves the others
    // unchanged.
    virtual void expert_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                              const ExpertWeights& weights, float* out) const = 0;
    // y [n, hidden] += sum over slots, in slot order, of gate * out[slot]: the same additions as in experts().
    virtual void add_slots(Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                           int64_t hidden, float* y) const = 0;

    // ---- answers of the host in the middle of a step (exchange.h) ----

    // Returns null if the device does not support it. Throws out_of_memory.
    virtual std::unique_ptr<Exchange> make_exchange(const StepLimits& limits, int64_t n_turns) const;
    // Hands the inputs and choices of n rows to the host, as part of the stream. May be recorded, as collect() may.
    virtual void post(Scratch& scratch, Exchange& exchange, int64_t turn, const float* h, const int32_t* ids,
                      int64_t n, int64_t n_used, int64_t hidden) const;
    // Waits, in the stream, for the host's answer to the turn, and copies the slots whose expert is not in `places`.
    virtual void collect(Scratch& scratch, Exchange& exchange, int64_t turn, const ExpertPlace* places,
                         const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden, float* out) const;

    // Computes the top-k of n rows of logits [n, n_vocab], n at most k_most_shortlist_rows: what is needed to choose
    // the next tokens, so that the rows need not leave the device. Optional.
    virtual bool makes_shortlists() const noexcept { return false; }
    virtual void shortlist(Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
                           const ShortlistTask& task) const;

  private:
    mutable std::array<std::atomic<uint64_t>, k_memory_uses> host_bytes_ = {};  // a use
};

}  // namespace minim::backend
