// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "cpu/cpu_backend.h"
#include "sim/sim_exchange.h"
#include "sim/sim_queue.h"
#include "support/top_k.h"

namespace minim::sim {
namespace {

using backend::AttendArgs;
using backend::Exchange;
using backend::ExpertPlace;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::KvRow;
using backend::KvSequence;
using backend::LinearTask;
using backend::Matrix;
using backend::Scratch;
using backend::Vector;

struct Stream : Scratch {
    std::unique_ptr<Scratch> cpu;
    Queue queue;  // ends first: its tasks work in the scratch
};

Stream& stream_of(Scratch& scratch) {
    return static_cast<Stream&>(scratch);
}

void pause(double seconds) {
    if (seconds > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// One row of a top-k task.
void top_k_row(std::span<const float> logits, const backend::TopKRow& row, const int32_t* named,
               std::byte* results, backend::TopKFacts& facts) {
    TopKQuery query;
    query.n_candidates = row.n_candidates;
    query.named.assign(named + row.first_named, named + row.first_named + row.n_named);
    query.inverse_temperature = row.inverse_temperature;
    query.exact_total = row.wants_exact_total != 0;
    const test::HostTopK top = test::make_top_k(logits, query);
    facts = {top.total, top.exact_total, static_cast<int32_t>(top.candidates.size()), top.n_nan};
    std::ranges::copy(top.candidates, reinterpret_cast<Candidate*>(results + row.candidates_at));
    std::ranges::copy(top.named_logits, reinterpret_cast<float*>(results + row.named_at));
}

// Returns ExpertWeights::is_on_device: 1 for the experts that have no address.
std::vector<uint8_t> absent(const ExpertWeights& weights) {
    std::vector<uint8_t> is_absent;
    for (const std::byte* gate : weights.gate.expert) is_absent.push_back(gate == nullptr ? 1 : 0);
    return is_absent;
}

// A copy of a batch's rows whose page tables hold the places of the bytes.
struct Batch {
    std::vector<std::vector<std::byte*>> pages;
    std::vector<KvSequence> sequences;
    std::vector<KvRow> rows;
};

}  // namespace

SimBackend::SimBackend(int32_t index, const Options& options)
    : name_(format_text("sim:{}", index)),
      options_(options),
      space_(options.memory_bytes),
      memory_(name_, space_, options.budget_bytes),
      pool_(1),
      cpu_(cpu::make_cpu_backend(pool_, detected_cpu_level())) {}

Matrix SimBackend::here(Matrix matrix) const {
    matrix.data = here(matrix.data);
    return matrix;
}

Vector SimBackend::here(Vector vector) const {
    vector.data = here(vector.data);
    return vector;
}

ExpertStack SimBackend::here(ExpertStack stack) const {
    for (const std::byte*& expert : stack.expert) expert = here(expert);
    return stack;
}

// Returns the experts that the device's table names when a task reads it, in the form for the CPU backend.
ExpertWeights SimBackend::experts_here(const ExpertWeights& weights) const {
    ExpertWeights own = weights;
    own.places = nullptr;
    if (weights.places == nullptr) {
        for (ExpertStack* stack : {&own.gate, &own.up, &own.down}) *stack = here(*stack);
        return own;
    }
    const ExpertPlace* places = here(weights.places);
    const auto n = static_cast<size_t>(weights.n_expert());
    const auto take = [&](ExpertStack& stack, const std::byte* ExpertPlace::*data,
                          float ExpertPlace::*scale) {
        stack.scale.resize(n);
        for (size_t e = 0; e < n; ++e) {
            // Without the expert, only the address of gate has a meaning.
            stack.expert[e] = places[e].gate == nullptr ? nullptr : here(places[e].*data);
            stack.scale[e] = places[e].*scale;
        }
    };
    take(own.gate, &ExpertPlace::gate, &ExpertPlace::gate_scale);
    take(own.up, &ExpertPlace::up, &ExpertPlace::up_scale);
    take(own.down, &ExpertPlace::down, &ExpertPlace::down_scale);
    return own;
}

// ---- failures ----

void SimBackend::check_alive() const {
    const char* why = why_lost_.load();
    if (why != nullptr) fail_on_device(name_, Status::device_lost, "{}", why);
}

// Adds a task to a stream. On a lost device the task does nothing.
template <typename Task>
void SimBackend::enqueue(Scratch& scratch, Task task) const {
    stream_of(scratch).queue.push([this, task = std::move(task)]() mutable {
        if (++counts_.operations == options_.failing_operation) why_lost_ = "the device was lost";
        if (why_lost_ == nullptr) task();
    });
}

// Counts a transfer and takes as long as it would. Returns false if it fails.
bool SimBackend::transfer(uint64_t bytes) const {
    if (++counts_.transfers == options_.failing_transfer) why_lost_ = "a transfer failed";
    if (why_lost_ != nullptr) return false;
    if (options_.bytes_per_second > 0.0) pause(static_cast<double>(bytes) / options_.bytes_per_second);
    return true;
}

// ---- memory ----

std::unique_ptr<backend::Memory> SimBackend::allocate(uint64_t bytes, std::string_view what,
                                                      backend::MemoryUse use) const {
    if (++counts_.allocations == options_.failing_allocation) memory_.fail(bytes, what);
    std::unique_ptr<backend::Memory> memory = memory_.allocate(bytes, what, use);
    std::memset(here(memory->data()), 0xFF, bytes);
    return memory;
}

void SimBackend::write(std::byte* to, const std::byte* from_host, uint64_t bytes) const {
    counts_.bytes_from_host += bytes;
    if (transfer(bytes)) std::memcpy(here(to), from_host, bytes);
    check_alive();
}

void SimBackend::read(std::byte* to_host, const std::byte* from, uint64_t bytes) const {
    counts_.bytes_to_host += bytes;
    if (transfer(bytes)) std::memcpy(to_host, here(from), bytes);
    check_alive();
}

void SimBackend::copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept {
    if (why_lost_ == nullptr) std::memcpy(here(to), here(from), bytes);
}

// ---- streams ----

std::unique_ptr<Scratch> SimBackend::reserve(const backend::StepLimits& limits) const {
    auto stream = std::make_unique<Stream>();
    stream->cpu = cpu_->reserve(limits);
    return stream;
}

void SimBackend::upload(Scratch& scratch, std::byte* to, const std::byte* from_host, uint64_t bytes) const {
    counts_.bytes_from_host += bytes;
    enqueue(scratch, [this, to = here(to), from_host, bytes] {
        if (transfer(bytes)) std::memcpy(to, from_host, bytes);
    });
}

void SimBackend::download(Scratch& scratch, std::byte* to_host, const std::byte* from, uint64_t bytes) const {
    counts_.bytes_to_host += bytes;
    enqueue(scratch, [this, to_host, from = here(from), bytes] {
        if (transfer(bytes)) std::memcpy(to_host, from, bytes);
    });
}

void SimBackend::move(Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const {
    enqueue(scratch, [to = here(to), from = here(from), bytes] { std::memcpy(to, from, bytes); });
}

bool SimBackend::receive(Scratch& scratch, std::byte* to, const Backend& peer, Scratch& peer_scratch,
                         const std::byte* from, uint64_t bytes) const {
    const auto* other = dynamic_cast<const SimBackend*>(&peer);
    if (other == nullptr || !options_.reaches_peers || !other->options_.reaches_peers) return false;
    counts_.bytes_from_peers += bytes;
    // An event: the other stream reaches it even if its device is lost.
    auto done = std::make_shared<std::promise<void>>();
    stream_of(peer_scratch).queue.push([done] { done->set_value(); });
    stream_of(scratch).queue.push([done] { done->get_future().wait(); });
    enqueue(scratch, [this, to = here(to), from = other->here(from), bytes] {
        if (transfer(bytes)) std::memcpy(to, from, bytes);
    });
    return true;
}

std::unique_ptr<backend::Pinned> SimBackend::pin(std::span<const std::byte> memory) const {
    if (options_.refuses_to_pin) return nullptr;
    class Range : public backend::Pinned {
      public:
        Range(std::atomic<uint64_t>& total, uint64_t bytes) : total_(total), bytes_(bytes) {
            total_ += bytes_;
        }
        ~Range() override { total_ -= bytes_; }
        Range(const Range&) = delete;
        Range& operator=(const Range&) = delete;

      private:
        std::atomic<uint64_t>& total_;
        const uint64_t bytes_;
    };
    return std::make_unique<Range>(pinned_bytes_, memory.size());
}

void SimBackend::synchronize(Scratch& scratch) const {
    stream_of(scratch).queue.wait();
    check_alive();
}

// ---- weights ----

bool SimBackend::packs(Format format) const noexcept {
    return cpu_->packs(format);
}

void SimBackend::pack(std::span<std::byte* const> data, const Matrix& shape) const {
    std::vector<std::byte*> places;
    for (std::byte* place : data) places.push_back(here(place));
    cpu_->pack(places, here(shape));
}

// ---- operations ----

void SimBackend::embed(Scratch& scratch, const Matrix& table, std::span<const int32_t> ids, float* x) const {
    enqueue(scratch, [this, &scratch, table = here(table), ids = std::vector(ids.begin(), ids.end()),
                      x = here(x)] { cpu_->embed(*stream_of(scratch).cpu, table, ids, x); });
}

void SimBackend::norm(Scratch& scratch, const float* x, int64_t n, const Vector& weight, float eps,
                      float* h) const {
    enqueue(scratch, [this, &scratch, x = here(x), n, weight = here(weight), eps, h = here(h)] {
        cpu_->norm(*stream_of(scratch).cpu, x, n, weight, eps, h);
    });
}

void SimBackend::linear(Scratch& scratch, const float* h, int64_t n,
                        std::span<const LinearTask> tasks) const {
    auto weights = std::make_shared<std::vector<Matrix>>();
    for (const LinearTask& task : tasks) weights->push_back(here(*task.weight));
    std::vector<LinearTask> own;
    for (size_t i = 0; i < tasks.size(); ++i) own.push_back({&(*weights)[i], here(tasks[i].y), tasks[i].add});
    enqueue(scratch, [this, &scratch, h = here(h), n, weights, own = std::move(own)] {
        cpu_->linear(*stream_of(scratch).cpu, h, n, own);
        if (!options_.computes_wrong_products) return;
        for (const LinearTask& task : own)  // one row of the matrix
            for (int64_t row = 0; row < n; ++row) task.y[row * task.weight->rows] *= -1.0F;
    });
}

void SimBackend::head_squares(Scratch& scratch, const AttendArgs& args, float* squares) const {
    AttendArgs own = args;
    own.q = here(args.q);
    own.k = here(args.k);
    enqueue(scratch, [this, &scratch, own, squares = here(squares)] {
        cpu_->head_squares(*stream_of(scratch).cpu, own, squares);
    });
}

void SimBackend::attend(Scratch& scratch, const AttendArgs& args) const {
    auto batch = std::make_shared<Batch>();
    batch->sequences.reserve(args.rows.size());
    batch->pages.reserve(args.rows.size());
    const KvSequence* last = nullptr;
    for (const KvRow& row : args.rows) {
        if (row.sequence != last) {
            auto& pages = batch->pages.emplace_back();
            for (const std::byte* page : row.sequence->pages)
                pages.push_back(here(const_cast<std::byte*>(page)));
            batch->sequences.push_back({row.sequence->layout, pages});
            last = row.sequence;
        }
        batch->rows.push_back({&batch->sequences.back(), row.position});
    }
    AttendArgs own = args;
    own.q = here(args.q);
    own.k = here(args.k);
    own.v = here(args.v);
    own.o = here(args.o);
    own.q_norm = here(args.q_norm);
    own.k_norm = here(args.k_norm);
    own.squares = here(args.squares);
    backend::IndexArgs index;
    if (args.index != nullptr)
        index = {args.index->shape, here(args.index->q), here(args.index->k), here(args.index->q_norm),
                 here(args.index->k_norm)};
    enqueue(scratch, [this, &scratch, own, index, batch]() mutable {
        own.rows = batch->rows;
        if (own.index != nullptr) own.index = &index;
        cpu_->attend(*stream_of(scratch).cpu, own);
    });
}

void SimBackend::route(Scratch& scratch, const float* h, int64_t n, const Matrix& router, const Vector& bias,
                       int64_t n_used, int32_t* ids, float* gates) const {
    enqueue(scratch, [this, &scratch, h = here(h), n, router = here(router), bias = here(bias), n_used,
                      ids = here(ids), gates = here(gates)] {
        cpu_->route(*stream_of(scratch).cpu, h, n, router, bias, n_used, ids, gates);
    });
}

void SimBackend::scale(Scratch& scratch, float* x, int64_t count, float factor) const {
    enqueue(scratch, [this, &scratch, x = here(x), count, factor] {
        cpu_->scale(*stream_of(scratch).cpu, x, count, factor);
    });
}

void SimBackend::experts(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                         int64_t n_used, const ExpertWeights& weights, float* y, bool add) const {
    enqueue(scratch, [this, &scratch, h = here(h), n, ids = here(ids), gates = here(gates), n_used, weights,
                      y = here(y), add] {
        ExpertWeights own = experts_here(weights);
        const std::vector<uint8_t> is_on_device = absent(own);
        own.is_on_device = is_on_device.data();
        cpu_->experts(*stream_of(scratch).cpu, h, n, ids, gates, n_used, own, y, add);
    });
}

void SimBackend::expert_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                              const ExpertWeights& weights, float* out) const {
    enqueue(scratch, [this, &scratch, h = here(h), n, ids = here(ids), n_used, weights, out = here(out)] {
        ExpertWeights own = experts_here(weights);
        const std::vector<uint8_t> is_on_device = absent(own);
        own.is_on_device = is_on_device.data();
        cpu_->expert_slots(*stream_of(scratch).cpu, h, n, ids, n_used, own, out);
        pause(options_.experts_seconds);
    });
}

void SimBackend::observe_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids,
                               int64_t n_used, const ExpertWeights& weights, float* middle,
                               float* out) const {
    enqueue(scratch, [this, &scratch, h = here(h), n, ids = here(ids), n_used, weights, middle = here(middle),
                      out = here(out)] {
        ExpertWeights own = experts_here(weights);
        const std::vector<uint8_t> is_on_device = absent(own);
        own.is_on_device = is_on_device.data();
        cpu_->observe_slots(*stream_of(scratch).cpu, h, n, ids, n_used, own, middle, out);
    });
}

void SimBackend::add_slots(Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                           int64_t hidden, float* y) const {
    enqueue(scratch, [this, &scratch, out = here(out), gates = here(gates), n, n_used, hidden, y = here(y)] {
        cpu_->add_slots(*stream_of(scratch).cpu, out, gates, n, n_used, hidden, y);
    });
}

// ---- answers of the host ----

std::unique_ptr<Exchange> SimBackend::make_exchange(const backend::StepLimits& limits,
                                                    int64_t n_turns) const {
    return std::make_unique<SimExchange>(
        limits.n_rows, limits.n_expert_used, limits.hidden, n_turns, [this] { check_alive(); },
        [this] { return why_lost_ != nullptr; });
}

// Counts one side of a turn and takes as long as it would. Returns false if it fails.
bool SimBackend::exchange(uint64_t bytes) const {
    if (++counts_.exchanges == options_.failing_exchange) why_lost_ = "an exchange with the host failed";
    pause(options_.exchange_seconds);
    return why_lost_ == nullptr && transfer(bytes);
}

void SimBackend::post(Scratch& scratch, Exchange& exchange_with, int64_t turn, const float* h,
                      const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden) const {
    auto& with = static_cast<SimExchange&>(exchange_with);
    enqueue(scratch, [this, &with, turn, h = here(h), ids = here(ids), n, n_used, hidden] {
        const std::span rows(h, static_cast<size_t>(n * hidden));
        const std::span slots(ids, static_cast<size_t>(n * n_used));
        const uint64_t bytes = rows.size_bytes() + slots.size_bytes();
        counts_.bytes_to_host += bytes;
        if (exchange(bytes)) with.post(turn, rows, slots);
    });
}

void SimBackend::collect(Scratch& scratch, Exchange& exchange_with, int64_t turn, const ExpertPlace* places,
                         const int32_t* ids, int64_t n, int64_t n_used, int64_t hidden, float* out) const {
    auto& with = static_cast<SimExchange&>(exchange_with);
    enqueue(scratch,
            [this, &with, turn, places = here(places), ids = here(ids), n, n_used, hidden, out = here(out)] {
                const float* answer = with.collect(turn);
                if (answer == nullptr) return;
                const auto row_bytes = static_cast<uint64_t>(hidden) * sizeof(float);
                uint64_t bytes = 0;
                for (int64_t slot = 0; slot < n * n_used; ++slot)
                    if (places[ids[slot]].gate == nullptr) bytes += row_bytes;
                counts_.bytes_from_host += bytes;
                if (!exchange(bytes)) return;
                for (int64_t slot = 0; slot < n * n_used; ++slot)
                    if (places[ids[slot]].gate == nullptr)
                        std::memcpy(out + slot * hidden, answer + slot * hidden, row_bytes);
            });
}

void SimBackend::top_k(Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
                       const backend::TopKTask& task) const {
    enqueue(scratch, [this, logits = here(logits), n, n_vocab, rows = here(task.rows),
                      named = here(task.named), results = here(task.results)] {
        auto* facts = reinterpret_cast<backend::TopKFacts*>(results);
        for (int64_t i = 0; i < n; ++i) {
            if (rows[i].n_candidates == 0) continue;
            ++counts_.top_k_lists;
            top_k_row({logits + i * n_vocab, static_cast<size_t>(n_vocab)}, rows[i], named, results,
                      facts[i]);
        }
    });
}

}  // namespace minim::sim
