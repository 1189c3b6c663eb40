// SPDX-License-Identifier: Apache-2.0
#include "runtime/shared_experts.h"

#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/own_thread.h"

namespace minim::runtime {

uint64_t SharedExperts::device_bytes(const backend::StepLimits& limits) {
    uint64_t bytes = sizeof(float);
    for (const int64_t factor : {limits.n_rows, limits.n_expert_used, limits.hidden})
        if (!checked_mul(bytes, static_cast<uint64_t>(factor), bytes))
            fail_out_of_memory("outputs of experts", UINT64_MAX, 0);
    return bytes;
}

SharedExperts::SharedExperts(const backend::Backend& device, const backend::Backend& host,
                             backend::Scratch& host_scratch, const backend::StepLimits& limits,
                             int64_t n_layer)
    : device_(device),
      host_(host),
      host_scratch_(host_scratch),
      hidden_(limits.hidden),
      n_used_(limits.n_expert_used),
      memory_(device.allocate(device_bytes(limits), "outputs of experts")),
      out_(reinterpret_cast<float*>(memory_->data())),
      exchange_(device.make_exchange(limits, n_layer)) {
    if (exchange_ == nullptr)
        fail_on_device(device.name(), Status::unsupported, "shares no layer's experts with the host");
}

void SharedExperts::add(backend::Scratch& scratch, const ExpertPool& pool, int64_t layer, const Rows& rows) {
    const backend::ExpertWeights& here = pool.on_device(layer);
    device_.post(scratch, *exchange_, layer, rows.h, rows.ids, rows.n, n_used_, hidden_);
    device_.expert_slots(scratch, rows.h, rows.n, rows.ids, n_used_, here, out_);
    device_.collect(scratch, *exchange_, layer, here.places, rows.ids, rows.n, n_used_, hidden_, out_);
    device_.add_slots(scratch, out_, rows.gates, rows.n, n_used_, hidden_, rows.x);
}

void SharedExperts::answer(ExpertPool& pool, int64_t first, int64_t last,
                           const std::function<int64_t(int64_t)>& rows_of, const CancelToken* cancel) {
    try {
        for (int64_t layer = first; layer < last; ++layer) {
            const int64_t n = rows_of(layer);
            if (n == 0) return;
            if (!exchange_->wait(layer, cancel)) {
                throw_if_cancelled(cancel, "evaluation");
                return;  // the caller has given up
            }
            const backend::Exchange::Turn turn = exchange_->turn();
            host_.expert_slots(host_scratch_, turn.h, n, turn.ids, n_used_, pool.on_host(layer), turn.out);
            host_.synchronize(host_scratch_);
            pool.note(layer, {turn.ids, static_cast<size_t>(n * n_used_)});
            exchange_->answer(layer);
        }
    } catch (...) {
        give_up();
        throw;
    }
}

Answering::Answering(SharedExperts& shared, std::function<void()> answer) : shared_(shared) {
    thread_ = start_thread("minim-answers", "a thread that computes the host's experts",
                           [this, answer = std::move(answer)] {
                               try {
                                   answer();
                               } catch (...) {
                                   error_ = std::current_exception();
                               }
                           });
}

Answering::~Answering() {
    if (!thread_.joinable()) return;
    shared_.give_up();
    thread_.join();
}

void Answering::finish() {
    thread_.join();
    if (error_ != nullptr) std::rethrow_exception(error_);
}

}  // namespace minim::runtime
