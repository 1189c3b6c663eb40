// SPDX-License-Identifier: Apache-2.0
// A GPU without its arithmetic: memory, transfers, streams, errors, and the start of kernels.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/device_memory.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "cuda/runtime.h"
#include "cuda/stream.h"
#include "cuda/taker.h"

namespace minim::cuda {

using backend::Scratch;
using runtime::Way;

class HostExchange;

// Blocks of device memory, or of pinned host memory.
class Blocks : public backend::BlockSource {
  public:
    // counts_on_host: what is free is what the host has left.
    Blocks(int32_t device, bool is_on_host, bool counts_on_host)
        : device_(device), is_on_host_(is_on_host), counts_on_host_(counts_on_host) {}
    std::byte* take(uint64_t bytes) override {
        return static_cast<std::byte*>(is_on_host_ ? runtime::allocate_host(device_, bytes)
                                                   : runtime::allocate(device_, bytes));
    }
    void give_back(std::byte* block, uint64_t) noexcept override {
        if (is_on_host_) return runtime::release_host(device_, block);
        runtime::release(device_, block);
    }
    uint64_t free_bytes() const noexcept override {
        return counts_on_host_ ? available_memory_bytes() : runtime::free_bytes(device_);
    }

  private:
    const int32_t device_;
    const bool is_on_host_;
    const bool counts_on_host_;
};

class CudaDevice : public backend::Backend {
  public:
    CudaDevice(int32_t index, std::string name, uint64_t budget_bytes);

