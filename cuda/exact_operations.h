// SPDX-License-Identifier: Apache-2.0
// The operations of a GPU in plain float arithmetic (exact/), one after the other, for weights of every format.
#pragma once

#include <string>

#include "cuda/cuda_device.h"

namespace minim::cuda {

class ExactOperations : public CudaDevice {
  public:
    using CudaDevice::CudaDevice;

    bool runs(Format format) const noexcept override;
    bool packs(Format) const noexcept override { return false; }
    void pack(std::span<std::byte* const>, const backend::Matrix&) const override {}
    void adopt(backend::Scratch&, std::span<std::byte* const>, const backend::Matrix&) const override {}

    void embed(backend::Scratch& scratch, const backend::Matrix& table, std::span<const int32_t> ids,
               float* x) const override;
    void norm(backend::Scratch& scratch, const float* x, int64_t n, const backend::Vector& weight, float eps,
              float* h) const override;
    void linear(backend::Scratch& scratch, const float* h, int64_t n,
                std::span<const backend::LinearTask> tasks) const override;
    void attend(backend::Scratch& scratch, const backend::AttendArgs& args) const override;
    void route(backend::Scratch& scratch, const float* h, int64_t n, const backend::Matrix& router,
               const backend::Vector& bias, int64_t n_used, int32_t* ids, float* gates) const override;
    void scale(backend::Scratch& scratch, float* x, int64_t count, float factor) const override;
    void experts(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const backend::ExpertWeights& weights, float* y) const override;
    void expert_slots(backend::Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                      int64_t n_used, const backend::ExpertWeights& weights, float* out) const override;
    void add_slots(backend::Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                   int64_t hidden, float* y) const override;
    bool makes_shortlists() const noexcept override { return true; }
    void shortlist(backend::Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
                   const backend::ShortlistTask& task) const override;

  protected:
    // Returns the cache for attention. Brings the batch and the frequencies to the device, if it does not have them.
    exact::Cache put_cache(Stream& stream, const backend::AttendArgs& args) const;
    // Returns whether the layer has a table of its experts. Without a table the kernels cannot find them: notes an
    // error.
    bool has_table(Stream& stream, const backend::ExpertWeights& weights) const noexcept;
};

}  // namespace minim::cuda
