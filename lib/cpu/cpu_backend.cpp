// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "backend/host_device.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "cpu/kernel_tables.h"
#include "cpu/matrix_tile.h"
#include "cpu/operations.h"
#include "panel/panel.h"

namespace minim::cpu {

void embed(const Machine& machine, const backend::Matrix& table, std::span<const int32_t> ids, float* x) {
    const FormatTraits& format = traits(table.format);
    machine.pool.run(static_cast<int64_t>(ids.size()), [&](int64_t i, int32_t) {
        float* row = x + i * table.cols;
        format.decode_row(table.data + ids[i] * table.row_bytes, table.cols, row);
        if (table.scale == 1.0F) return;
        for (int64_t c = 0; c < table.cols; ++c) row[c] *= table.scale;
    });
}

void norm(const Machine& machine, const float* x, int64_t n, const backend::Vector& weight, float eps,
          float* h) {
    machine.pool.run(n, [&](int64_t i, int32_t) {
        machine.kernels.rms_norm(x + i * weight.size, weight.size, weight.data, eps, h + i * weight.size);
    });
}

namespace {

// Returns whether products with one token need software prefetch (Machine::needs_requests_of_one). Measured with AVX-512 on
// Emerald Rapids, two threads and one token, as a fraction of the read bandwidth: Q4_0, MXFP4, NVFP4 and INT4 reach 0.53 to
// 0.65 without software prefetch and 0.75 to 0.83 with it; IQ4_XS, Q4_K, Q5_K, Q6_K and Q8_0 gain 0 to 0.08; Q2_K and Q3_K lose
// 0.13. With two tokens, the hardware prefetcher alone is faster.
bool are_for_intel_avx512(const KernelTable& kernels) noexcept {
#if defined(__x86_64__)
    return __builtin_cpu_is("intel") && std::string_view(kernels.name).starts_with("avx512");
#else
    static_cast<void>(kernels);
    return false;
#endif
}

Machine machine_of(const ThreadPool& pool, const KernelTable& kernels, Prefetch prefetch) {
    if (prefetch != Prefetch::as_measured)
        return {pool, kernels, prefetch == Prefetch::on, prefetch == Prefetch::on};
    const bool needs_requests = !prefetches_unrolled_loads();
    return {pool, kernels, needs_requests, are_for_intel_avx512(kernels)};
}

class CpuBackend : public backend::HostDevice {
  public:
    CpuBackend(const ThreadPool& pool, const ThreadPool& decode_pool, const KernelTable& kernels,
               HostMemory memory, Prefetch prefetch)
        : machine_(machine_of(pool, kernels, prefetch)),
          decode_machine_(machine_of(decode_pool, kernels, prefetch)),
          memory_(std::move(memory)) {}

    std::string_view name() const noexcept override { return "cpu"; }

    const HostMemory& host_memory() const noexcept override { return memory_; }

    std::unique_ptr<backend::Scratch> reserve(const backend::StepLimits& limits) const override {
        return std::make_unique<CpuScratch>(limits, most_threads(), *this);
    }
    uint64_t step_bytes(const backend::StepLimits& limits) const override {
        return CpuScratch::bytes_for(limits, most_threads());
    }

    bool packs(Format format) const noexcept override {
        return activation_for(machine_.kernels, format) == Activation::q8;
    }

    int64_t pack_rows_together() const noexcept override { return panel::k_panel_rows; }

    void pack_rows(const backend::Matrix& shape, const std::byte* rows,
                   std::byte* to) const noexcept override {
        const int64_t panel_bytes = panel::k_panel_rows * shape.row_bytes;
        const int64_t n_panels = shape.rows / panel::k_panel_rows;
        for (int64_t i = 0; i < n_panels; ++i) {
            panel::pack_panel(shape.format, rows + i * panel_bytes, shape.row_bytes, panel::k_panel_rows,
                              shape.cols, to + i * panel_bytes);
        }
        const int64_t rest = (shape.rows - n_panels * panel::k_panel_rows) * shape.row_bytes;
        std::memcpy(to + n_panels * panel_bytes, rows + n_panels * panel_bytes, rest);
    }