    std::string_view name() const noexcept override { return name_; }
    std::string_view remark() const noexcept override { return remark_; }
    void on_warning(const std::function<void(std::string_view)>& say) const override { log_.say = say; }
    const backend::HostDevice* host() const noexcept override { return nullptr; }
    bool shares_host_memory() const noexcept override { return shares_host_memory_; }
    uint64_t available_bytes() const noexcept override { return memory_.state().free_bytes; }
    backend::MemoryState memory() const noexcept override { return memory_.state(); }
    std::unique_ptr<backend::Memory> allocate(uint64_t bytes, std::string_view what,
                                              backend::MemoryUse use) const override {
        check_alive();  // a lost device reports no memory; report the loss instead
        return memory_.allocate(bytes, what, use);
    }
    std::unique_ptr<backend::Memory> allocate_staging(uint64_t bytes, std::string_view what) const override;
    std::unique_ptr<backend::Pinned> pin(std::span<const std::byte> memory) const override;
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
    void upload(Scratch& scratch, std::byte* to, const std::byte* from_host, uint64_t bytes) const override;
    void download(Scratch& scratch, std::byte* to_host, const std::byte* from,
                  uint64_t bytes) const override {
        copy_later(own(scratch), Way::to_host, to_host, from, bytes);
    }
    void move(Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const override {
        copy_later(to_write(scratch), Way::on_device, to, from, bytes);
    }
    bool receive(Scratch& scratch, std::byte* to, const Backend& peer, Scratch& peer_scratch,
                 const std::byte* from, uint64_t bytes) const override;
    void synchronize(Scratch& scratch) const override;
    void wait(Scratch& scratch) const override;
    // Nothing is recorded.
    bool begin_step(Scratch&, const backend::StepBatch&) const override { return false; }
    bool end_step(Scratch&) const override { return true; }
    backend::StepCounts step_counts() const noexcept override {
        return {log_.n_computed, log_.n_recorded, log_.n_repeated, log_.n_failed, log_.why_failed};
    }

    // Returns null if host memory cannot be pinned.
    std::unique_ptr<backend::Exchange> make_exchange(const backend::StepLimits& limits,
                                                     int64_t n_turns) const override;
    void post(Scratch& scratch, backend::Exchange& exchange, int64_t turn, const float* h, const int32_t* ids,
              int64_t n, int64_t n_used, int64_t hidden) const override;
    void collect(Scratch& scratch, backend::Exchange& exchange, int64_t turn,
                 const backend::ExpertPlace* places, const int32_t* ids, int64_t n, int64_t n_used,
                 int64_t hidden, float* out) const override;

    std::unique_ptr<backend::GroupLink> connect(backend::GroupChannel& channel,
                                                std::string& remark) const override;

    // ---- for the groups of ranks ----

    int32_t index() const noexcept { return index_; }
    // Calls start(stream), which starts work that may write an operation's input and that waits for other ranks, after all
    // operations so far.
    template <typename Start>
    void start_in(Scratch& scratch, PeerWatch* watch, const Start& start) const {
        Stream& s = to_write(scratch);
        s.watch = watch;
        launch(s, [&] { start(s.stream); });
    }
    void copy_in(Scratch& scratch, float* to, const float* from, int64_t count) const {
        copy_later(own(scratch), Way::on_device, to, from, static_cast<uint64_t>(count) * sizeof(float));
    }

  protected:
    // Returns the paths that its streams take.
    virtual LaunchPaths paths() const noexcept { return {}; }
    // Copies what a turn posts.
    void copy_posted(Stream& stream, const HostExchange& with, const float* h, int64_t n_floats,
                     const int32_t* ids, int64_t n_ids) const;
    // Returns the nanoseconds for which a kernel waits for the host's answer for n rows.
    static int64_t patience(int64_t n) noexcept;
    // Returns whether sums over ranks have to be added in rank order.
    virtual bool adds_in_rank_order() const noexcept { return true; }
    // Launches the operations that have been called and not been launched yet.
    virtual void launch_all(Stream&) const {}
    // Takes the stream's work space.
    virtual void take_work(Stream& stream, Taker& taker) const;

    // Return the stream, in which all operations so far have been launched. to_write(): before memory is written that
    // may be an operation's input.
    Stream& own(Scratch& scratch) const {
        auto& stream = static_cast<Stream&>(scratch);
        launch_all(stream);
        return stream;
    }
    Stream& to_write(Scratch& scratch) const {
        Stream& stream = own(scratch);
        stream.list.known = {};
        return stream;
    }

    // Marks the device as lost.
    void note(const char* why) const noexcept {
        const char* nothing = nullptr;
        if (why != nullptr) why_lost_.compare_exchange_strong(nothing, why);
    }
    void note(Stream& stream, const char* why) const noexcept;
    // Throws if a synchronous call has failed.
    void check(const char* why) const {
        if (why == nullptr) return;
        if (runtime::is_lost(index_)) note(why);
        check_alive();
        fail_on_device(name_, Status::internal, "{}", why);
    }
    void check_alive() const {
        const char* why = why_lost_.load();
        if (why != nullptr) fail_on_device(name_, Status::device_lost, "{}", why);
    }
    bool is_working(const Stream& stream) const noexcept {
        return why_lost_ == nullptr && stream.error == nullptr;
    }
    template <typename Launch>
    void launch(Stream& stream, const Launch& call) const {
        if (!is_working(stream)) return;
        runtime::use(index_, stream.records.starts_early());
        call();
        note(stream, runtime::last_error());
        stream.records.count_launch();
    }
    void copy_later(Stream& stream, Way way, void* to, const void* from, uint64_t bytes) const {
        if (is_working(stream))
            note(stream, runtime::copy_later(index_, stream.stream, way, to, from, bytes));
    }
    template <typename T>
    void put(Stream& stream, T* to, std::span<const T> from) const {
        copy_later(stream, Way::to_device, to, from.data(), from.size_bytes());
    }
    const char* wait_for(Stream& stream) const;
    void put_batch(Stream& stream, std::span<const int32_t> ids, std::span<const backend::KvRow> rows,
                   int64_t n_head, int64_t n_head_kv) const;

    const int32_t index_;
    const std::string name_;
    std::string remark_;

  private:
    const bool shares_host_memory_;
    mutable Blocks blocks_;
    mutable backend::DeviceMemory memory_;
    mutable Blocks pinned_blocks_;
    mutable backend::DeviceMemory pinned_;
    mutable StepLog log_;
    mutable std::atomic<const char*> why_lost_ = nullptr;
};

}  // namespace minim::cuda
