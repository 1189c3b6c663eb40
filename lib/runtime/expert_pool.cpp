// SPDX-License-Identifier: Apache-2.0
// The memory of a pool: places, tables, and what is copied into them. Which experts move is chosen in expert_moves.cpp.
#include "runtime/expert_pool.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/own_thread.h"
#include "weights/tasks_that_throw.h"

namespace minim::runtime {
namespace {

using backend::ExpertPlace;
using backend::ExpertStack;
using weights::WeightSpec;

}  // namespace

ExpertPool::ExpertPool(const backend::Backend& device, const backend::HostDevice& host,
                       std::vector<PooledLayer> layers, int64_t first_layer, const weights::Reader& reader,
                       const ExpertPoolOptions& options, const Logger& log)
    : device_(device), layers_(std::move(layers)), reader_(reader), moves_(options.moves), log_(log) {
    make_slots(first_layer);
    if (bytes_of_all(layers_) > options.bytes) pin(host, options.host_memory);
    make_places(options.bytes - make_stream(host, options));
    choose_first(options.uses);
    fill_first(host);
    if (moves_ == ExpertMoves::fixed || state_.n_places == 0) return;
    mover_copier_.emplace(device_, layers_, reader_);
    mover_ = start_thread("minim-experts", "a thread that copies experts", [this] { move_experts(); });
}

ExpertPool::~ExpertPool() {
    {
        const std::lock_guard lock(mover_mutex_);
        ends_ = true;
    }
    mover_changed_.notify_all();
    if (mover_.joinable()) mover_.join();
}

void ExpertPool::make_slots(int64_t first_layer) {
    uint64_t table_bytes = 0;
    for (const PooledLayer& layer : layers_) {
        Slot& slot = slots_.emplace_back();
        const auto n = static_cast<size_t>(layer.on_host->n_expert());
        slot.on_host = *layer.on_host;
        slot.on_device = shapes_on(device_, layer);
        slot.is_on_device.assign(n, 0);
        slot.place_of.assign(n, -1);
        slot.score.assign(n, 0.0);
        slot.is_used.assign(n, 0);
        table_bytes += n * sizeof(ExpertPlace);
        const int64_t of_stage = layer.layer - first_layer;
        if (std::ssize(slot_of_) <= of_stage) slot_of_.resize(of_stage + 1, -1);
        slot_of_[of_stage] = static_cast<int32_t>(slots_.size()) - 1;
    }
    tables_ = device_.allocate(table_bytes, "tables of experts", backend::MemoryUse::weights);
    auto* table = reinterpret_cast<ExpertPlace*>(tables_->data());
    for (Slot& slot : slots_) {
        const size_t n = slot.is_on_device.size();
        const std::vector<ExpertPlace> none(n);
        slot.table = std::exchange(table, table + n);
        device_.write(reinterpret_cast<std::byte*>(slot.table), std::as_bytes(std::span(none)).data(),
                      n * sizeof(ExpertPlace));
        slot.on_device.places = slot.table;
        slot.on_host.is_on_device = slot.is_on_device.data();
    }
}

// Pins the memory, as far as the system allows.
void ExpertPool::pin(const backend::HostDevice& host, std::span<const std::span<const std::byte>> memory) {
    std::vector<std::span<const std::byte>> pieces;
    uint64_t total = 0;
    for (const std::span<const std::byte> block : memory) {
        total += block.size();
        for (std::span<const std::byte> rest = block; !rest.empty();) {
            pieces.push_back(backend::first_piece(rest));
            rest = rest.subspan(pieces.back().size());
        }
    }
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::unique_ptr<backend::Pinned>> pinned(pieces.size());
    weights::run_tasks_that_throw(&host, std::ssize(pieces),
                                  [&](int64_t i, int32_t) { pinned[i] = device_.pin(pieces[i]); });
    uint64_t done = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
        if (pinned[i] == nullptr) continue;
        done += pieces[i].size();
        pinned_.push_back(std::move(pinned[i]));
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    log_.info("{} of {} bytes of weights are pinned for copies to {}, after {:.1f} s", done, total,
              device_.name(), taken.count());
}

// Makes the areas for experts that are copied for one step. Returns their bytes; 0: there are none.
uint64_t ExpertPool::make_stream(const backend::HostDevice& host, const ExpertPoolOptions& options) {
    if (bytes_of_all(layers_) <= options.bytes) return 0;
    uint64_t most = 0;
    for (const PooledLayer& layer : layers_) most = std::max(most, place_bytes(layer));
    const StreamSpace space =
        stream_space(options.stream, most, std::ssize(layers_.front().gate), options.bytes);
    if (space.chunk_experts == 0) return 0;
    stream_ = std::make_unique<ExpertStream>(device_, host, layers_, reader_, options.stream, space);
    return stream_->device_bytes();
}

// Layers whose experts take the same room share places. The bytes are divided so that each kind of place has room for
// equally many experts of each of its layers.
void ExpertPool::make_places(uint64_t bytes) {
    std::map<uint64_t, size_t> class_of_bytes;
    for (size_t s = 0; s < slots_.size(); ++s) {
        const uint64_t room = place_bytes(layers_[s]);
        const auto [at, is_new] = class_of_bytes.try_emplace(room, classes_.size());
        if (is_new) classes_.push_back({room, {}, {}});
        classes_[at->second].slots.push_back(s);
    }
    uint64_t total = 0;
    for (const PlaceClass& of : classes_) total += of.bytes * of.slots.size();
    uint64_t taken = 0;
    for (PlaceClass& of : classes_) {
        const double share = static_cast<double>(of.bytes * of.slots.size()) / static_cast<double>(total);
        const auto n_experts = static_cast<uint64_t>(layers_[of.slots[0]].on_host->n_expert());
        const auto wanted = static_cast<uint64_t>(share * static_cast<double>(bytes)) / of.bytes;
        const uint64_t n = std::min(wanted, of.slots.size() * n_experts);
        for (uint64_t i = 0; i < n; ++i) {
            of.places.push_back(places_.size());
            places_.emplace_back();
        }
        taken += n * of.bytes;
    }
    state_.n_places = std::ssize(places_);
    state_.bytes = taken;
    if (taken == 0) return;
    memory_ = device_.allocate(taken, "experts", backend::MemoryUse::weights);
    std::byte* next = memory_->data();
    for (const PlaceClass& of : classes_)
        for (const size_t place : of.places) places_[place].data = std::exchange(next, next + of.bytes);
}

// Chooses the experts that are on the device at first: those that were used most, or, without counts, the first ones of
// each layer, equally many of each.
void ExpertPool::choose_first(const std::vector<std::vector<float>>& uses) {
    for (const PlaceClass& of : classes_) {
        std::vector<Expert> order;
        const auto n_expert = static_cast<int32_t>(layers_[of.slots[0]].on_host->n_expert());
        for (int32_t e = 0; e < n_expert; ++e)
            for (const size_t s : of.slots) order.push_back({static_cast<int32_t>(s), e});
        if (!uses.empty()) {
            const auto count = [&](const Expert& expert) {
                return uses[layers_[expert.slot].layer][expert.expert];
            };
            std::ranges::stable_sort(order, std::greater{}, count);
            for (const Expert& expert : order)
                slots_[expert.slot].score[expert.expert] = static_cast<double>(count(expert));
        }
        for (size_t i = 0; i < of.places.size(); ++i) places_[of.places[i]].next = order[i];
    }
}

void ExpertPool::fill_first(const backend::HostDevice& host) {
    if (places_.empty()) return;
    std::vector<ExpertCopier> copiers;
    copiers.reserve(host.n_threads());
    for (int32_t i = 0; i < host.n_threads(); ++i) copiers.emplace_back(device_, layers_, reader_);
    weights::run_tasks_that_throw(&host, std::ssize(places_), [&](int64_t i, int32_t thread) {
        const Place& place = places_[i];
        copy_expert(place.next, place.data, copiers[thread]);
    });
    for (Place& place : places_) appear(place);
}

// Copies the three matrices of an expert to a place that no table names.
void ExpertPool::copy_expert(const Expert& expert, std::byte* to, ExpertCopier& copier) const {
    const PooledLayer& layer = layers_[expert.slot];
    const Slot& slot = slots_[expert.slot];
    const auto copy = [&](const WeightSpec& weight, const ExpertStack& on_host, const ExpertStack& stack) {
        copier.start(weight, on_host, expert.expert, to);
        if (is_left_to_pack(device_, weight, on_host)) {
            copier.finish();
            device_.pack({&to, 1}, {to, stack.format, stack.rows, stack.cols, stack.row_bytes});
        }
        to += room_of(weight);
    };
    const int64_t e = expert.expert;
    copy(*layer.gate[e], layer.on_host->gate, slot.on_device.gate);
    copy(*layer.up[e], layer.on_host->up, slot.on_device.up);
    copy(*layer.down[e], layer.on_host->down, slot.on_device.down);
    copier.finish();
}

// Enters the expert that is in the place into the table.
void ExpertPool::appear(Place& place) {
    place.holds = std::exchange(place.next, Expert{});
    place.state = PlaceState::here;
    Slot& slot = slots_[place.holds.slot];
    const PooledLayer& layer = layers_[place.holds.slot];
    const int64_t e = place.holds.expert;
    const ExpertPlace entry = place_at(layer, place.holds.expert, place.data);
    device_.write(reinterpret_cast<std::byte*>(slot.table + e), reinterpret_cast<const std::byte*>(&entry),
                  sizeof(entry));
    slot.is_on_device[e] = 1;
    slot.place_of[e] = static_cast<int32_t>(&place - places_.data());
    ++slot.n_here;
}

// Removes the expert that is in the place from the table.
void ExpertPool::vanish(Place& place) {
    const Expert expert = std::exchange(place.holds, Expert{});
    if (expert.slot < 0) return;
    Slot& slot = slots_[expert.slot];
    const int64_t e = expert.expert;
    const ExpertPlace none;
    device_.write(reinterpret_cast<std::byte*>(slot.table + e), reinterpret_cast<const std::byte*>(&none),
                  sizeof(none));
    slot.is_on_device[e] = 0;
    slot.place_of[e] = -1;
    --slot.n_here;
}

void ExpertPool::note_streamed(int64_t layer_of_stage, std::span<const int32_t> experts) {
    if (!counts_uses_) return;
    const PooledLayer& of = layer(layer_of_stage);
    const uint64_t bytes = of.gate.front()->bytes() + of.up.front()->bytes() + of.down.front()->bytes();
    const std::lock_guard lock(mutex_);
    state_.n_streamed += std::ssize(experts);
    state_.streamed_bytes += experts.size() * bytes;
}

ExpertPoolState ExpertPool::state() const {
    const std::lock_guard lock(mutex_);
    return state_;
}

std::vector<std::vector<float>> ExpertPool::uses() const {
    const std::lock_guard lock(mutex_);
    const double now = use_weight();
    std::vector<std::vector<float>> all;
    for (const Slot& slot : slots_) {
        std::vector<float>& layer = all.emplace_back();
        for (const double score : slot.score) layer.push_back(static_cast<float>(score / now));
    }
    return all;
}

}  // namespace minim::runtime
