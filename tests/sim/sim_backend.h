// SPDX-License-Identifier: Apache-2.0
// A simulated accelerator, "sim:0", "sim:1" ...: memory of its own that the host cannot touch, streams that work
// after the call has returned, a limited capacity and bandwidth, and failures on demand. It computes with the CPU
// backend, so its results have the same bits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/device_memory.h"
#include "backend/group.h"
#include "base/thread_pool.h"
#include "sim/sim_memory.h"

namespace minim::sim {

struct Options {
    uint64_t memory_bytes = uint64_t{1} << 30;
    uint64_t budget_bytes = backend::k_no_budget;
    double bytes_per_second = 0.0;  // of transfers; 0: without a limit
    double exchange_seconds = 0.0;  // added to each post() and collect()
    double experts_seconds = 0.0;   // added to the experts of a layer
    bool refuses_to_pin = false;
    bool shares_host_memory = false;
    bool reaches_peers = true;             // copies from other simulated devices without the host
    bool makes_top_k = true;               // of rows of logits
    bool observes_slots = true;            // inputs of experts
    bool clamps = true;                    // has the clamped activation
    bool computes_wrong_products = false;  // linear(), as a kernel with a fault does
    Format without = Format::count_;       // a format it has no kernels for
    // The n-th of its kind fails, counted from 1; 0: none does.
    int64_t failing_allocation = 0;
    int64_t failing_transfer = 0;
    int64_t failing_operation = 0;
    int64_t failing_exchange = 0;  // post() and collect()
};

// What a device has done so far.
struct Counts {
    std::atomic<int64_t> allocations = 0;
    std::atomic<int64_t> transfers = 0;
    std::atomic<int64_t> operations = 0;
    std::atomic<int64_t> exchanges = 0;
    std::atomic<uint64_t> bytes_from_host = 0;
    std::atomic<uint64_t> bytes_to_host = 0;
    std::atomic<uint64_t> bytes_from_peers = 0;
    std::atomic<int64_t> top_k_lists = 0;  // rows
};

class SimBackend : public backend::Backend {
  public:
    SimBackend(int32_t index, const Options& options);

    // Returns the bytes of blocks in use. Blocks that are kept for later use are given back first.
    uint64_t used_bytes() const noexcept {
        memory_.give_back_kept();
        return space_.used();
    }
    uint64_t most_used_bytes() const noexcept { return space_.most_used(); }  // so far, kept ones included
    int64_t n_blocks_taken() const noexcept { return space_.n_taken(); }  // so far, not out of the kept ones
    const Counts& counts() const noexcept { return counts_; }
    uint64_t pinned_bytes() const noexcept { return pinned_bytes_; }

    std::string_view name() const noexcept override { return name_; }
    std::string_view remark() const noexcept override { return {}; }
    void on_warning(const std::function<void(std::string_view)>& /*say*/) const override {}
    const backend::HostDevice* host() const noexcept override { return nullptr; }
    bool shares_host_memory() const noexcept override { return options_.shares_host_memory; }
    uint64_t available_bytes() const noexcept override { return memory_.state().free_bytes; }
    // Allocates memory whose bits are all ones, which are NaN as floats.
    std::unique_ptr<backend::Memory> allocate(
        uint64_t bytes, std::string_view what,
        backend::MemoryUse use = backend::MemoryUse::work) const override;
    backend::MemoryState memory() const noexcept override { return memory_.state(); }
    std::unique_ptr<backend::Memory> allocate_staging(uint64_t bytes, std::string_view what) const override {
        return backend::allocate_host_memory(bytes, what);
    }
    std::unique_ptr<backend::Pinned> pin(std::span<const std::byte> memory) const override;
    void write(std::byte* to, const std::byte* from_host, uint64_t bytes) const override;
    void read(std::byte* to_host, const std::byte* from, uint64_t bytes) const override;
    void copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept override;

