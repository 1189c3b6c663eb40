// SPDX-License-Identifier: Apache-2.0
// A device: its memory, transfers, and streams of work. Every function is pure, so that a device cannot compile with
// transfers that are not its own; host_device.h has the functions of backends that compute on host memory.
//
// Operations and transfers of one stream (Scratch) run in the order of the calls, perhaps after the call has returned.
// Spans are copied at the call; what their elements point to, and host buffers of transfers, must stay unchanged until
// synchronize().
//
// A device that fails is lost: later operations do nothing, and synchronize() of any of its streams throws the reason.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/kv_view.h"
#include "backend/sparse_attention.h"

namespace minim::backend {

class Backend;
class GroupChannel;
class GroupLink;
class HostDevice;

// The limits of a step. A backend reserves its work space for them once, so that no operation
// allocates.
struct StepLimits {
    int64_t n_rows = 0;     // rows of a step
    int64_t n_context = 0;  // the maximum number of positions that a row attends to
    int64_t hidden = 0;
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    int64_t head_dim = 0;
    int64_t n_expert = 0;
    int64_t n_expert_used = 0;
    int64_t expert_ff = 0;
    int64_t dense_ff = 0;  // of experts() with one expert for each row; 0: there is none
    int64_t n_vocab = 0;
    SparseAttention index = {};      // n_head 0: no layer has index queries and keys
    int64_t first_sparse_layer = 0;  // the layers from this one on have them

    // Returns the largest width between gate and up and down.
    int64_t longest_ff() const noexcept { return std::max(expert_ff, dense_ff); }
    // Returns the width of a slot, of n_rows * n_expert_used, for which slots have room for every experts().
    int64_t slot_ff() const noexcept {
        if (dense_ff == 0) return expert_ff;
        constexpr int64_t k_whole_blocks = 256;
        const int64_t dense = (dense_ff + n_expert_used - 1) / n_expert_used;
        return std::max(expert_ff, (dense + k_whole_blocks - 1) / k_whole_blocks * k_whole_blocks);
    }
};

// Returns the layout of the KV cache of n_layer layers of this shape, from the model's first layer on.
KvLayout kv_layout_of(const StepLimits& shape, int64_t n_layer, Format k_format, Format v_format) noexcept;

// The parts of a step that differ from one step to the next.
struct StepBatch {
    std::span<const int32_t> ids;  // the ids that embed() gets; empty if it is not called
    std::span<const KvRow> rows;   // the rows that attend() gets
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    // Steps with equal `calls` and row counts run the same operations; only ids and rows differ.
    const void* calls = nullptr;
};

// Counts of a device's steps so far, in all streams, by the way in which they were executed. A step that is cut into parts
// counts once for each part.
struct StepCounts {
    int64_t computed = 0;  // launched operation by operation
    int64_t recorded = 0;
    int64_t repeated = 0;  // executed by starting an earlier record
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

// Host memory is pinned piece by piece, by several threads: pieces end at multiples of this address.
inline constexpr uint64_t k_pinned_piece = uint64_t{1} << 30;

// Returns the part of a range, which is not empty, that comes before the next end of a piece.
inline std::span<const std::byte> first_piece(std::span<const std::byte> memory) {
    const uint64_t begin = reinterpret_cast<uintptr_t>(memory.data()) % k_pinned_piece;
    return memory.first(std::min<uint64_t>(k_pinned_piece - begin, memory.size()));
}

// A range of host memory that a device reads directly, until this ends: before the memory is freed and before the device ends.
class Pinned {
  public:
    virtual ~Pinned() = default;
};

// Throws out_of_memory.
std::unique_ptr<Memory> allocate_host_memory(uint64_t bytes, std::string_view what);

// Any thread.
class Device {
  public:
    virtual ~Device() = default;

    virtual std::string_view name() const noexcept = 0;  // "cpu", "reference", "cuda:0"

    // Returns a remark on its arithmetic for the user; empty: none.
    virtual std::string_view remark() const noexcept = 0;

    // Sets a function that is called, from any thread, if something makes later steps slower without an error. Call
    // it before the first reserve(); `say` must outlive the device.
    virtual void on_warning(const std::function<void(std::string_view)>& say) const = 0;

    // ---- memory ----

