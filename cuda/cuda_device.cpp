// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/format_text.h"
#include "cuda/batch.h"
#include "cuda/exact/operations.h"
#include "cuda/exchange.h"
#include "cuda/group_link.h"

namespace minim::cuda {
namespace {

using backend::MemoryUse;

// How long a device waits for the host's experts of a layer. A host with few free cores may take seconds for a long prompt.
constexpr int64_t k_millisecond = 1'000'000;  // nanoseconds
constexpr int64_t k_second = 1000 * k_millisecond;
constexpr int64_t k_patience = 20 * k_second;
constexpr int64_t k_patience_a_row = 50 * k_millisecond;

// How a stream that waits for other ranks is waited for: a step takes some milliseconds.
using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds k_spin{50};
constexpr std::chrono::microseconds k_yield{2000};
constexpr std::chrono::microseconds k_nap{50};
constexpr std::chrono::milliseconds k_look_interval{1};
// How long work that has been ended may go on.
constexpr std::chrono::seconds k_stuck_limit{5};

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

// The most pages of the tables of a step.
int64_t most_pages(const backend::StepLimits& limits) {
    return limits.n_rows * (limits.n_context / backend::k_kv_page_tokens + 1);
}

}  // namespace

CudaDevice::CudaDevice(int32_t index, std::string name, uint64_t budget_bytes)
    : index_(index),
      name_(std::move(name)),
      shares_host_memory_(runtime::shares_host_memory(index)),
      blocks_(index, false, shares_host_memory_),
      memory_(name_, blocks_, budget_bytes),
      pinned_blocks_(index, true, true),
      pinned_(format_text("{}, memory of the host", name_), pinned_blocks_, backend::k_no_budget,
              Status::out_of_memory) {}

std::unique_ptr<backend::Memory> CudaDevice::allocate_staging(uint64_t bytes, std::string_view what) const {
    try {
        return pinned_.allocate(bytes, what, MemoryUse::work);
    } catch (const Error& error) {  // a system may limit what is pinned; other memory is slower, and does
        if (error.status() != Status::out_of_memory) throw;
        return backend::allocate_host_memory(bytes, what);
    }
}

std::unique_ptr<backend::Pinned> CudaDevice::pin(std::span<const std::byte> memory) const {
    const auto pinning = runtime::pin_host(index_, memory.data(), memory.size());
    if (pinning == runtime::Pinning::refused) return nullptr;
    return std::make_unique<PinnedRange>(index_, pinning == runtime::Pinning::done ? memory.data() : nullptr);
}

void CudaDevice::upload(Scratch& scratch, std::byte* to, const std::byte* from_host, uint64_t bytes) const {
    Stream& s = to_write(scratch);
    // The driver refuses a copy from two ranges that were pinned apart.
    for (std::span<const std::byte> rest(from_host, bytes); !rest.empty();) {
        const auto piece = backend::first_piece(rest);
        put(s, to, piece);
        to += piece.size();
        rest = rest.subspan(piece.size());
    }
}

bool CudaDevice::receive(Scratch& scratch, std::byte* to, const Backend& peer, Scratch& peer_scratch,
                         const std::byte* from, uint64_t bytes) const {
    const auto* other = dynamic_cast<const CudaDevice*>(&peer);
    if (other == nullptr) return false;
    Stream& s = to_write(scratch);
    const Stream& theirs = other->own(peer_scratch);
    if (is_working(s))
        note(s, runtime::copy_from_peer(index_, s.stream, to, other->index_, theirs.stream, from, bytes));
    return true;
}

void CudaDevice::synchronize(Scratch& scratch) const {
    Stream& s = to_write(scratch);  // work between steps may overwrite an input
    s.batch.rows.clear();
    s.batch.ids.clear();
    s.list.is_step = false;
    s.records.drop(s.stream);
    wait(scratch);
}

// Waits for the work of a stream. Work that waits for other ranks may never end: then it is ended, and the error of the exchange is thrown.
// Returns the error of the work.
const char* CudaDevice::wait_for(Stream& s) const {
    if (s.watch == nullptr) return runtime::synchronize(index_, s.stream);
    const Clock::time_point start = Clock::now();
    Clock::time_point next_look = start;
    std::optional<Error> error;
    Clock::time_point end;  // of the work, if there is an error
    const char* why = nullptr;
    for (bool is_done = false; !is_done;) {
        why = runtime::query(index_, s.stream, is_done);
        const Clock::time_point now = Clock::now();
        if (error && !is_done && now > end) {
            s.is_stuck = true;
            note("its work for other ranks does not end");
            throw Error(*error);
        }
        // Once more at the end: an exchange that was ended has left garbage.
        if (!error && (is_done || now >= next_look)) {
            error = s.watch->look(now - start, s.limits.n_rows);
            end = now + k_stuck_limit;
            next_look = now + k_look_interval;
        }
        if (is_done || now - start < k_spin) continue;
        if (now - start < k_yield) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(k_nap);
        }
    }
    if (error) throw Error(*error);
    return why;
}