    std::unique_ptr<backend::Scratch> reserve(const backend::StepLimits& limits) const override;
    // The work space of its CPU backend is not in its memory.
    uint64_t step_bytes(const backend::StepLimits& /*limits*/) const override { return 0; }
    void upload(backend::Scratch& scratch, std::byte* to, const std::byte* from_host,
                uint64_t bytes) const override;
    void download(backend::Scratch& scratch, std::byte* to_host, const std::byte* from,
                  uint64_t bytes) const override;
    void move(backend::Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const override;
    bool receive(backend::Scratch& scratch, std::byte* to, const Backend& peer,
                 backend::Scratch& peer_scratch, const std::byte* from, uint64_t bytes) const override;
    void synchronize(backend::Scratch& scratch) const override;
    void wait(backend::Scratch& scratch) const override { synchronize(scratch); }
    bool begin_step(backend::Scratch&, const backend::StepBatch&) const override { return false; }
    bool end_step(backend::Scratch& /*scratch*/) const override { return true; }
    backend::StepCounts step_counts() const noexcept override { return {}; }

    bool runs(Format format) const noexcept override { return format != options_.without; }
    bool activates(const backend::Activation& activation) const noexcept override {
        return options_.clamps || activation.limit == 0.0F;
    }
    bool packs(Format format) const noexcept override;
    void pack(std::span<std::byte* const> data, const backend::Matrix& shape) const override;
    // Its matrices are those of its CPU backend.
    void adopt(backend::Scratch& /*scratch*/, std::span<std::byte* const> /*data*/,
               const backend::Matrix& /*shape*/) const override {}

    void embed(backend::Scratch& scratch, const backend::Matrix& table, std::span<const int32_t> ids,
               float* x) const override;
    void norm(backend::Scratch& scratch, const float* x, int64_t n, const backend::Vector& weight, float eps,
              float* h) const override;
    void linear(backend::Scratch& scratch, const float* h, int64_t n,
                std::span<const backend::LinearTask> tasks) const override;
    void head_squares(backend::Scratch& scratch, const backend::AttendArgs& args,
                      float* squares) const override;
    void attend(backend::Scratch& scratch, const backend::AttendArgs& args) const override;
    void route(backend::Scratch& scratch, const float* h, int64_t n, const backend::Matrix& router,
               const backend::Vector& bias, int64_t n_used, int32_t* ids, float* gates) const override;
    void scale(backend::Scratch& scratch, float* x, int64_t count, float factor) const override;
    void experts(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const backend::ExpertWeights& weights, float* y, bool add) const override;
    void expert_slots(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                      int64_t n_used, const backend::ExpertWeights& weights, float* out) const override;
    bool observes_slots() const noexcept override { return options_.observes_slots; }
    void observe_slots(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                       int64_t n_used, const backend::ExpertWeights& weights, float* middle,
                       float* out) const override;
    void add_slots(backend::Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                   int64_t hidden, float* y) const override;
    std::unique_ptr<backend::GroupLink> connect(backend::GroupChannel&, std::string&) const override {
        return nullptr;
    }
    std::unique_ptr<backend::Exchange> make_exchange(const backend::StepLimits& limits,
                                                     int64_t n_turns) const override;
    void post(backend::Scratch& scratch, backend::Exchange& exchange, int64_t turn, const float* h,
              const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden) const override;
    void collect(backend::Scratch& scratch, backend::Exchange& exchange, int64_t turn,
                 const backend::ExpertPlace* places, const int32_t* ids, int64_t n, int64_t n_used,
                 int64_t hidden, float* out) const override;
    bool makes_top_k() const noexcept override { return options_.makes_top_k; }
    void top_k(backend::Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
               const backend::TopKTask& task) const override;

  private:
    // Returns where the bytes of something in this device's memory are.
    template <typename T>
    T* here(T* address) const {
        if (address == nullptr) return nullptr;
        return reinterpret_cast<T*>(space_.bytes_at(reinterpret_cast<const std::byte*>(address)));
    }
    backend::Matrix here(backend::Matrix matrix) const;
    backend::Vector here(backend::Vector vector) const;
    backend::ExpertStack here(backend::ExpertStack stack) const;
    backend::ExpertWeights experts_here(const backend::ExpertWeights& weights) const;
    bool exchange(uint64_t bytes) const;

    template <typename Task>
    void enqueue(backend::Scratch& scratch, Task task) const;
    bool transfer(uint64_t bytes) const;
    void check_alive() const;

    const std::string name_;
    const Options options_;
    mutable AddressSpace space_;
    mutable backend::DeviceMemory memory_;
    const ThreadPool pool_;
    const std::unique_ptr<const Backend> cpu_;
    mutable Counts counts_;
    mutable std::atomic<uint64_t> pinned_bytes_ = 0;  // of the host
    mutable std::atomic<const char*> why_lost_ = nullptr;
};

}  // namespace minim::sim
