// A backend that passes every operation on and keeps the time each kind took.
#pragma once

#include <array>
#include <chrono>
#include <memory>

#include "backend/backend.h"

namespace minim::bench {

enum class Operation : uint8_t { embed, norm, linear, attend, route, experts, count_ };
inline constexpr size_t k_operation_count = static_cast<size_t>(Operation::count_);
inline constexpr const char* k_operation_names[k_operation_count] = {"embed",  "norm",  "linear",
                                                                     "attend", "route", "experts"};

// One stream of steps at a time.
class TimedBackend : public backend::Backend {
  public:
    explicit TimedBackend(std::unique_ptr<backend::Backend> inner) : inner_(std::move(inner)) {}

    std::array<double, k_operation_count>& seconds() const noexcept { return seconds_; }

    std::string_view name() const noexcept override { return inner_->name(); }
    std::unique_ptr<backend::Scratch> reserve(const backend::StepLimits& limits) const override {
        return inner_->reserve(limits);
    }
    bool packs(Format format) const noexcept override { return inner_->packs(format); }
    void pack(std::span<std::byte* const> data, const backend::Matrix& shape) const override {
        inner_->pack(data, shape);
    }
    void embed(backend::Scratch& scratch, const backend::Matrix& table, std::span<const int32_t> ids,
               float* x) const override {
        time(Operation::embed, [&] { inner_->embed(scratch, table, ids, x); });
    }
    void norm(backend::Scratch& scratch, const float* x, int64_t n, const backend::Vector& weight, float eps,
              float* h) const override {
        time(Operation::norm, [&] { inner_->norm(scratch, x, n, weight, eps, h); });
    }
    void linear(backend::Scratch& scratch, const float* h, int64_t n,
                std::span<const backend::LinearTask> tasks) const override {
        time(Operation::linear, [&] { inner_->linear(scratch, h, n, tasks); });
    }
    void attend(backend::Scratch& scratch, const backend::AttendArgs& args) const override {
        time(Operation::attend, [&] { inner_->attend(scratch, args); });
    }
    void route(backend::Scratch& scratch, const float* h, int64_t n, const backend::Matrix& router,
               const backend::Vector& bias, int64_t n_used, int32_t* ids, float* gates) const override {
        time(Operation::route, [&] { inner_->route(scratch, h, n, router, bias, n_used, ids, gates); });
    }
    void experts(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const backend::ExpertWeights& weights, float* y) const override {
        time(Operation::experts, [&] { inner_->experts(scratch, h, n, ids, gates, n_used, weights, y); });
    }

  private:
    template <typename Run>
    void time(Operation operation, const Run& run) const {
        const auto start = std::chrono::steady_clock::now();
        run();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        seconds_[static_cast<size_t>(operation)] += taken.count();
    }

    std::unique_ptr<backend::Backend> inner_;
    mutable std::array<double, k_operation_count> seconds_{};
};

}  // namespace minim::bench