    int32_t n_threads() const noexcept override { return machine_.pool.n_threads(); }

    void run_tasks(int64_t n_tasks, const std::function<void(int64_t, int32_t)>& task) const override {
        machine_.pool.run(n_tasks, [&](int64_t i, int32_t thread) { task(i, thread); });
    }

    const ThreadPool* threads_for(int64_t n_rows) const noexcept override {
        return &machine_for(n_rows).pool;
    }

    void embed(backend::Scratch&, const backend::Matrix& table, std::span<const int32_t> ids,
               float* x) const override {
        cpu::embed(machine_for(static_cast<int64_t>(ids.size())), table, ids, x);
    }

    void norm(backend::Scratch&, const float* x, int64_t n, const backend::Vector& weight, float eps,
              float* h) const override {
        cpu::norm(machine_for(n), x, n, weight, eps, h);
    }

    void linear(backend::Scratch& scratch, const float* h, int64_t n,
                std::span<const backend::LinearTask> tasks) const override {
        cpu::linear(machine_for(n), own(scratch), h, n, tasks);
    }

    void head_squares(backend::Scratch&, const backend::AttendArgs& args, float* squares) const override {
        cpu::head_squares(machine_for(args.n), args, squares);
    }

    void attend(backend::Scratch& scratch, const backend::AttendArgs& args) const override {
        cpu::attend(machine_for(args.n), own(scratch), args);
    }

    void route(backend::Scratch& scratch, const float* h, int64_t n, const backend::Matrix& router,
               const backend::Vector& bias, int64_t n_used, int32_t* ids, float* gates) const override {
        cpu::route(machine_for(n), own(scratch), h, n, router, bias, n_used, ids, gates);
    }

    void experts(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const backend::ExpertWeights& weights, float* y, bool add) const override {
        cpu::experts(machine_for(n), own(scratch), h, n, ids, gates, n_used, weights, y, add);
    }

    void expert_slots(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                      int64_t n_used, const backend::ExpertWeights& weights, float* out) const override {
        cpu::expert_slots(machine_for(n), own(scratch), h, n, ids, n_used, weights, out);
    }

    bool observes_slots() const noexcept override { return true; }

    void observe_slots(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                       int64_t n_used, const backend::ExpertWeights& weights, float* middle,
                       float* out) const override {
        cpu::observe_slots(machine_for(n), own(scratch), h, n, ids, n_used, weights, middle, out);
    }

    void add_slots(backend::Scratch&, const float* out, const float* gates, int64_t n, int64_t n_used,
                   int64_t hidden, float* y) const override {
        cpu::add_slots(machine_for(n), out, gates, n, n_used, hidden, y);
    }

  private:
    static CpuScratch& own(backend::Scratch& scratch) { return static_cast<CpuScratch&>(scratch); }

    int32_t most_threads() const noexcept {
        return std::max(machine_.pool.n_threads(), decode_machine_.pool.n_threads());
    }

    const Machine& machine_for(int64_t n_rows) const noexcept {
        return n_rows == 1 ? decode_machine_ : machine_;
    }

    Machine machine_;         // for several rows: bound by arithmetic
    Machine decode_machine_;  // for one row: bound by memory, so fewer threads may suffice
    HostMemory memory_;
};

}  // namespace

std::unique_ptr<backend::HostDevice> make_cpu_backend(const ThreadPool& pool, const ThreadPool& decode_pool,
                                                      CpuLevel level, HostMemory memory, Prefetch prefetch) {
    if (!has_cpu_level(level)) {
        fail(Status::unsupported, "this CPU has no {} (its best level is {})", to_string(level),
             to_string(detected_cpu_level()));
    }
    return std::make_unique<CpuBackend>(pool, decode_pool, kernels_for(level), std::move(memory), prefetch);
}

std::unique_ptr<backend::HostDevice> make_cpu_backend(const ThreadPool& pool, CpuLevel level) {
    return make_cpu_backend(pool, pool, level);
}

}  // namespace minim::cpu
