// A device as the rest of the library sees it: its memory, the ways in and out of it, streams of work, and the
// coarse operations of the forward pass. The model calls them in order (lib/model/minimax_m2.cpp); each is free
// to fuse, tile, quantise activations and overlap inside. Activations are float, row after row, without padding.
//
// Data pointers of weights and activations, and those of a page table, lie in the backend's memory, which the
// host may touch only where uses_host_memory() says so. Operations and transfers of one stream (Scratch) run in
// the order of the calls, perhaps after the call has returned: spans are copied before, but what their elements
// point to, and the host's side of a transfer, stays as it is until synchronize().
//
// A device that fails is lost: later operations do nothing, and synchronize() of any of its streams says why.
//
// On the CPU a row's result never depends on who shares the batch, on the chunking or on the thread count.
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
    Vector q_norm;  // [n_head * head_dim]: one mean square over all heads together
    Vector k_norm;  // [n_head_kv * head_dim]
    float norm_eps = 0.0F;
    std::span<const float> rope_frequency;  // [rotary_dim / 2]: theta^(-2i / rotary_dim)
};

// What one step may need at most; a backend reserves its work space from it once, so that no operation
// allocates.
struct StepLimits {
    int64_t n_rows = 0;     // rows of a step
    int64_t n_context = 0;  // positions a row may look back on
    int64_t hidden = 0;
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    int64_t head_dim = 0;
    int64_t n_expert = 0;
    int64_t n_expert_used = 0;
    int64_t expert_ff = 0;
    int64_t n_vocab = 0;
};

// What differs from step to step.
struct StepBatch {
    std::span<const int32_t> ids;  // of embed(); empty where it is not called
    std::span<const KvRow> rows;   // of attend()
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    // Stands for the calls: steps of equal `calls` and as many rows make the same ones, ids and rows apart.
    const void* calls = nullptr;
};

// How the steps of a device were done so far, by all streams. A step that is cut into parts counts once a part.
struct StepCounts {
    int64_t computed = 0;  // operation by operation
    int64_t recorded = 0;
    int64_t repeated = 0;  // as records
    int64_t failed = 0;    // records that could not be made or started
    // Of the last one that failed; null: none did.
    const char* why_failed = nullptr;
};

// One stream of steps with its work space. Steps that share it must not overlap.
class Scratch {
  public:
    virtual ~Scratch() = default;
};

// What memory is taken for.
enum class MemoryUse : uint8_t { weights, kv, work };
inline constexpr size_t k_memory_uses = 3;

struct MemoryState;  // device_memory.h

// A block of a backend's memory. Given back at the end, which must come before the backend's.
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

// Any thread. What is not pure is for a device whose memory is the host's and which has done its work when a
// call returns.
class Backend {
  public:
    virtual ~Backend() = default;

    virtual std::string_view name() const noexcept = 0;  // "cpu", "reference", "cuda:0"

    // What its user should know of how it computes, as text; empty: nothing.
    virtual std::string_view remark() const noexcept { return {}; }

    // Has `say` called, from any thread, when something makes steps slower from then on without failing them. Set before the first
    // reserve(); `say` must outlive the backend.
    virtual void on_warning(const std::function<void(std::string_view)>& /*say*/) const {}

    // ---- memory ----

    virtual bool uses_host_memory() const noexcept { return true; }

    // How a backend that computes on host memory takes it; allocate() goes through it. Where it has several nodes,
    // linear() and experts() take matrices whose rows are split among them.
    virtual const HostMemory& host_memory() const noexcept;

    // Bytes that allocate() could still give, by and large. UINT64_MAX: not known.
    virtual uint64_t available_bytes() const noexcept;

    // Of unspecified contents. Throws out_of_memory or out_of_device_memory, naming `what`, the bytes asked and
    // the bytes available.
    virtual std::unique_ptr<Memory> allocate(uint64_t bytes, std::string_view what,
                                             MemoryUse use = MemoryUse::work) const;

    // What allocate() has given and did not get back yet.
    virtual MemoryState memory() const noexcept;

    // Gives memory back to the device that is kept for the next allocate().
    virtual void give_back_kept() const noexcept {}

    // Memory of the host that upload() reads in its time, without a copy in between where the device can. Throws
    // out_of_memory.
    virtual std::unique_ptr<Memory> allocate_staging(uint64_t bytes, std::string_view what) const;

    // Between steps: done when the call returns. write() and read() throw device_lost.
    virtual void write(std::byte* to, const std::byte* from_host, uint64_t bytes) const;
    virtual void read(std::byte* to_host, const std::byte* from, uint64_t bytes) const;
    virtual void copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept;

    // ---- streams ----

