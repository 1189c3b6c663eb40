// SPDX-License-Identifier: Apache-2.0
// One long file: each operation is a few lines that choose between the exact and the fast kernels. Streams, memory and
// records are in files of their own.
#include "cuda/cuda_backend.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/device_memory.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "cuda/batch.h"
#include "cuda/blas.h"
#include "cuda/debug.h"
#include "cuda/dense_products.h"
#include "cuda/exact/operations.h"
#include "cuda/exchange.h"
#include "cuda/fast_step.h"
#include "cuda/postponed_norm.h"
#include "cuda/runtime.h"
#include "cuda/stream.h"
#include "cuda/views.h"
#include "format/blocks.h"
#include "panel/panel.h"

namespace minim::cuda {
namespace {

using backend::Arithmetic;
using backend::AttendArgs;
using backend::ExpertWeights;
using backend::KvLayout;
using backend::KvRow;
using backend::LinearTask;
using backend::Matrix;
using backend::MemoryUse;
using backend::Scratch;
using backend::Vector;
using runtime::Way;

constexpr uint64_t k_alignment = 256;
// The most recorded steps of a stream: eight kinds, each cut into parts by the offloaded experts of 62 layers.
constexpr size_t k_most_records = 512;
// The most launches in all of them; beyond that the oldest are dropped: the driver uses some kilobytes for each.
constexpr int64_t k_most_launches = 8192;
// After this many failed records in a row, a stream records without early starts; after the same number again, it
// stops recording and computes every step.
constexpr int32_t k_most_failed_records = 3;
// How long a device waits for the host's experts of a layer. A host with few free cores may take seconds for a long prompt.
constexpr int64_t k_millisecond = 1'000'000;  // nanoseconds
constexpr int64_t k_second = 1000 * k_millisecond;
constexpr int64_t k_patience = 20 * k_second;
constexpr int64_t k_patience_a_row = 50 * k_millisecond;
// The most rows that a kernel hands to the host. For more rows copies are faster, but they take longer to start and are
// not recorded.
constexpr int64_t k_most_posted_rows = 64;
// A step is recorded only if another one of its kind was computed within this number of steps before it: recording
// costs more than a few repeats save.
constexpr int64_t k_most_steps_between = 50;

class GpuBlocks : public backend::BlockSource {
  public:
    explicit GpuBlocks(int32_t device) : device_(device) {}
    std::byte* take(uint64_t bytes) override {
        return static_cast<std::byte*>(runtime::allocate(device_, bytes));
    }
    void give_back(std::byte* block, uint64_t) noexcept override { runtime::release(device_, block); }
    uint64_t free_bytes() const noexcept override { return runtime::free_bytes(device_); }

  private:
    const int32_t device_;
};

// Pinned host memory.
class PinnedBlocks : public backend::BlockSource {
  public:
    explicit PinnedBlocks(int32_t device) : device_(device) {}
    std::byte* take(uint64_t bytes) override {
        return static_cast<std::byte*>(runtime::allocate_host(device_, bytes));
    }
    void give_back(std::byte* block, uint64_t) noexcept override { runtime::release_host(device_, block); }
    uint64_t free_bytes() const noexcept override { return available_memory_bytes(); }

  private:
    const int32_t device_;
};

class PinnedRange : public backend::Pinned {
  public:
    PinnedRange(int32_t device, const std::byte* memory) : device_(device), memory_(memory) {}
    ~PinnedRange() override {
        if (memory_ != nullptr) runtime::unpin_host(device_, memory_);
    }
    PinnedRange(const PinnedRange&) = delete;
    PinnedRange& operator=(const PinnedRange&) = delete;

  private:
    const int32_t device_;
    const std::byte* memory_;  // null: another device of the process has pinned it
};

// The bytes that packing copies at a time, at least a panel.
constexpr uint64_t k_pack_bytes = uint64_t{16} << 20;

class CudaBackend : public backend::Backend {
  public:
    CudaBackend(int32_t index, Arithmetic arithmetic, uint64_t budget_bytes)
        : index_(index),
          is_fast_(arithmetic != Arithmetic::exact),
          is_fixed_(arithmetic == Arithmetic::deterministic),
          name_(format_text("cuda:{}{}", index, is_fast_ ? "" : " (exact)")),
          blocks_(index),
          memory_(name_, blocks_, budget_bytes),
          pinned_blocks_(index),
          pinned_(format_text("{}, memory of the host", name_), pinned_blocks_, backend::k_no_budget,
                  Status::out_of_memory),
          dense_(library_for(arithmetic)) {}

