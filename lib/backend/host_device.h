// SPDX-License-Identifier: Apache-2.0
// A backend that computes on host memory and has completed its work when a call returns: memory is the process's,
// transfers are copies, and nothing is recorded. Also what loading needs of the host's processor: threads, packing, NUMA
// nodes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/group.h"
#include "base/host_memory.h"

namespace minim {
class ThreadPool;
}

namespace minim::backend {

class HostDevice : public Backend {
  public:
    // ---- what the host's processor does beside operations ----

    // Returns the memory that allocate() uses. If it has several nodes, linear() and experts() accept matrices whose
    // rows are split over them.
    virtual const HostMemory& host_memory() const noexcept = 0;

    // Returns the number of rows that are packed together: a matrix can be packed in runs of that many rows.
    virtual int64_t pack_rows_together() const noexcept { return 1; }

    // Packs shape.rows rows into `to`, on the calling thread. The first row is a multiple of pack_rows_together(); `to` must
    // not overlap the rows.
    virtual void pack_rows(const Matrix& shape, const std::byte* rows, std::byte* to) const noexcept;

    // Calls task(i, thread) once for each i in [0, n_tasks), on all n_threads() threads; returns when all are done.
    // `task` must not throw.
    virtual int32_t n_threads() const noexcept { return 1; }
    virtual void run_tasks(int64_t n_tasks,
                           const std::function<void(int64_t index, int32_t thread)>& task) const;

    // Returns the pool whose threads compute operations on n_rows rows; null: no thread pool.
    virtual const ThreadPool* threads_for(int64_t /*n_rows*/) const noexcept { return nullptr; }

    // ---- Device ----

    std::string_view remark() const noexcept override { return {}; }
    void on_warning(const std::function<void(std::string_view)>& /*say*/) const override {}
    const HostDevice* host() const noexcept override { return this; }
    bool shares_host_memory() const noexcept override { return false; }  // it has none of its own
    uint64_t available_bytes() const noexcept override;
    std::unique_ptr<Memory> allocate(uint64_t bytes, std::string_view what,
                                     MemoryUse use = MemoryUse::work) const override;
    MemoryState memory() const noexcept override;
    std::unique_ptr<Memory> allocate_staging(uint64_t bytes, std::string_view what) const override {
        return allocate(bytes, what);
    }
    std::unique_ptr<Pinned> pin(std::span<const std::byte> /*memory*/) const override { return nullptr; }
    void write(std::byte* to, const std::byte* from_host, uint64_t bytes) const override;
    void read(std::byte* to_host, const std::byte* from, uint64_t bytes) const override;
    void copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept override;
    void upload(Scratch& scratch, std::byte* to, const std::byte* from_host, uint64_t bytes) const override;
    void download(Scratch& scratch, std::byte* to_host, const std::byte* from, uint64_t bytes) const override;
    void move(Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const override;
    bool receive(Scratch&, std::byte*, const Backend&, Scratch&, const std::byte*, uint64_t) const override {
        return false;
    }
    void synchronize(Scratch& /*scratch*/) const override {}
    void wait(Scratch& /*scratch*/) const override {}
    bool begin_step(Scratch&, const StepBatch&) const override { return false; }
    bool end_step(Scratch& /*scratch*/) const override { return true; }
    StepCounts step_counts() const noexcept override { return {}; }
    std::unique_ptr<GroupLink> connect(GroupChannel&, std::string&) const override { return nullptr; }

    // ---- Operations that are the same for all backends on host memory ----

    bool runs(Format /*format*/) const noexcept override { return true; }
    bool activates(const Activation& /*activation*/) const noexcept override { return true; }
    bool packs(Format /*format*/) const noexcept override { return false; }
    void pack(std::span<std::byte* const> data, const Matrix& shape) const override;
    void adopt(Scratch& /*scratch*/, std::span<std::byte* const> /*data*/,
               const Matrix& /*shape*/) const override {}
    void scale(Scratch& scratch, float* x, int64_t count, float factor) const override;
    std::unique_ptr<Exchange> make_exchange(const StepLimits&, int64_t) const override { return nullptr; }
    void post(Scratch& scratch, Exchange& exchange, int64_t turn, const float* h, const int32_t* ids,
              int64_t n, int64_t n_used, int64_t hidden) const override;
    void collect(Scratch& scratch, Exchange& exchange, int64_t turn, const ExpertPlace* places,
                 const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden, float* out) const override;
    bool makes_top_k() const noexcept override { return false; }
    void top_k(Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
               const TopKTask& task) const override;

  private:
    mutable std::array<std::atomic<uint64_t>, k_memory_uses> host_bytes_ = {};  // allocated bytes, by use
};

}  // namespace minim::backend