    // Returns this device as a HostDevice if it computes on host memory. Returns null if it has memory of its own, which
    // the host cannot access.
    virtual const HostDevice* host() const noexcept = 0;
    bool uses_host_memory() const noexcept { return host() != nullptr; }
    // Returns whether a device with memory of its own takes it from the host's: an integrated GPU. The two have one size and one
    // bandwidth together, and available_bytes() is what the host has left.
    virtual bool shares_host_memory() const noexcept = 0;

    // Returns approximately the bytes that can still be allocated; UINT64_MAX: unknown.
    virtual uint64_t available_bytes() const noexcept = 0;

    // Allocates memory with unspecified contents. Throws out_of_memory or out_of_device_memory, naming `what`, the
    // bytes needed and the bytes available.
    virtual std::unique_ptr<Memory> allocate(uint64_t bytes, std::string_view what,
                                             MemoryUse use = MemoryUse::work) const = 0;

    // Returns the allocated bytes by use.
    virtual MemoryState memory() const noexcept = 0;

    // Allocates host memory from which upload() may copy after the call has returned, directly if the device can do that.
    // Throws out_of_memory.
    virtual std::unique_ptr<Memory> allocate_staging(uint64_t bytes, std::string_view what) const = 0;

    // Pins host memory: transfers from it to this device then take no time of the host's threads, and go as fast as the
    // link. Returns null if that is not possible; the transfers are slower then. The range lies between two multiples of
    // k_pinned_piece, and begins and ends at pages, at such multiples, or with the block that it belongs to.
    virtual std::unique_ptr<Pinned> pin(std::span<const std::byte> memory) const = 0;

    // Transfers between steps. They are complete when the call returns. write() and read() throw device_lost.
    virtual void write(std::byte* to, const std::byte* from_host, uint64_t bytes) const = 0;
    virtual void read(std::byte* to_host, const std::byte* from, uint64_t bytes) const = 0;
    virtual void copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept = 0;

    // ---- streams ----

    // Creates a stream with work space. Throws out_of_memory or out_of_device_memory. Every operation takes a scratch of
    // this device, reserved for at least its size, and neither throws nor allocates. A stream without limits is only for
    // transfers.
    virtual std::unique_ptr<Scratch> reserve(const StepLimits& limits) const = 0;
    // Returns the bytes of this device's memory that reserve(limits) allocates, without allocating any. Throws what
    // reserve() throws for limits that the device does not support.
    virtual uint64_t step_bytes(const StepLimits& limits) const = 0;

    // Transfers in a stream.
    virtual void upload(Scratch& scratch, std::byte* to, const std::byte* from_host,
                        uint64_t bytes) const = 0;
    virtual void download(Scratch& scratch, std::byte* to_host, const std::byte* from,
                          uint64_t bytes) const = 0;
    virtual void move(Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const = 0;

    // Copies data that the stream of another device has computed so far, directly from that device; it must stay
    // unchanged until this stream is synchronised. Returns false, and does nothing, if the two devices cannot do
    // that.
    virtual bool receive(Scratch& scratch, std::byte* to, const Backend& peer, Scratch& peer_scratch,
                         const std::byte* from, uint64_t bytes) const = 0;

    // Blocks until all work of the stream is done. Throws device_lost.
    virtual void synchronize(Scratch& scratch) const = 0;
    // Does the same in the middle of a step. The rows of the step still point to the same memory afterwards.
    virtual void wait(Scratch& scratch) const = 0;

    // A step between these two calls may be recorded and repeated as a whole; it has only operations and moves, no
    // other transfers. begin_step() returns true if it has started a record of an earlier step: then the operations
    // and end_step() must not be called. end_step() returns false if nothing was computed: the step must begin again.
    virtual bool begin_step(Scratch& scratch, const StepBatch& batch) const = 0;
    virtual bool end_step(Scratch& scratch) const = 0;

    virtual StepCounts step_counts() const noexcept = 0;

    // ---- ranks ----

    // Connects this device with those of the other ranks of a group, which call it at the same time, each on its own thread. The
    // channel must outlive the link. Returns null, on all ranks alike, if the device has no link of its own: sums then go over the
    // host. `remark`: for the user, why not or what is slow; empty: nothing. Throws the device's errors, and that of another rank.
    virtual std::unique_ptr<GroupLink> connect(GroupChannel& channel, std::string& remark) const = 0;
};

}  // namespace minim::backend