    std::string_view name() const noexcept override { return name_; }
    std::string_view remark() const noexcept override { return remark_; }
    void on_warning(const std::function<void(std::string_view)>& say) const override { say_ = say; }
    const backend::HostDevice* host() const noexcept override { return nullptr; }
    uint64_t available_bytes() const noexcept override { return memory_.state().free_bytes; }
    std::unique_ptr<backend::Memory> allocate(uint64_t bytes, std::string_view what,
                                              backend::MemoryUse use) const override {
        check_alive();  // a lost device reports no memory; report the loss instead
        return memory_.allocate(bytes, what, use);
    }
    backend::MemoryState memory() const noexcept override { return memory_.state(); }
    std::unique_ptr<backend::Memory> allocate_staging(uint64_t bytes, std::string_view what) const override {
        try {
            return pinned_.allocate(bytes, what, MemoryUse::work);
        } catch (const Error& error) {  // a system may limit what is pinned; other memory is slower, and does
            if (error.status() != Status::out_of_memory) throw;
            return backend::allocate_host_memory(bytes, what);
        }
    }

    std::unique_ptr<backend::Pinned> pin(std::span<const std::byte> memory) const override {
        const auto pinning = runtime::pin_host(index_, memory.data(), memory.size());
        if (pinning == runtime::Pinning::refused) return nullptr;
        return std::make_unique<PinnedRange>(index_,
                                             pinning == runtime::Pinning::done ? memory.data() : nullptr);
    }

    void write(std::byte* to, const std::byte* from_host, uint64_t bytes) const override {
        check_alive();
        check(runtime::copy(index_, Way::to_device, to, from_host, bytes));
    }
    void read(std::byte* to_host, const std::byte* from, uint64_t bytes) const override {
        check_alive();
        check(runtime::copy(index_, Way::to_host, to_host, from, bytes));
    }
    void copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept override {
        if (why_lost_ == nullptr) note(runtime::copy(index_, Way::on_device, to, from, bytes));
    }

    std::unique_ptr<Scratch> reserve(const backend::StepLimits& limits) const override;
    uint64_t step_bytes(const backend::StepLimits& limits) const override;