void CudaDevice::wait(Scratch& scratch) const {
    Stream& s = own(scratch);
    note(s, wait_for(s));
    check_alive();
    if (const char* why = std::exchange(s.error, nullptr)) fail_on_device(name_, Status::internal, "{}", why);
    if (s.host_is_late != nullptr && std::atomic_ref(*s.host_is_late).load() != fast::k_flag_clear)
        fail_on_device(name_, Status::internal,
                       "the host took longer than {} s and {} ms per row to compute its experts of a layer; "
                       "give it more threads, or the device more experts",
                       k_patience / k_second, k_patience_a_row / k_millisecond);
}

void CudaDevice::take_work(Stream& s, Taker& taker) const {
    const backend::StepLimits& limits = s.limits;
    const int64_t n_slots = limits.n_rows * limits.n_expert_used;
    const int64_t n_pieces =
        std::min(limits.n_rows, backend::k_max_top_k_rows) * fast::top_k_pieces(limits.n_vocab);
    taker.take(s.work.ids, limits.n_rows);
    taker.take(s.work.tables, batch_bytes(limits.n_rows, most_pages(limits)));
    taker.take(s.work.frequency, limits.head_dim);
    taker.take(s.work.block_scores, limits.n_rows * limits.index.n_head * index_blocks(limits));
    taker.take(s.work.chosen_blocks, limits.n_rows * limits.index.n_head * limits.index.top);
    taker.take(s.work.score, limits.n_rows * limits.n_expert);
    taker.take(s.work.activated, n_slots * limits.slot_ff());
    taker.take(s.work.output, n_slots * std::max(limits.hidden, limits.slot_ff()));
    taker.take(s.work.seen, std::min(limits.n_rows, int64_t{1}));
    if (s.paths.exchange_pieces) taker.take(s.work.step, std::min(limits.n_rows, int64_t{1}));
    taker.take(s.work.top_k.pieces, n_pieces);
    taker.take(s.work.top_k.keys, n_pieces * fast::k_list);
}

uint64_t CudaDevice::step_bytes(const backend::StepLimits& limits) const {
    if (limits.n_expert > exact::k_max_experts)
        fail_on_device(name_, Status::unsupported, "{} experts a layer; up to {} are possible",
                       limits.n_expert, exact::k_max_experts);
    Stream stream(index_, log_);
    stream.limits = limits;
    stream.paths = paths();
    stream.n_processors = runtime::processor_count(index_);
    stream.tile_size = fast::tile_size(runtime::block_shared_bytes(index_));
    Taker taker(nullptr);
    take_work(stream, taker);
    return taker.bytes();
}

std::unique_ptr<Scratch> CudaDevice::reserve(const backend::StepLimits& limits) const {
    const uint64_t bytes = step_bytes(limits);
    auto stream = std::make_unique<Stream>(index_, log_);
    Batch& batch = stream->batch;
    stream->limits = limits;
    stream->paths = paths();
    batch.rows.reserve(limits.n_rows);
    batch.ids.reserve(limits.n_rows);
    batch.frequency.reserve(limits.head_dim);
    stream->records.reserve();
    stream->n_processors = runtime::processor_count(index_);
    stream->tile_size = fast::tile_size(runtime::block_shared_bytes(index_));
    stream->memory = allocate(bytes, "work space", MemoryUse::work);
    Taker taker(stream->memory->data());
    take_work(*stream, taker);
    batch.host_memory = allocate_staging(
        static_cast<uint64_t>(batch_bytes(limits.n_rows, most_pages(limits))), "page tables");
    batch.host_tables = batch.host_memory->data();
    stream->stream = runtime::make_stream(index_);
    if (stream->stream == nullptr) fail_on_device(name_, Status::out_of_device_memory, "no further stream");
    return stream;
}