    // Throws out_of_memory or out_of_device_memory. Every operation below takes a scratch of this backend
    // reserved for at least its size, and neither throws nor allocates. Without limits: for transfers alone.
    virtual std::unique_ptr<Scratch> reserve(const StepLimits& limits) const = 0;

    // Transfers as parts of a stream.
    virtual void upload(Scratch& scratch, std::byte* to, const std::byte* from_host, uint64_t bytes) const;
    virtual void download(Scratch& scratch, std::byte* to_host, const std::byte* from, uint64_t bytes) const;
    virtual void move(Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const;

    // Takes over what the stream of another device has made by now, without the host in between; that stream
    // leaves it as it is until this one is synchronised. False, and nothing, where the two cannot.
    virtual bool receive(Scratch& scratch, std::byte* to, const Backend& peer, Scratch& peer_scratch,
                         const std::byte* from, uint64_t bytes) const;

    // Waits for all that the stream was given. Throws device_lost.
    virtual void synchronize(Scratch& scratch) const;
    // The same in the middle of a step, whose rows point to what they did before.
    virtual void wait(Scratch& scratch) const;

    // A step may be recorded and repeated as a whole: its operations and moves come between the two, and no other
    // transfers. begin_step() returns true where it has started a record of an earlier step; then neither they nor
    // end_step() are called. end_step() returns false where nothing has been computed: the step begins again.
    virtual bool begin_step(Scratch& scratch, const StepBatch& batch) const;
    virtual bool end_step(Scratch& scratch) const;

    virtual StepCounts step_counts() const noexcept { return {}; }

    // ---- weights ----

    // Whether the operations take matrices of this format. Decoding exists for every format; a device may lack
    // kernels.
    virtual bool runs(Format) const noexcept { return true; }

    // Whether linear() and experts() read matrices of this format faster once they are packed.
    virtual bool packs(Format) const noexcept { return false; }

    // Rows that are packed together: a matrix may be packed in runs of so many rows.
    virtual int64_t pack_rows_together() const noexcept { return 1; }

    // Packs shape.rows rows that begin at a multiple of pack_rows_together() on their way to `to`, which overlaps none
    // of them, on the calling thread. Of a device that computes on host memory.
    virtual void pack_rows(const Matrix& shape, const std::byte* rows, std::byte* to) const noexcept;

    // Calls task(i, thread) once for each i in [0, n_tasks), on all n_threads() threads of a backend that computes on
    // host memory; returns when all are done. `task` must not throw.
    virtual int32_t n_threads() const noexcept { return 1; }
    virtual void run_tasks(int64_t n_tasks,
                           const std::function<void(int64_t index, int32_t thread)>& task) const;

    // The pool whose threads compute operations on n_rows rows; null: they are not threads of a pool.
    virtual const ThreadPool* threads_for(int64_t n_rows) const noexcept;

    // Reorders the bytes of matrices of one shape in place; sets no `packed`. Only matrices of linear() and
    // experts() may be packed. `data`: one place each. Throws out_of_memory, and has then touched nothing.
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

    // The two steps of experts(), for layers whose experts lie on several devices. A slot is row * n_used + choice.
    // out[slot] = down(silu(gate h) * (up h)) for slots whose expert is here; the others stay as they are.
    virtual void expert_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                              const ExpertWeights& weights, float* out) const = 0;
    // y [n, hidden] += sum over slots, in slot order, of gate * out[slot]. The sum is experts()'s, addend for addend.
    virtual void add_slots(Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                           int64_t hidden, float* y) const = 0;

    // ---- answers of the host in the middle of a step (exchange.h) ----

    // Returns null if the device cannot. Throws out_of_memory.
    virtual std::unique_ptr<Exchange> make_exchange(const StepLimits& limits, int64_t n_turns) const;
    // Hands the inputs and choices of n rows to the host, as part of the stream. May be recorded, as collect() may.
    virtual void post(Scratch& scratch, Exchange& exchange, int64_t turn, const float* h, const int32_t* ids,
                      int64_t n, int64_t n_used, int64_t hidden) const;
    // Waits, in the stream, for the host's answer to the turn, and takes its slots: those whose expert is not in `places`.
    virtual void collect(Scratch& scratch, Exchange& exchange, int64_t turn, const ExpertPlace* places,
                         const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden, float* out) const;

    // The tops of n rows of logits [n, n_vocab], n at most k_most_shortlist_rows: what is needed of them to choose the
    // next tokens, so that the rows need not leave the device. Optional.
    virtual bool makes_shortlists() const noexcept { return false; }
    virtual void shortlist(Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
                           const ShortlistTask& task) const;

  private:
    mutable std::array<std::atomic<uint64_t>, k_memory_uses> host_bytes_ = {};  // a use
};

}  // namespace minim::backend