    void upload(Scratch& scratch, std::byte* to, const std::byte* from_host, uint64_t bytes) const override {
        fast::forget_input(own(scratch));
        // The driver refuses a copy from two ranges that were pinned apart.
        for (std::span<const std::byte> rest(from_host, bytes); !rest.empty();) {
            const auto piece = backend::first_piece(rest);
            copy_later(own(scratch), Way::to_device, to, piece.data(), piece.size());
            to += piece.size();
            rest = rest.subspan(piece.size());
        }
    }
    void download(Scratch& scratch, std::byte* to_host, const std::byte* from,
                  uint64_t bytes) const override {
        copy_later(own(scratch), Way::to_host, to_host, from, bytes);
    }
    void move(Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const override {
        fast::forget_input(own(scratch));
        copy_later(own(scratch), Way::on_device, to, from, bytes);
    }
    bool receive(Scratch& scratch, std::byte* to, const Backend& peer, Scratch& peer_scratch,
                 const std::byte* from, uint64_t bytes) const override {
        const auto* other = dynamic_cast<const CudaBackend*>(&peer);
        if (other == nullptr) return false;
        Stream& s = own(scratch);
        const Stream& theirs = other->own(peer_scratch);
        fast::forget_input(s);
        if (is_working(s))
            note(s, runtime::copy_from_peer(index_, s.stream, to, other->index_, theirs.stream, from, bytes));
        return true;
    }
    bool begin_step(Scratch& scratch, const backend::StepBatch& batch) const override;
    bool end_step(Scratch& scratch) const override;
    backend::StepCounts step_counts() const noexcept override {
        return {n_computed_, n_recorded_, n_repeated_, n_failed_, why_failed_};
    }
    void synchronize(Scratch& scratch) const override {
        fast::forget_input(own(scratch));  // work between steps may overwrite it
        own(scratch).batch.clear();
        own(scratch).batch_ids.clear();
        drop_record(own(scratch));
        wait(scratch);
    }

    void wait(Scratch& scratch) const override {
        Stream& s = own(scratch);
        note(s, runtime::synchronize(index_, s.stream));
        check_alive();
        if (const char* why = std::exchange(s.error, nullptr))
            fail_on_device(name_, Status::internal, "{}", why);
        if (s.host_is_late != nullptr && std::atomic_ref(*s.host_is_late).load() != fast::k_flag_clear)
            fail_on_device(
                name_, Status::internal,
                "the host took longer than {} s and {} ms per row to compute its experts of a layer; "
                "give it more threads, or the device more experts",
                k_patience / k_second, k_patience_a_row / k_millisecond);
    }

    bool runs(Format format) const noexcept override {
        return with_block(AllBlocks{}, format, [](auto) {});
    }

    bool packs(Format format) const noexcept override { return is_fast_ && fast::has_panels(format); }
    void pack(std::span<std::byte* const> data, const Matrix& shape) const override;
    void adopt(Scratch& scratch, std::span<std::byte* const> data, const Matrix& shape) const override {
        Stream& s = own(scratch);
        const int64_t n_panels = shape.rows / panel::k_panel_rows;
        const fast::PackShape pack_shape = fast::pack_shape(shape.format, shape.row_bytes);
        launch(s, [&] {
            for (std::byte* matrix : data)
                fast::reorder_words(s.stream, pack_shape, n_panels, reinterpret_cast<uint8_t*>(matrix));
        });
    }

    void embed(Scratch& scratch, const Matrix& table, std::span<const int32_t> ids, float* x) const override {
        Stream& s = own(scratch);
        fast::forget_input(s);
        const bool is_of_batch = !ids.empty() && std::ranges::equal(s.batch_ids, ids);
        if (!is_of_batch) put(s, s.ids, ids);
        const int32_t* device_ids = is_of_batch ? s.batch_tables.ids : s.ids;
        launch(s, [&] { exact::embed(s.stream, weight_of(table), device_ids, std::ssize(ids), x); });
    }

    void norm(Scratch& scratch, const float* x, int64_t n, const Vector& weight, float eps,
              float* h) const override {
        Stream& s = own(scratch);
        if (is_fast_ && fast::postpone_norm(s, x, n, weight, eps, h)) return;
        launch(s, [&] {
            if (is_fast_) {
                fast::norm_rows(s, x, n, weight, eps, h);
            } else {
                exact::norm(s.stream, x, n, weight.data, weight.size, eps, h);
            }
        });
    }

    void linear(Scratch& scratch, const float* h, int64_t n,
                std::span<const LinearTask> tasks) const override {
        Stream& s = with_postponed(scratch);
        launch(s, [&] {
            if (is_fast_) {
                fast::linear_tasks(s, h, n, tasks);
                note(s, std::exchange(s.dense_error, nullptr));
                return;
            }
            for (const LinearTask& task : tasks)
                exact::linear(s.stream, weight_of(*task.weight), h, n, task.y, task.weight->rows, task.add);
        });
    }

    void attend(Scratch& scratch, const AttendArgs& args) const override;

    void route(Scratch& scratch, const float* h, int64_t n, const Matrix& router, const Vector& bias,
               int64_t n_used, int32_t* ids, float* gates) const override {
        const bool is_fast = is_fast_ && n_used <= fast::k_most_used;
        Stream& s = is_fast ? with_postponed(scratch) : own(scratch);
        launch(s, [&] {
            if (is_fast) return fast::route_rows(s, h, n, router, bias, n_used, ids, gates);
            exact::linear(s.stream, weight_of(router), h, n, s.score, router.rows, false);
            exact::route(s.stream, s.score, n, router.rows, bias.data, n_used, ids, gates);
        });
    }

    void scale(Scratch& scratch, float* x, int64_t count, float factor) const override {
        Stream& s = own(scratch);
        fast::forget_input(s);
        launch(s, [&] { exact::scale(s.stream, x, count, factor); });
    }

    void experts(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const ExpertWeights& weights, float* y) const override {
        Stream& s = own(scratch);
        if (!has_table(s, weights)) return;
        launch(s, [&] {
            if (is_fast_) return fast::add_experts(s, h, n, ids, gates, n_used, weights, y);
            make_slots(s, h, n, ids, n_used, weights, s.output);
            exact::add_slots(s.stream, s.output, gates, n, n_used, weights.down.rows, y);
        });
    }

    void expert_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                      const ExpertWeights& weights, float* out) const override {
        Stream& s = own(scratch);
        if (!has_table(s, weights)) return;
        launch(s, [&] {
            if (is_fast_) return fast::make_slots(s, h, n, ids, n_used, weights, out);
            make_slots(s, h, n, ids, n_used, weights, out);
        });
    }

    void add_slots(Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                   int64_t hidden, float* y) const override {
        Stream& s = own(scratch);
        fast::forget_input(s);
        launch(s, [&] { exact::add_slots(s.stream, out, gates, n, n_used, hidden, y); });
    }

    std::unique_ptr<backend::Exchange> make_exchange(const backend::StepLimits& limits,
                                                     int64_t n_turns) const override;
    void post(Scratch& scratch, backend::Exchange& exchange, int64_t turn, const float* h, const int32_t* ids,
              int64_t n, int64_t n_used, int64_t hidden) const override;
    void collect(Scratch& scratch, backend::Exchange& exchange, int64_t turn,
                 const backend::ExpertPlace* places, const int32_t* ids, int64_t n, int64_t n_used,
                 int64_t hidden, float* out) const override;

