// SPDX-License-Identifier: Apache-2.0
// A backend that passes every operation on, waits for it, and keeps the time each kind took.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "backend/device_memory.h"
#include "backend/group.h"

namespace minim::bench {

enum class Operation : uint8_t { embed, norm, linear, attend, route, experts, count_ };
inline constexpr size_t k_operation_count = static_cast<size_t>(Operation::count_);
inline constexpr const char* k_operation_names[k_operation_count] = {"embed",  "norm",  "linear",
                                                                     "attend", "route", "experts"};

// Allows one stream of steps at a time. A device no longer overlaps operations or keeps anything from one to the next,
// and a step is never recorded (begin_step): a record has no operations to time.
class TimedBackend : public backend::Backend {
  public:
    explicit TimedBackend(std::shared_ptr<const backend::Backend> inner) : inner_(std::move(inner)) {}

    std::array<double, k_operation_count>& seconds() const noexcept { return seconds_; }

    std::string_view name() const noexcept override { return inner_->name(); }
    std::string_view remark() const noexcept override { return inner_->remark(); }
    void on_warning(const std::function<void(std::string_view)>& say) const override {
        inner_->on_warning(say);
    }
    const backend::HostDevice* host() const noexcept override { return inner_->host(); }
    bool shares_host_memory() const noexcept override { return inner_->shares_host_memory(); }
    uint64_t available_bytes() const noexcept override { return inner_->available_bytes(); }
    std::unique_ptr<backend::Memory> allocate(uint64_t bytes, std::string_view what,
                                              backend::MemoryUse use) const override {
        return inner_->allocate(bytes, what, use);
    }
    backend::MemoryState memory() const noexcept override { return inner_->memory(); }
    std::unique_ptr<backend::Memory> allocate_staging(uint64_t bytes, std::string_view what) const override {
        return inner_->allocate_staging(bytes, what);
    }
    std::unique_ptr<backend::Pinned> pin(std::span<const std::byte> memory) const override {
        return inner_->pin(memory);
    }
    void write(std::byte* to, const std::byte* from_host, uint64_t bytes) const override {
        inner_->write(to, from_host, bytes);
    }
    void read(std::byte* to_host, const std::byte* from, uint64_t bytes) const override {
        inner_->read(to_host, from, bytes);
    }
    void copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept override {
        inner_->copy(to, from, bytes);
    }
    std::unique_ptr<backend::Scratch> reserve(const backend::StepLimits& limits) const override {
        return inner_->reserve(limits);
    }
    uint64_t step_bytes(const backend::StepLimits& limits) const override {
        return inner_->step_bytes(limits);
    }
    void upload(backend::Scratch& scratch, std::byte* to, const std::byte* from_host,
                uint64_t bytes) const override {
        inner_->upload(scratch, to, from_host, bytes);
    }
    void download(backend::Scratch& scratch, std::byte* to_host, const std::byte* from,
                  uint64_t bytes) const override {
        inner_->download(scratch, to_host, from, bytes);
    }
    void move(backend::Scratch& scratch, std::byte* to, const std::byte* from,
              uint64_t bytes) const override {
        inner_->move(scratch, to, from, bytes);
    }
    // A device knows its peers by their type.
    bool receive(backend::Scratch& scratch, std::byte* to, const Backend& peer,
                 backend::Scratch& peer_scratch, const std::byte* from, uint64_t bytes) const override {
        const auto* timed = dynamic_cast<const TimedBackend*>(&peer);
        return inner_->receive(scratch, to, timed != nullptr ? *timed->inner_ : peer, peer_scratch, from,
                               bytes);
    }
    void synchronize(backend::Scratch& scratch) const override { inner_->synchronize(scratch); }
    void wait(backend::Scratch& scratch) const override { inner_->wait(scratch); }
    bool begin_step(backend::Scratch&, const backend::StepBatch&) const override { return false; }
    bool end_step(backend::Scratch& /*scratch*/) const override { return true; }
    backend::StepCounts step_counts() const noexcept override { return inner_->step_counts(); }
    bool runs(Format format) const noexcept override { return inner_->runs(format); }
    bool activates(const backend::Activation& activation) const noexcept override {
        return inner_->activates(activation);
    }
    bool packs(Format format) const noexcept override { return inner_->packs(format); }
    void pack(std::span<std::byte* const> data, const backend::Matrix& shape) const override {
        inner_->pack(data, shape);
    }
    void adopt(backend::Scratch& scratch, std::span<std::byte* const> data,
               const backend::Matrix& shape) const override {
        inner_->adopt(scratch, data, shape);
    }

