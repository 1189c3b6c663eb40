// SPDX-License-Identifier: Apache-2.0
// Decides which experts of a pool move, and when.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/error.h"
#include "runtime/expert_pool.h"

namespace minim::runtime {
namespace {

// Tokens after which a use counts half.
constexpr double k_half_life = 256.0;
// After this number of half lives the counts are scaled down again, long before they overflow a double.
constexpr double k_max_half_lives = 512.0;
// An expert moves in only if its count is larger than its victim's by this factor: else two experts with similar counts
// would replace each other again and again.
constexpr double k_lead = 1.25;
// At most one move a step for this number of layers, so that copies take a constant share of a step: with experts of 7.5 MB
// and 50 GB/s, about 20 of the 300 us of a layer.
constexpr size_t k_layers_a_move = 8;
// Steps between the start of a copy and the first that finds the expert on the device.
constexpr int64_t k_steps_until_here = 2;

}  // namespace

// Returns how much a use counts now: twice as much as one k_half_life tokens ago, so that older counts need not be
// updated.
double ExpertPool::use_weight() const {
    return std::exp2(static_cast<double>(n_tokens_) / k_half_life);
}

void ExpertPool::note(int64_t layer, std::span<const int32_t> ids) {
    if (!counts_uses_) return;
    const std::lock_guard lock(mutex_);
    Slot& of = slots_[slot_of_[layer]];
    const double weight = use_weight();
    for (const int32_t id : ids) {
        const int64_t e = id;
        of.score[e] += weight;
        of.is_used[e] = 1;
        ++(of.is_on_device[e] != 0 ? state_.n_hits : state_.n_misses);
    }
}

void ExpertPool::begin_step() {
    if (moves_ != ExpertMoves::fixed) {
        const std::unique_lock alone(running_, std::try_to_lock);  // another stream's step may run
        if (alone.owns_lock()) {
            const std::lock_guard lock(mutex_);
            finish_moves();
            start_moves();
        }
    }
    running_.lock_shared();
}

// Makes experts that have arrived appear in the tables.
void ExpertPool::finish_moves() {
    for (Place& place : places_) {
        if (place.state != PlaceState::filling) continue;
        {
            std::unique_lock lock(mover_mutex_);
            if (moves_ == ExpertMoves::eager) {
                if (!place.is_done) continue;
            } else {
                if (n_steps_ < place.due_step) continue;
                mover_changed_.wait(lock, [&] { return place.is_done; });
            }
        }
        if (place.has_failed) {
            slots_[place.next.slot].place_of[place.next.expert] = -1;
            place.next = Expert{};
            place.state = PlaceState::free;
            continue;
        }
        ++state_.n_moves;
        state_.moved_bytes += place_bytes(layers_[place.next.slot]);
        appear(place);
    }
}

// Removes the victims of chosen experts from the tables, and starts the copies of the chosen experts.
void ExpertPool::start_moves() {
    for (Place& place : places_) {
        if (place.state != PlaceState::leaving) continue;
        vanish(place);
        place.state = PlaceState::filling;
        place.due_step = n_steps_ + k_steps_until_here;
        place.is_done = place.has_failed = false;
        {
            const std::lock_guard lock(mover_mutex_);
            to_move_.push_back(&place);
        }
        mover_changed_.notify_all();
    }
}

void ExpertPool::end_step(int64_t n_tokens) {
    if (!counts_uses_) return;
    const std::lock_guard lock(mutex_);
    n_tokens_ += n_tokens;
    ++n_steps_;
    if (moves_ != ExpertMoves::fixed)
        for (PlaceClass& of : classes_) choose_moves(of);
    for (Slot& of : slots_) std::ranges::fill(of.is_used, uint8_t{0});
    if (static_cast<double>(n_tokens_) < k_max_half_lives * k_half_life) return;
    const double weight = use_weight();
    for (Slot& of : slots_)
        for (double& score : of.score) score /= weight;
    n_tokens_ = 0;
}

// Returns the experts that the step has missed, those used most first.
std::vector<ExpertPool::Expert> ExpertPool::candidates(const PlaceClass& of) const {
    std::vector<Expert> all;
    for (const size_t s : of.slots)
        for (size_t e = 0; e < slots_[s].is_used.size(); ++e)
            if (slots_[s].is_used[e] != 0 && slots_[s].place_of[e] < 0)
                all.push_back({static_cast<int32_t>(s), static_cast<int32_t>(e)});
    std::ranges::stable_sort(all, std::greater{},
                             [&](const Expert& expert) { return slots_[expert.slot].score[expert.expert]; });
    return all;
}

// Returns the free places, then the places whose expert the step has not used. Those used least come first.
std::vector<size_t> ExpertPool::victims(const PlaceClass& of) const {
    std::vector<std::pair<double, size_t>> all;
    for (const size_t p : of.places) {
        const Place& place = places_[p];
        if (place.state == PlaceState::free) all.emplace_back(-1.0, p);
        if (place.state != PlaceState::here) continue;
        const Slot& slot = slots_[place.holds.slot];
        const int64_t e = place.holds.expert;
        if (slot.is_used[e] == 0) all.emplace_back(slot.score[e], p);
    }
    std::ranges::sort(all);
    std::vector<size_t> places;
    places.reserve(all.size());
    for (const auto& [score, place] : all) places.push_back(place);
    return places;
}

void ExpertPool::choose_moves(PlaceClass& of) {
    const auto is_moving = [&](size_t p) {
        return places_[p].state == PlaceState::leaving || places_[p].state == PlaceState::filling;
    };
    const auto most = static_cast<int64_t>(std::max<size_t>(1, of.slots.size() / k_layers_a_move));
    const int64_t under_way = std::ranges::count_if(of.places, is_moving);
    const auto n = static_cast<size_t>(std::min(most, most * k_steps_until_here - under_way));
    if (most * k_steps_until_here <= under_way) return;
    const std::vector<Expert> wanted = candidates(of);
    if (wanted.empty()) return;
    const std::vector<size_t> room = victims(of);
    for (size_t i = 0; i < std::min({n, wanted.size(), room.size()}); ++i) {
        Place& place = places_[room[i]];
        Slot& to = slots_[wanted[i].slot];
        const int64_t e = wanted[i].expert;
        if (place.state == PlaceState::here) {
            const Slot& from = slots_[place.holds.slot];
            if (to.score[e] <= k_lead * from.score[place.holds.expert]) return;
        }
        place.state = PlaceState::leaving;
        place.next = wanted[i];
        to.place_of[e] = static_cast<int32_t>(room[i]);
    }
}

// Copies experts, on a thread of its own. A place that could not be filled becomes free; if the device is lost, the
// steps report it.
void ExpertPool::move_experts() {
    bool has_warned = false;
    std::unique_lock lock(mover_mutex_);
    while (true) {
        mover_changed_.wait(lock, [&] { return ends_ || !to_move_.empty(); });
        if (ends_) return;
        Place& place = *to_move_.front();
        to_move_.pop_front();
        const Expert expert = place.next;
        lock.unlock();
        bool has_failed = false;
        try {
            copy_expert(expert, place.data, *mover_copier_);
        } catch (const std::exception& error) {
            has_failed = true;
            if (!std::exchange(has_warned, true))
                log_.warning("an expert of layer {} was not copied to {}: {}", layers_[expert.slot].layer,
                             device_.name(), error.what());
        }
        lock.lock();
        place.is_done = true;
        place.has_failed = has_failed;
        mover_changed_.notify_all();
    }
}

}  // namespace minim::runtime