    bool makes_shortlists() const noexcept override { return true; }
    void shortlist(Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
                   const backend::ShortlistTask& task) const override {
        Stream& s = own(scratch);
        launch(s, [&] { fast::shortlist(s.stream, logits, n, n_vocab, s.shortlist, task); });
    }

  private:
    // Returns the stream, with a norm that was postponed. Only for the operations that can take it; all others call own().
    static Stream& with_postponed(Scratch& scratch) { return static_cast<Stream&>(scratch); }
    // Returns the stream, in which every operation so far has been launched.
    Stream& own(Scratch& scratch) const {
        Stream& s = with_postponed(scratch);
        if (s.postponed.x != nullptr) {
            launch(s, [&] { fast::launch_postponed(s); });
            s.postponed = {};  // if the stream takes no more work
        }
        return s;
    }
    std::unique_ptr<blas::Library> library_for(Arithmetic arithmetic) {
        if (arithmetic != Arithmetic::fast || !debug_switches().library) return nullptr;
        std::string why_not;
        auto library = blas::open(index_, why_not);
        if (library == nullptr)
            remark_ = format_text("prompts of F16 and BF16 weights go slowly without cuBLASLt: {}", why_not);
        return library;
    }
    void note(const char* why) const noexcept {
        const char* nothing = nullptr;
        if (why != nullptr) why_lost_.compare_exchange_strong(nothing, why);
    }
    // An error while a step is recorded only invalidates the record: other users of the same GPU can interrupt
    // recording. Errors of the device itself occur again when the step is computed. Other errors are reported when
    // the stream is synchronised.
    void note(Stream& stream, const char* why) const noexcept {
        if (why == nullptr) return;
        const char*& place = stream.is_recording ? stream.why_spoilt : stream.error;
        if (place == nullptr) place = why;
        if (!stream.is_recording && runtime::is_lost(index_)) note(why);
    }
    // Throws if a synchronous call has failed.
    void check(const char* why) const {
        if (why == nullptr) return;
        if (runtime::is_lost(index_)) note(why);
        check_alive();
        fail_on_device(name_, Status::internal, "{}", why);
    }
    bool is_working(const Stream& stream) const noexcept {
        return why_lost_ == nullptr && stream.error == nullptr;
    }
    void check_alive() const {
        const char* why = why_lost_.load();
        if (why != nullptr) fail_on_device(name_, Status::device_lost, "{}", why);
    }
    template <typename Launch>
    void launch(Stream& stream, const Launch& call) const {
        if (!is_working(stream)) return;
        runtime::use(index_, !stream.is_recording || stream.records_early);
        call();
        note(stream, runtime::last_error());
        if (stream.is_recording) ++stream.records[stream.current].n_launches;
    }
    // Returns whether the layer has a table of its experts. Without a table the kernels cannot find them: notes an
    // error.
    bool has_table(Stream& stream, const ExpertWeights& weights) const noexcept {
        if (weights.places == nullptr) note(stream, "the experts of a layer have no table");
        return weights.places != nullptr;
    }
    // Computes the slots' outputs in exact arithmetic.
    static void make_slots(Stream& s, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                           const ExpertWeights& weights, float* out) {
        const ExpertViews views(weights);
        const auto multiply = [&](const exact::Experts& experts, const float* x, int64_t slots_a_row,
                                  float* y) {
            exact::slots(s.stream, experts, x, slots_a_row, ids, n * n_used, y, experts.rows);
        };
        multiply(views.gate, h, n_used, s.activated);
        multiply(views.up, h, n_used, s.output);
        exact::activate(s.stream, s.activated, s.output, n * n_used * weights.gate.rows);
        multiply(views.down, s.activated, 1, out);
    }
    void copy_later(Stream& stream, Way way, void* to, const void* from, uint64_t bytes) const {
        if (is_working(stream))
            note(stream, runtime::copy_later(index_, stream.stream, way, to, from, bytes));
    }
    template <typename T>
    void put(Stream& stream, T* to, std::span<const T> from) const {
        copy_later(stream, Way::to_device, to, from.data(), from.size_bytes());
    }
    void check_limits(const backend::StepLimits& limits) const;
    uint64_t lay_out_work(Stream& stream, std::byte* base) const;
    void put_batch(Stream& stream, std::span<const int32_t> ids, std::span<const KvRow> rows, int64_t n_head,
                   int64_t n_head_kv) const;
    void put_frequency(Stream& stream, std::span<const float> frequency) const;
    void drop_record(Stream& stream) const;
    void make_room_for_record(Stream& stream) const;
    void note_failed_record(Stream& stream, const char* why) const;
    void warn(std::string_view what, std::string_view why) const noexcept;
    bool repeat(Stream& stream, const Record& record) const;
    bool attends_fast(const AttendArgs& args) const;