    void embed(backend::Scratch& scratch, const backend::Matrix& table, std::span<const int32_t> ids,
               float* x) const override {
        time(Operation::embed, scratch, [&] { inner_->embed(scratch, table, ids, x); });
    }
    void norm(backend::Scratch& scratch, const float* x, int64_t n, const backend::Vector& weight, float eps,
              float* h) const override {
        time(Operation::norm, scratch, [&] { inner_->norm(scratch, x, n, weight, eps, h); });
    }
    void linear(backend::Scratch& scratch, const float* h, int64_t n,
                std::span<const backend::LinearTask> tasks) const override {
        time(Operation::linear, scratch, [&] { inner_->linear(scratch, h, n, tasks); });
    }
    void head_squares(backend::Scratch& scratch, const backend::AttendArgs& args,
                      float* squares) const override {
        time(Operation::attend, scratch, [&] { inner_->head_squares(scratch, args, squares); });
    }
    void attend(backend::Scratch& scratch, const backend::AttendArgs& args) const override {
        time(Operation::attend, scratch, [&] { inner_->attend(scratch, args); });
    }
    void route(backend::Scratch& scratch, const float* h, int64_t n, const backend::Matrix& router,
               const backend::Vector& bias, int64_t n_used, int32_t* ids, float* gates) const override {
        time(Operation::route, scratch,
             [&] { inner_->route(scratch, h, n, router, bias, n_used, ids, gates); });
    }
    void scale(backend::Scratch& scratch, float* x, int64_t count, float factor) const override {
        inner_->scale(scratch, x, count, factor);
    }
    void experts(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const backend::ExpertWeights& weights, float* y, bool add) const override {
        time(Operation::experts, scratch,
             [&] { inner_->experts(scratch, h, n, ids, gates, n_used, weights, y, add); });
    }
    void expert_slots(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                      int64_t n_used, const backend::ExpertWeights& weights, float* out) const override {
        time(Operation::experts, scratch,
             [&] { inner_->expert_slots(scratch, h, n, ids, n_used, weights, out); });
    }
    bool observes_slots() const noexcept override { return inner_->observes_slots(); }
    void observe_slots(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                       int64_t n_used, const backend::ExpertWeights& weights, float* middle,
                       float* out) const override {
        time(Operation::experts, scratch,
             [&] { inner_->observe_slots(scratch, h, n, ids, n_used, weights, middle, out); });
    }
    void add_slots(backend::Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                   int64_t hidden, float* y) const override {
        time(Operation::experts, scratch,
             [&] { inner_->add_slots(scratch, out, gates, n, n_used, hidden, y); });
    }
    std::unique_ptr<backend::GroupLink> connect(backend::GroupChannel& channel,
                                                std::string& remark) const override {
        return inner_->connect(channel, remark);
    }
    std::unique_ptr<backend::Exchange> make_exchange(const backend::StepLimits& limits,
                                                     int64_t n_turns) const override {
        return inner_->make_exchange(limits, n_turns);
    }
    void post(backend::Scratch& scratch, backend::Exchange& exchange, int64_t turn, const float* h,
              const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden) const override {
        inner_->post(scratch, exchange, turn, h, ids, n, n_used, hidden);
    }
    void collect(backend::Scratch& scratch, backend::Exchange& exchange, int64_t turn,
                 const backend::ExpertPlace* places, const int32_t* ids, int64_t n, int64_t n_used,
                 int64_t hidden, float* out) const override {
        inner_->collect(scratch, exchange, turn, places, ids, n, n_used, hidden, out);
    }
    bool makes_top_k() const noexcept override { return inner_->makes_top_k(); }
    void top_k(backend::Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
               const backend::TopKTask& task) const override {
        inner_->top_k(scratch, logits, n, n_vocab, task);
    }

  private:
    template <typename Run>
    void time(Operation operation, backend::Scratch& scratch, const Run& run) const {
        const auto start = std::chrono::steady_clock::now();
        run();
        inner_->synchronize(scratch);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        seconds_[static_cast<size_t>(operation)] += taken.count();
    }

    const std::shared_ptr<const backend::Backend> inner_;
    mutable std::array<double, k_operation_count> seconds_{};
};

}  // namespace minim::bench
