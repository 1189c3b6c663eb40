// SPDX-License-Identifier: Apache-2.0
// Layers whose experts lie partly on their device and partly with the host: both compute at the same time, and the
// device adds up the outputs.
//
// In a step of many rows the answering thread also chooses experts to copy to the device for this layer (StreamRule).
// It hands the list to the thread that drives the device, and computes the remaining experts while that thread copies:
//
//     driving thread                        answering thread
//     post, cached experts                  wait(turn), choose
//     copy chunk, compute chunk, ...        experts that are neither there nor copied
//     collect, add                          answer(turn)
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/cancel.h"
#include "runtime/expert_pool.h"
#include "runtime/placement.h"

namespace minim::runtime {

// The state of a stream of steps for the shared layers of a stage.
class SharedExperts {
  public:
    // `host` and its stream compute the experts that are not on the device of the stage. Throws out_of_memory or
    // out_of_device_memory, and unsupported if the device exchanges nothing with the host.
    SharedExperts(const Stage& stage, const backend::Backend& host, backend::Scratch& host_scratch,
                  const backend::StepLimits& limits);
    // Returns the bytes that it allocates on the device.
    static uint64_t device_bytes(const Stage& stage, const backend::StepLimits& limits);

    // Rows of the device: their choices, inputs, and the residual stream that the outputs are added to.
    struct Rows {
        int64_t n;
        const float* h;
        const int32_t* ids;
        const float* gates;
        float* x;
    };
    // x += experts of h, as part of the device's stream. Blocks while experts are copied. Throws device_lost, cancelled, and what
    // reading weights throws.
    void add(backend::Scratch& scratch, ExpertPool& pool, int64_t layer, const Rows& rows,
             const CancelToken* cancel);

    // Computes the host's experts of the pooled layers among first .. last - 1 as the device comes to them, on the
    // calling thread.
    // rows_of(layer) returns the number of rows; 0 ends the call. Returns once all layers are answered, or the step is
    // given up. Throws cancelled and device_lost.
    void answer(ExpertPool& pool, int64_t first, int64_t last, const std::function<int64_t(int64_t)>& rows_of,
                const CancelToken* cancel);

    // Begins a step. may_copy: false for a step that the device may record.
    void begin(bool may_copy);
    void give_up() noexcept;

  private:
    bool copies(const ExpertPool& pool, int64_t n) const noexcept;
    const backend::ExpertWeights& choose(ExpertPool& pool, int64_t layer, std::span<const int32_t> ids);
    bool await_choice(int64_t layer);
    void add_copied(backend::Scratch& scratch, ExpertPool& pool, int64_t layer, const Rows& rows,
                    const CancelToken* cancel);
    const backend::ExpertPlace* upload_present(backend::Scratch& scratch, const ExpertPool& pool,
                                               int64_t layer);

    const backend::Backend& device_;
    const backend::Backend& host_;
    backend::Scratch& host_scratch_;
    const int64_t hidden_;
    const int64_t n_used_;
    std::unique_ptr<backend::Memory> memory_;
    float* out_;  // of the device: [n_rows * n_used, hidden]
    std::unique_ptr<backend::Exchange> exchange_;
    std::vector<int32_t> ids_;  // of the answering thread: the choices of its turn, [n_rows * n_used]

    // For steps that copy experts; empty if no step may:
    std::unique_ptr<backend::Memory> present_;          // on the device: table of cached and copied experts
    std::unique_ptr<backend::Memory> present_on_host_;  // the same, on its way
    std::vector<int32_t> n_slots_;                      // [n_expert]: slots of each expert that is not cached
    std::vector<uint8_t> is_on_device_;                 // [n_expert]: 1 for what the host does not compute
    backend::ExpertWeights on_host_;                    // of the layer, with `is_on_device_`
    bool may_copy_ = false;                             // the running step

    std::mutex mutex_;
    std::condition_variable chosen_;
    int64_t chosen_layer_ = -1;     // the layer of `to_copy_`
    std::vector<int32_t> to_copy_;  // written by the answering thread, until it sets chosen_layer_
    bool is_given_up_ = false;
};

// Runs answer() on a thread of its own, while the caller hands the device its work.
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