    const int32_t index_;
    const bool is_fast_;
    const bool is_fixed_;
    const std::string name_;
    mutable GpuBlocks blocks_;
    mutable backend::DeviceMemory memory_;
    mutable PinnedBlocks pinned_blocks_;
    mutable backend::DeviceMemory pinned_;
    std::string remark_;
    mutable std::function<void(std::string_view)> say_;
    mutable DenseProducts dense_;
    mutable std::mutex pack_mutex_;  // there are buffers to pack for one thread only
    mutable std::atomic<const char*> why_lost_ = nullptr;
    mutable std::atomic<int64_t> n_computed_ = 0;
    mutable std::atomic<int64_t> n_recorded_ = 0;
    mutable std::atomic<int64_t> n_repeated_ = 0;
    mutable std::atomic<int64_t> n_failed_ = 0;
    mutable std::atomic<const char*> why_failed_ = nullptr;
};

// The most pages of the tables of a step.
int64_t most_pages(const backend::StepLimits& limits) {
    return limits.n_rows * (limits.n_context / backend::k_kv_page_tokens + 1);
}

void CudaBackend::check_limits(const backend::StepLimits& limits) const {
    if (limits.n_expert > exact::k_most_experts)
        fail_on_device(name_, Status::unsupported, "{} experts a layer; up to {} are possible",
                       limits.n_expert, exact::k_most_experts);
}

// Sets the stream's pointers to consecutive arrays from `base` on, and returns the bytes of all arrays. With `base`
// null only the bytes are meaningful.
uint64_t CudaBackend::lay_out_work(Stream& s, std::byte* base) const {
    const backend::StepLimits& limits = s.limits;
    const int64_t n_slots = limits.n_rows * limits.n_expert_used;
    std::byte* next = base;
    const auto take = [&](auto*& pointer, int64_t count) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(next);
        next += align_up(static_cast<uint64_t>(count) * sizeof(*pointer), k_alignment);
    };
    take(s.ids, limits.n_rows);
    take(s.tables, batch_bytes(limits.n_rows, most_pages(limits)));
    take(s.frequency, limits.head_dim);
    take(s.score, limits.n_rows * limits.n_expert);
    take(s.activated, n_slots * limits.expert_ff);
    take(s.output, n_slots * std::max(limits.hidden, limits.expert_ff));
    const int64_t n_pieces =
        std::min(limits.n_rows, backend::k_most_shortlist_rows) * fast::shortlist_pieces(limits.n_vocab);
    take(s.seen, std::min(limits.n_rows, int64_t{1}));
    take(s.shortlist.pieces, n_pieces);
    take(s.shortlist.keys, n_pieces * fast::k_list);
    if (is_fast_) {
        const int64_t longest = std::max(limits.hidden, limits.n_head * limits.head_dim);
        take(s.input, limits.n_rows * (longest / 32 + 1));
        take(s.quantized_slots, n_slots * (limits.expert_ff / 32 + 1));
        take(s.halved, limits.n_rows * (longest / 128));
        take(s.halved_slots, n_slots * (limits.expert_ff / 128));
        take(s.tiles.slot, n_slots);
        take(s.tiles.tile, fast::most_expert_tiles(n_slots, limits.n_expert));
        take(s.tiles.count, 1);
        take(s.router_partial, fast::route_partial_floats(limits.n_rows));
        take(s.arrived, fast::n_arrival_counters(limits));
        if (dense_.has_library() && limits.n_rows >= DenseProducts::k_least_rows) {
            s.dense = &dense_;
            take(s.narrowed, limits.n_rows * longest);
            take(s.narrowed_factor, limits.n_rows);
            take(s.dense_workspace, static_cast<int64_t>(DenseProducts::k_workspace_bytes));
        }
        if (fast::attend_runs(limits.head_dim, limits.n_head, limits.n_head_kv)) {
            take(s.query, limits.n_rows * limits.n_head * limits.head_dim);
            const int64_t bytes =
                is_fixed_ ? fast::fixed_partial_bytes(limits.n_rows, limits.n_head_kv, limits.head_dim)
                          : fast::partial_bytes(limits.n_rows, limits.n_head, limits.n_head_kv,
                                                limits.head_dim, s.n_processors);
            take(s.partial, bytes / static_cast<int64_t>(sizeof(float)));
        }
    }
    return static_cast<uint64_t>(next - base);
}

uint64_t CudaBackend::step_bytes(const backend::StepLimits& limits) const {
    check_limits(limits);
    Stream stream;
    stream.limits = limits;
    stream.n_processors = runtime::processor_count(index_);
    return lay_out_work(stream, nullptr);
}

std::unique_ptr<Scratch> CudaBackend::reserve(const backend::StepLimits& limits) const {
    check_limits(limits);
    auto stream = std::make_unique<Stream>();
    stream->limits = limits;
    stream->fixed = is_fixed_;
    stream->batch.reserve(static_cast<size_t>(limits.n_rows));
    stream->batch_ids.reserve(static_cast<size_t>(limits.n_rows));
    stream->host_frequency.reserve(static_cast<size_t>(limits.head_dim));
    stream->records.reserve(k_most_records);
    stream->records_nothing = !debug_switches().record;
    stream->n_processors = runtime::processor_count(index_);
    stream->memory = allocate(lay_out_work(*stream, nullptr), "work space", MemoryUse::work);
    lay_out_work(*stream, stream->memory->data());
    if (is_fast_) {
        const std::vector<int32_t> none(static_cast<size_t>(fast::n_arrival_counters(limits)));
        check(runtime::copy(index_, Way::to_device, stream->arrived, none.data(),
                            none.size() * sizeof(int32_t)));
    }
    stream->device = index_;
    stream->host_memory = allocate_staging(
        static_cast<uint64_t>(batch_bytes(limits.n_rows, most_pages(limits))), "page tables");
    stream->host_tables = stream->host_memory->data();
    stream->stream = runtime::make_stream(index_);
    if (stream->stream == nullptr) fail_on_device(name_, Status::out_of_device_memory, "no further stream");
    return stream;
}

// Called once for each step. Host memory that is still being copied is never written: a stream keeps its batch until it is
// synchronised.
void CudaBackend::put_batch(Stream& s, std::span<const int32_t> ids, std::span<const KvRow> rows,
                            int64_t n_head, int64_t n_head_kv) const {
    if (is_known(s, ids, rows)) return;
    if (!s.batch.empty()) note(s, runtime::synchronize(index_, s.stream));
    const int64_t bytes = lay_out(s, ids, rows, n_head, n_head_kv);
    copy_later(s, Way::to_device, s.tables, s.host_tables, static_cast<uint64_t>(bytes));
}

void CudaBackend::put_frequency(Stream& s, std::span<const float> frequency) const {
    if (std::ranges::equal(s.host_frequency, frequency)) return;
    s.host_frequency.assign(frequency.begin(), frequency.end());
    put(s, s.frequency, std::span<const float>(s.host_frequency));
}

// The first step of a kind is computed, the second one is recorded if it follows soon, later ones are repeated.
bool CudaBackend::begin_step(Scratch& scratch, const backend::StepBatch& batch) const {
    Stream& s = own(scratch);
    s.computed.reset();
    if (!is_fast_ || s.query == nullptr || batch.rows.empty() || !is_working(s)) return false;
    put_batch(s, batch.ids, batch.rows, batch.n_head, batch.n_head_kv);
    ++n_computed_;  // unless it is repeated
    if (s.records_nothing) return false;
    fast::forget_input(s);
    ++s.n_steps;
    const RecordKey key = {batch.calls, std::ssize(batch.rows), !batch.ids.empty(),
                           s.n_context, s.n_attend_tiles,       *batch.rows[0].sequence->layout};
    const auto found = std::ranges::find(s.records, key, &Record::key);
    if (found == s.records.end()) {
        s.computed = key;
        return false;
    }
    const int64_t n_steps_between = s.n_steps - std::exchange(found->last_use, s.n_steps);
    if (found->graph != nullptr) return repeat(s, *found);
    if (n_steps_between > k_most_steps_between) return false;
    s.current = static_cast<size_t>(found - s.records.begin());
    found->n_launches = 0;
    s.why_spoilt = nullptr;
    const char* why = runtime::begin_record(index_, s.stream);
    s.is_recording = why == nullptr;
    if (why != nullptr) note_failed_record(s, why);
    return false;
}

bool CudaBackend::end_step(Scratch& scratch) const {
    Stream& s = own(scratch);
    if (s.computed.has_value()) {
        make_room_for_record(s);
        s.records.push_back({*s.computed, nullptr, 0, s.n_steps});
        s.computed.reset();
    }
    if (!s.is_recording) return true;
    s.is_recording = false;
    fast::forget_input(s);
    const char* why = nullptr;
    const runtime::Graph graph = runtime::end_record(index_, s.stream, why);
    if (graph == nullptr || s.why_spoilt != nullptr) {
        if (graph != nullptr) runtime::end_graph(index_, graph);
        --n_computed_;  // the step begins again
        note_failed_record(s, s.why_spoilt != nullptr ? s.why_spoilt : why);
        return false;
    }
    ++n_recorded_;
    s.records[s.current].graph = graph;
    return repeat(s, s.records[s.current]);
}

// Counts a failed record. After too many of them, stops early starts first, since some drivers record no kernel that
// starts early, and then recording.
void CudaBackend::note_failed_record(Stream& s, const char* why) const {
    ++n_failed_;
    why_failed_ = why;
    if (++s.n_failed_records < k_most_failed_records) return;
    s.n_failed_records = 0;
    s.records_nothing = !s.records_early;
    warn(s.records_early ? "steps are recorded without early launch from now on"
                         : "steps are launched kernel by kernel from now on, which is slower",
         why);
    s.records_early = false;
}

void CudaBackend::warn(std::string_view what, std::string_view why) const noexcept {
    try {
        if (say_) say_(format_text("{}: {}", what, why));
    } catch (...) {  // no memory for the text; the failure is counted anyway
    }
}

// Starts a record; returns false if the step must be computed instead. If the device has no memory for the record,
// frees the memory of the stream's other records.
bool CudaBackend::repeat(Stream& s, const Record& record) const {
    const char* why = runtime::repeat(index_, record.graph, s.stream);
    if (why == nullptr) {
        --n_computed_;
        ++n_repeated_;
        s.n_failed_records = 0;
        return true;
    }
    for (const Record& each : s.records)
        if (each.graph != nullptr) runtime::end_graph(index_, each.graph);
    s.records.clear();
    note_failed_record(s, why);
    return false;
}

void CudaBackend::make_room_for_record(Stream& s) const {
    const auto n_launches = [&] {
        int64_t sum = 0;
        for (const Record& record : s.records) sum += record.n_launches;
        return sum;
    };
    while (s.records.size() == k_most_records || n_launches() > k_most_launches) {
        const auto oldest = std::ranges::min_element(s.records, {}, &Record::last_use);
        if (oldest->graph != nullptr) runtime::end_graph(index_, oldest->graph);
        s.records.erase(oldest);
    }
}

// Returns null if host memory cannot be pinned.
std::unique_ptr<backend::Exchange> CudaBackend::make_exchange(const backend::StepLimits& limits,
                                                              int64_t n_turns) const {
    std::shared_ptr<backend::Memory> memory;
    try {
        memory = pinned_.allocate(HostExchange::bytes(limits, n_turns), "the exchange with the host",
                                  MemoryUse::work);
    } catch (const Error& error) {
        if (error.status() != Status::out_of_memory) throw;
        return nullptr;
    }
    return std::make_unique<HostExchange>(std::move(memory), limits, n_turns, [this] {
        if (runtime::is_lost(index_)) note("it no longer answers");
        check_alive();
    });
}

// If the stream has failed, the turn is never posted: give up, so that nobody waits for it.
void CudaBackend::post(Scratch& scratch, backend::Exchange& exchange, int64_t turn, const float* h,
                       const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden) const {
    Stream& s = own(scratch);
    auto& with = static_cast<HostExchange&>(exchange);
    const fast::Posted to = with.posted(turn);
    int64_t n_floats = n * hidden;
    int64_t n_ids = n * n_used;
    if (n > k_most_posted_rows) {
        copy_later(s, Way::to_host, to.h, h, static_cast<uint64_t>(n_floats) * sizeof(float));
        copy_later(s, Way::to_host, to.ids, ids, static_cast<uint64_t>(n_ids) * sizeof(int32_t));
        n_floats = n_ids = 0;
    }
    launch(s, [&] { fast::post(s.stream, h, n_floats, ids, n_ids, to); });
    if (!is_working(s)) with.give_up();
}

void CudaBackend::collect(Scratch& scratch, backend::Exchange& exchange, int64_t turn,
                          const backend::ExpertPlace* places, const int32_t* ids, int64_t n, int64_t n_used,
                          int64_t hidden, float* out) const {
    Stream& s = own(scratch);
    const auto& with = static_cast<const HostExchange&>(exchange);
    s.host_is_late = with.late();
    fast::forget_input(s);
    launch(s, [&] {
        fast::await_host(s.stream, with.answered(turn), s.host_is_late.get(),
                         k_patience + n * k_patience_a_row, s.seen);
        fast::collect(s.stream, with.turn().out, places, ids, n * n_used, hidden, s.seen, out);
    });
}

// Ends an interrupted record, or forgets the key of an interrupted step.
void CudaBackend::drop_record(Stream& s) const {
    s.computed.reset();
    if (!s.is_recording) return;
    s.is_recording = false;
    const char* why = nullptr;
    const runtime::Graph graph = runtime::end_record(index_, s.stream, why);
    if (graph != nullptr) runtime::end_graph(index_, graph);
}

bool CudaBackend::attends_fast(const AttendArgs& args) const {
    return is_fast_ && args.q_norm.size == args.n_head * args.head_dim &&
           fast::attend_runs(args.head_dim, args.n_head, args.n_head_kv);
}

// Packs panel after panel from a copy of some megabytes at a time, or of fewer if the weights leave less memory.
void CudaBackend::pack(std::span<std::byte* const> data, const Matrix& shape) const {
    const int64_t n_panels = shape.rows / panel::k_panel_rows;
    if (n_panels == 0 || data.empty()) return;
    const auto panel_bytes = static_cast<uint64_t>(panel::k_panel_rows * shape.row_bytes);
    const std::lock_guard lock(pack_mutex_);
    const uint64_t room = std::min(k_pack_bytes, available_bytes());
    const auto n_together =
        std::min(n_panels, static_cast<int64_t>(std::max<uint64_t>(1, room / panel_bytes)));
    const std::unique_ptr<backend::Memory> rows =
        allocate(static_cast<uint64_t>(n_together) * panel_bytes, "packing weights", MemoryUse::work);
    const auto* from = reinterpret_cast<const uint8_t*>(rows->data());
    const fast::PackShape pack_shape = fast::pack_shape(shape.format, shape.row_bytes);
    runtime::Stream stream = runtime::make_stream(index_);
    if (stream == nullptr) fail_on_device(name_, Status::out_of_device_memory, "no further stream");
    const char* why = nullptr;
    for (std::byte* matrix : data) {
        for (int64_t done = 0; done < n_panels && why == nullptr; done += n_together) {
            const int64_t count = std::min(n_together, n_panels - done);
            std::byte* to = matrix + static_cast<uint64_t>(done) * panel_bytes;
            why = runtime::copy_later(index_, stream, Way::on_device, rows->data(), to,
                                      static_cast<uint64_t>(count) * panel_bytes);
            if (why != nullptr) break;
            runtime::use(index_);
            fast::pack(stream, from, pack_shape, count, reinterpret_cast<uint8_t*>(to));
            why = runtime::last_error();
        }
    }
    const char* why_not_done = runtime::synchronize(index_, stream);
    runtime::end_stream(index_, stream);
    check(why != nullptr ? why : why_not_done);
}

void CudaBackend::attend(Scratch& scratch, const AttendArgs& args) const {
    if (args.n == 0) return;
    Stream& s = own(scratch);
    fast::forget_input(s);
    const KvLayout& layout = *args.rows[0].sequence->layout;
    put_batch(s, {}, args.rows, args.n_head, args.n_head_kv);
    put_frequency(s, args.rope_frequency);
    const auto n_frequency = std::ssize(args.rope_frequency);
    const exact::Cache cache = {
        .pages = s.batch_tables.pages,
        .first_page = s.batch_tables.first_page,
        .position = s.batch_tables.position,
        .k_format = layout.k_format,
        .v_format = layout.v_format,
        .k_at = layout.k_offset(args.layer, 0),
        .v_at = layout.v_offset(args.layer, 0),
        .k_head_bytes = backend::k_kv_page_tokens * layout.k_token_bytes(),
        .v_head_bytes = backend::k_kv_page_tokens * layout.v_token_bytes(),
        .k_token_bytes = layout.k_token_bytes(),
        .v_token_bytes = layout.v_token_bytes(),
        .n_head = args.n_head,
        .n_head_kv = args.n_head_kv,
        .head_dim = args.head_dim,
    };
    if (attends_fast(args)) {
        launch(s, [&] { fast::attend_rows(s, cache, args); });
        return;
    }
    const auto prepare = [&](float* heads, const Vector& weight, int64_t n_head) {
        const int64_t n_norms = args.n * n_head * args.head_dim / weight.size;
        launch(s, [&] {
            exact::norm(s.stream, heads, n_norms, weight.data, weight.size, args.norm_eps, heads);
        });
        launch(s, [&] {
            exact::rotate(s.stream, heads, args.n, n_head, args.head_dim, s.batch_tables.position,
                          s.frequency, n_frequency, layout.rotates_keys());
        });
    };
    prepare(args.q, args.q_norm, args.n_head);
    prepare(args.k, args.k_norm, args.n_head_kv);
    launch(s, [&] { exact::store(s.stream, cache, args.k, args.v, args.n); });
    launch(s, [&] { exact::attend(s.stream, cache, args.q, args.n, args.o); });
}

}  // namespace

std::unique_ptr<backend::Backend> make_cuda_backend(int32_t index, Arithmetic arithmetic,
                                                    uint64_t budget_bytes) {
    return std::make_unique<CudaBackend>(index, arithmetic, budget_bytes);
}

}  // namespace minim::cuda
