// SPDX-License-Identifier: Apache-2.0
// Layers whose experts lie partly on their device and partly with the host: both compute at the same time, and the device adds up.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "backend/backend.h"
#include "base/cancel.h"
#include "runtime/expert_pool.h"

namespace minim::runtime {

// The state of a stream of steps for the shared layers of a stage.
class SharedExperts {
  public:
    // `host` and its stream compute the experts that are not on `device`. Throws out_of_memory or out_of_device_memory, and
    // unsupported if the device exchanges nothing with the host.
    SharedExperts(const backend::Backend& device, const backend::Backend& host,
                  backend::Scratch& host_scratch, const backend::StepLimits& limits, int64_t n_layer);
    // Returns the bytes that it allocates on the device.
    static uint64_t device_bytes(const backend::StepLimits& limits);

    // Rows of the device: their choices, inputs, and the residual stream that the outputs are added to.
    struct Rows {
        int64_t n;
        const float* h;
        const int32_t* ids;
        const float* gates;
        float* x;
    };
    // x += experts of h, as part of the device's stream.
    void add(backend::Scratch& scratch, const ExpertPool& pool, int64_t layer, const Rows& rows);

    // Computes the host's experts of layers first .. last - 1 as the device comes to them, on the calling thread. rows_of(layer)
    // says how many rows there are; 0 ends it. Returns once all are answered, or cancelled. Throws device_lost.
    void answer(ExpertPool& pool, int64_t first, int64_t last, const std::function<int64_t(int64_t)>& rows_of,
                const CancelToken* cancel);

    void begin() { exchange_->begin(); }
    void give_up() noexcept { exchange_->give_up(); }

  private:
    const backend::Backend& device_;
    const backend::Backend& host_;
    backend::Scratch& host_scratch_;
    const int64_t hidden_;
    const int64_t n_used_;
    std::unique_ptr<backend::Memory> memory_;
    float* out_;  // of the device: [n_rows * n_used, hidden]
    std::unique_ptr<backend::Exchange> exchange_;
};

// answer() on a thread of its own, while the caller hands the device its work.
class Answering {
  public:
    // Throws out_of_memory.
    Answering(SharedExperts& shared, std::function<void()> answer);
    // Ends the answers if finish() was not called.
    ~Answering();
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;
    // Returns once all is answered. Throws what answer() has thrown.
    void finish();

  private:
    SharedExperts& shared_;
    std::exception_ptr error_;
    std::thread thread_;
};

}  // namespace minim::runtime