std::unique_ptr<backend::GroupLink> CudaDevice::connect(backend::GroupChannel& channel,
                                                        std::string& remark) const {
    return connect_devices(*this, channel, adds_in_rank_order(), remark);
}

std::unique_ptr<backend::Exchange> CudaDevice::make_exchange(const backend::StepLimits& limits,
                                                             int64_t n_turns) const {
    const auto way = paths().exchange_pieces ? HostExchange::Way::by_pieces : HostExchange::Way::by_flags;
    std::shared_ptr<backend::Memory> memory;
    try {
        memory = pinned_.allocate(HostExchange::bytes(limits, n_turns, way), "the exchange with the host",
                                  MemoryUse::work);
    } catch (const Error& error) {
        if (error.status() != Status::out_of_memory) throw;
        return nullptr;
    }
    return std::make_unique<HostExchange>(std::move(memory), limits, n_turns, way, [this] {
        if (runtime::is_lost(index_)) note("it no longer answers");
        check_alive();
    });
}

void CudaDevice::copy_posted(Stream& s, const HostExchange& with, const float* h, int64_t n_floats,
                             const int32_t* ids, int64_t n_ids) const {
    copy_later(s, Way::to_host, with.h(), h, static_cast<uint64_t>(n_floats) * sizeof(float));
    copy_later(s, Way::to_host, with.ids(), ids, static_cast<uint64_t>(n_ids) * sizeof(int32_t));
}

int64_t CudaDevice::patience(int64_t n) noexcept {
    return k_patience + n * k_patience_a_row;
}

// If the stream has failed, the turn is never posted: give up, so that nobody waits for it.
void CudaDevice::post(Scratch& scratch, backend::Exchange& exchange, int64_t turn, const float* h,
                      const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden) const {
    Stream& s = own(scratch);
    auto& with = static_cast<HostExchange&>(exchange);
    const fast::Posted to = with.posted(turn);
    int64_t n_floats = n * hidden;
    int64_t n_ids = n * n_used;
    if (n > k_max_posted_rows) {
        copy_posted(s, with, h, n_floats, ids, n_ids);
        n_floats = n_ids = 0;
    }
    launch(s, [&] { fast::post(s.stream, h, n_floats, ids, n_ids, to); });
    if (!is_working(s)) with.give_up();
}

void CudaDevice::collect(Scratch& scratch, backend::Exchange& exchange, int64_t turn,
                         const backend::ExpertPlace* places, const int32_t* ids, int64_t n, int64_t n_used,
                         int64_t hidden, float* out) const {
    Stream& s = to_write(scratch);
    const auto& with = static_cast<const HostExchange&>(exchange);
    s.host_is_late = with.late();
    launch(s, [&] {
        fast::await_host(s.stream, with.answered(turn), s.host_is_late.get(), patience(n), s.work.seen);
        fast::collect(s.stream, with.turn().out, places, ids, n * n_used, hidden, s.work.seen, out);
    });
}

// An error while a step is recorded only invalidates the record: other users of the same GPU can interrupt recording.
// Errors of the device itself occur again when the step is computed. Other errors are reported when the stream is
// synchronised.
void CudaDevice::note(Stream& stream, const char* why) const noexcept {
    if (why == nullptr) return;
    if (stream.records.is_recording()) return stream.records.spoil(why);
    if (stream.error == nullptr) stream.error = why;
    if (runtime::is_lost(index_)) note(why);
}

// Called once for each step. Host memory that is still being copied is never written: a stream keeps its batch until it is
// synchronised.
void CudaDevice::put_batch(Stream& s, std::span<const int32_t> ids, std::span<const backend::KvRow> rows,
                           int64_t n_head, int64_t n_head_kv) const {
    if (is_known(s, ids, rows)) return;
    launch_all(s);
    if (!s.batch.rows.empty()) note(s, wait_for(s));
    const int64_t bytes = lay_out(s, ids, rows, n_head, n_head_kv);
    copy_later(s, Way::to_device, s.work.tables, s.batch.host_tables, static_cast<uint64_t>(bytes));
}

}  // namespace minim::cuda
