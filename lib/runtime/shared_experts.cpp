// SPDX-License-Identifier: Apache-2.0
#include "runtime/shared_experts.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/own_thread.h"

namespace minim::runtime {

using backend::ExpertPlace;

namespace {

uint64_t slot_bytes(const backend::StepLimits& limits) {
    uint64_t bytes = sizeof(float);
    for (const int64_t factor : {limits.n_rows, limits.n_expert_used, limits.hidden})
        if (!checked_mul(bytes, static_cast<uint64_t>(factor), bytes))
            fail_out_of_memory("outputs of experts", UINT64_MAX, 0);
    return bytes;
}

}  // namespace

uint64_t SharedExperts::device_bytes(const Stage& stage, const backend::StepLimits& limits) {
    const uint64_t table =
        stage.stream.allows(limits.n_rows) ? static_cast<uint64_t>(limits.n_expert) * sizeof(ExpertPlace) : 0;
    return slot_bytes(limits) + table;
}

SharedExperts::SharedExperts(const Stage& stage, const backend::Backend& host, backend::Scratch& host_scratch,
                             const backend::StepLimits& limits)
    : device_(*stage.backend),
      host_(host),
      host_scratch_(host_scratch),
      hidden_(limits.hidden),
      n_used_(limits.n_expert_used),
      memory_(device_.allocate(slot_bytes(limits), "outputs of experts")),
      out_(reinterpret_cast<float*>(memory_->data())),
      exchange_(device_.make_exchange(limits, stage.n_layer)) {
    if (exchange_ == nullptr)
        fail_on_device(device_.name(), Status::unsupported, "shares no layer's experts with the host");
    ids_.resize(limits.n_rows * limits.n_expert_used);
    if (!stage.stream.allows(limits.n_rows)) return;
    const auto n_expert = static_cast<size_t>(limits.n_expert);
    present_ = device_.allocate(n_expert * sizeof(ExpertPlace), "a table of experts");
    present_on_host_ = device_.allocate_staging(n_expert * sizeof(ExpertPlace), "a table of experts");
    n_slots_.resize(n_expert);
    is_on_device_.resize(n_expert);
    to_copy_.reserve(n_expert);
}

void SharedExperts::begin(bool may_copy) {
    may_copy_ = may_copy;
    chosen_layer_ = -1;
    is_given_up_ = false;
    exchange_->begin();
}

void SharedExperts::give_up() noexcept {
    exchange_->give_up();
    {
        const std::lock_guard lock(mutex_);
        is_given_up_ = true;
    }
    chosen_.notify_all();
}

bool SharedExperts::copies(const ExpertPool& pool, int64_t n) const noexcept {
    return may_copy_ && pool.stream() != nullptr && pool.stream()->rule().allows(n);
}

void SharedExperts::add(backend::Scratch& scratch, ExpertPool& pool, int64_t layer, const Rows& rows,
                        const CancelToken* cancel) {
    const backend::ExpertWeights& here = pool.on_device(layer);
    const ExpertPlace* present = here.places;
    device_.post(scratch, *exchange_, layer, rows.h, rows.ids, rows.n, n_used_, hidden_);
    device_.expert_slots(scratch, rows.h, rows.n, rows.ids, n_used_, here, out_);
    if (copies(pool, rows.n) && await_choice(layer) && !to_copy_.empty()) {
        add_copied(scratch, pool, layer, rows, cancel);
        present = upload_present(scratch, pool, layer);
    }
    device_.collect(scratch, *exchange_, layer, present, rows.ids, rows.n, n_used_, hidden_, out_);
    device_.add_slots(scratch, out_, rows.gates, rows.n, n_used_, hidden_, rows.x);
}

// Copies the chosen experts chunk after chunk. While a chunk is copied, the device computes the chunk before, which is in the other area.
void SharedExperts::add_copied(backend::Scratch& scratch, ExpertPool& pool, int64_t layer, const Rows& rows,
                               const CancelToken* cancel) {
    ExpertStream& stream = *pool.stream();
    const auto lock = stream.lock();
    const auto chunk = static_cast<size_t>(stream.chunk_experts());
    const std::span<const int32_t> all = to_copy_;
    size_t area = 0;
    for (size_t first = 0; first < all.size(); first += chunk) {
        throw_if_cancelled(cancel, "evaluation");
        const std::span<const int32_t> experts = all.subspan(first, std::min(chunk, all.size() - first));
        stream.fill(area, pool.layer(layer), pool.on_device(layer), experts);
        device_.wait(scratch);  // the chunk before is computed, so its area may be filled
        device_.expert_slots(scratch, rows.h, rows.n, rows.ids, n_used_, stream.in(area), out_);
        area = (area + 1) % ExpertStream::k_areas;
    }
    device_.wait(scratch);  // other steps may use the areas after this
    pool.note_streamed(layer, all);
}

// Returns a table for collect(), which reads from it only which experts the device has computed.
const ExpertPlace* SharedExperts::upload_present(backend::Scratch& scratch, const ExpertPool& pool,
                                                 int64_t layer) {
    const std::span table(reinterpret_cast<ExpertPlace*>(present_on_host_->data()), is_on_device_.size());
    const uint8_t* is_there = pool.on_host(layer).is_on_device;
    for (size_t e = 0; e < table.size(); ++e) {
        table[e] = {};
        if (is_there[e] != 0) table[e].gate = present_->data();
    }
    for (const int32_t e : to_copy_) table[e].gate = present_->data();
    device_.upload(scratch, present_->data(), present_on_host_->data(), table.size_bytes());
    return reinterpret_cast<const ExpertPlace*>(present_->data());
}

// Hands the experts to copy to the driving thread. Returns the experts that the host computes, without these.
const backend::ExpertWeights& SharedExperts::choose(ExpertPool& pool, int64_t layer,
                                                    std::span<const int32_t> ids) {
    on_host_ = pool.on_host(layer);
    std::copy_n(on_host_.is_on_device, is_on_device_.size(), is_on_device_.begin());
    on_host_.is_on_device = is_on_device_.data();
    std::ranges::fill(n_slots_, 0);
    for (const int32_t id : ids)
        if (is_on_device_[id] == 0) ++n_slots_[id];
    choose_streamed(n_slots_, pool.stream()->rule(), to_copy_);
    for (const int32_t e : to_copy_) is_on_device_[e] = 1;
    {
        const std::lock_guard lock(mutex_);
        chosen_layer_ = layer;
    }
    chosen_.notify_all();
    return on_host_;
}

// Blocks until the experts to copy in the layer are chosen. Returns false if the step was given up.
bool SharedExperts::await_choice(int64_t layer) {
    std::unique_lock lock(mutex_);
    chosen_.wait(lock, [&] { return chosen_layer_ == layer || is_given_up_; });
    return !is_given_up_;
}

void SharedExperts::answer(ExpertPool& pool, int64_t first, int64_t last,
                           const std::function<int64_t(int64_t)>& rows_of, const CancelToken* cancel) {
    try {
        for (int64_t layer = first; layer < last; ++layer) {
            if (!pool.has(layer)) continue;  // the device has all experts of this one
            const int64_t n = rows_of(layer);
            if (n == 0) return;
            if (!exchange_->wait(layer, cancel)) {
                // The exchange is given up, by the driving thread or because of `cancel`. The step fails either way, so
                // `cancel` is not asked again: it may have another answer by now.
                fail(Status::cancelled, "cancelled during {}", "evaluation");
            }
            const backend::Exchange::Turn turn = exchange_->turn();
            // A device that stops waiting because the step is given up goes on to the next turn, and overwrites the
            // choices of this one. Experts are counted first and listed then: both must see the same choices.
            const std::span ids = std::span(ids_).first(n * n_used_);
            std::copy_n(turn.ids, n * n_used_, ids.begin());
            const backend::ExpertWeights& weights =
                copies(pool, n) ? choose(pool, layer, ids) : pool.on_host(layer);
            host_.expert_slots(host_scratch_, turn.h, n, ids.data(), n_used_, weights, turn.out);
            host_.synchronize(host_scratch_);
            pool.note(layer, ids);
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
