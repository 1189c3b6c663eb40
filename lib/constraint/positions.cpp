// SPDX-License-Identifier: Apache-2.0
#include "constraint/positions.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace minim::constraint {
namespace {

constexpr size_t k_max_stored = size_t{1} << 23;  // places: 96 MiB
// Whether a frame is within another one is only looked for so far: an unknown answer is no.
constexpr int k_max_depth = 64;
constexpr size_t k_max_pairs = 4096;  // of places of two frames
constexpr size_t k_max_compared = 4;  // frames with which one is compared

}  // namespace

int32_t Positions::start_of(int32_t rule) {
    return alone_in(automaton_->rule_starts[rule]);
}

int32_t Positions::alone_in(int32_t state, int32_t count) {
    found_.clear();
    found_end_ = automaton_->accepts_at(state, count);
    if (!found_end_ || !automaton_->is_last(state, count))
        found_.push_back({state, count, frame_of({{k_end_of_text, 0, 0}})});
    return position_of_found();
}

int32_t Positions::read(int32_t position, std::string_view bytes) {
    for (const char byte : bytes) {
        if (position == k_dead) break;
        position = step(position, automaton_->symbol_of_byte[static_cast<uint8_t>(byte)]);
    }
    return position;
}

int32_t Positions::after(std::span<const Place> places) {
    found_.clear();
    found_end_ = false;
    returned_.clear();
    for (const Place& place : places) return_to(place.frame);
    return position_of_found();
}

int32_t Positions::work_out(int32_t position, int32_t symbol) {
    found_.clear();
    found_end_ = false;
    returned_.clear();
    for (const Place& place : entries_[position].readers) {
        const int32_t state = automaton_->step(place.state, symbol);
        if (state == Automaton::k_none) continue;
        const int32_t count = automaton_->count_in(state, place.count);
        if (count == Automaton::k_none) continue;
        if (!automaton_->is_last(state, count)) found_.push_back({state, count, place.frame});
        if (automaton_->accepts_at(state, count)) return_to(place.frame);
    }
    const int32_t next = position_of_found();
    next_[int64_t{position} * n_symbols_ + symbol] = next;
    return next;
}

// Adds the places after a rule of the frame.
void Positions::return_to(int32_t frame) {
    if (std::ranges::find(returned_, frame) != returned_.end()) return;
    returned_.push_back(frame);
    const Frame& from = frames_[frame];
    found_.insert(found_.end(), from.reached.begin(), from.reached.end());
    found_end_ |= from.may_end;
}

int32_t Positions::position_of_found() {
    if (found_.empty() && !found_end_) return k_dead;
    reduce(found_);
    PlaceList key = found_;
    if (found_end_) key.push_back({k_end_of_text, 0, 0});
    const auto known = numbers_.find(key);
    if (known != numbers_.end()) return known->second;

    const size_t number = entries_.size();
    Entry entry{.places = found_, .readers = readers_of(found_)};
    count_stored(entry.places.size() + entry.readers.size());
    try {
        next_.resize((number + 1) * n_symbols_, k_unknown);
        may_end_.push_back(found_end_ ? 1 : 0);
        entries_.push_back(std::move(entry));
        numbers_.emplace(std::move(key), static_cast<int32_t>(number));
    } catch (...) {
        next_.resize(number * n_symbols_);
        may_end_.resize(number);
        entries_.resize(number);
        throw;
    }
    return static_cast<int32_t>(number);
}

// A rule called from several places gets one frame that holds them all. Rules are taken in the order in which
// none begins with a call of an earlier one, so that all callers of a rule are known when its turn comes.
Positions::PlaceList Positions::readers_of(const PlaceList& places) {
    PlaceList readers = places;
    struct Called {
        int32_t rule = 0;
        PlaceList returns;
    };
    std::map<int32_t, Called> called;  // by place in the order
    const auto add_calls = [&](const Place& place) {
        for (const Automaton::Call& call : automaton_->calls_of(place.state)) {
            const int32_t count = automaton_->count_in(call.next, place.count);
            if (count == Automaton::k_none) continue;
            Called& entry = called[automaton_->call_order[call.rule]];
            entry.rule = call.rule;
            if (!automaton_->is_last(call.next, count)) {
                entry.returns.push_back({call.next, count, place.frame});
                continue;
            }
            // A call at the very end of a rule returns to where that rule returns.
            const PlaceList& returns = frames_[place.frame].returns;
            entry.returns.insert(entry.returns.end(), returns.begin(), returns.end());
        }
    };
    for (const Place& place : places) add_calls(place);
    while (!called.empty()) {
        const Called entry = std::move(called.begin()->second);
        called.erase(called.begin());
        const Place start = {automaton_->rule_starts[entry.rule], 0, frame_of(entry.returns)};
        readers.push_back(start);
        add_calls(start);
    }
    return readers;
}

int32_t Positions::frame_of(PlaceList returns) {
    reduce(returns);
    const auto number = static_cast<int32_t>(frames_.size());
    const auto known = frame_numbers_.find(returns);
    if (known != frame_numbers_.end()) return known->second;
    Frame frame{.returns = returns, .reached = {}};
    for (const Place& place : returns) {
        if (place.state == k_end_of_text) {
            frame.may_end = true;
            continue;
        }
        frame.reached.push_back(place);
        if (!automaton_->accepts_at(place.state, place.count)) continue;
        const Frame& below = frames_[place.frame];
        frame.reached.insert(frame.reached.end(), below.reached.begin(), below.reached.end());
        frame.may_end |= below.may_end;
    }
    reduce(frame.reached);
    count_stored(frame.returns.size() + frame.reached.size());
    frames_.push_back(std::move(frame));
    try {
        frame_numbers_.emplace(std::move(returns), number);
    } catch (...) {
        frames_.pop_back();
        throw;
    }
    return number;
}

// Sorts the places and drops those that another one of the same state and count makes superfluous. Later frames are usually the ones
// that allow more.
void Positions::reduce(PlaceList& places) {
    std::ranges::sort(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
    const auto are_alike = [](const Place& a, const Place& b) {
        return a.state == b.state && a.count == b.count;
    };
    if (std::ranges::adjacent_find(places, are_alike) == places.end()) return;
    PlaceList kept;  // backwards
    for (size_t i = places.size(); i-- > 0;) {
        bool is_kept = true;
        for (size_t n = 0; n < std::min(kept.size(), k_max_compared) && is_kept; ++n) {
            const Place& other = kept[kept.size() - 1 - n];
            if (!are_alike(other, places[i])) break;
            is_kept = !is_within(places[i].frame, other.frame, k_max_depth);
        }
        if (is_kept) kept.push_back(places[i]);
    }
    places.assign(kept.rbegin(), kept.rend());
}

// Returns true if everything that may follow a rule of one frame may also follow one of the other: each of its returns has one
// of the same state and a frame that allows as much. False may also mean that this is not known.
bool Positions::is_within(int32_t frame, int32_t other, int depth) {
    if (frame == other) return true;
    if (depth == 0) return false;
    const uint64_t key = uint64_t{static_cast<uint32_t>(frame)} << 32 | static_cast<uint32_t>(other);
    if (const auto known = is_within_.find(key); known != is_within_.end()) return known->second;
    const PlaceList& returns = frames_[frame].returns;
    const Frame& into = frames_[other];
    bool is_inside = returns.size() * into.reached.size() <= k_max_pairs;
    for (size_t i = 0; i < returns.size() && is_inside; ++i) {
        const Place& place = returns[i];
        if (place.state == k_end_of_text) {
            is_inside = into.may_end;
            continue;
        }
        is_inside = std::ranges::any_of(into.reached, [&](const Place& reached) {
            return reached.state == place.state && reached.count == place.count &&
                   is_within(place.frame, reached.frame, depth - 1);
        });
    }
    is_within_.emplace(key, is_inside);
    count_stored(1);
    return is_inside;
}

void Positions::count_stored(size_t n_places) {
    n_stored_ += n_places;
    if (n_stored_ > k_max_stored) {
        fail(Status::unsupported,
             "the constraint is too ambiguous: following a text takes more than {} places", k_max_stored);
    }
}

int32_t Positions::keep_only(int32_t position) {
    const Entry& entry = entries_[position];
    std::vector<uint8_t> is_needed(frames_.size(), 0);
    const auto mark = [&](const PlaceList& places) {
        for (const Place& place : places)
            if (place.state != k_end_of_text) is_needed[place.frame] = 1;
    };
    mark(entry.places);
    for (size_t frame = frames_.size(); frame-- > 0;)
        if (is_needed[frame] != 0) mark(frames_[frame].returns);

    Positions kept(*automaton_);
    std::vector<int32_t> new_numbers(frames_.size(), 0);
    const auto renumbered = [&](PlaceList places) {
        for (Place& place : places)
            if (place.state != k_end_of_text) place.frame = new_numbers[place.frame];
        return places;
    };
    for (size_t frame = 0; frame < frames_.size(); ++frame)
        if (is_needed[frame] != 0) new_numbers[frame] = kept.frame_of(renumbered(frames_[frame].returns));
    kept.found_ = renumbered(entry.places);
    kept.found_end_ = may_end(position);
    const int32_t number = kept.position_of_found();
    kept.limit_of_stored_ = std::max(k_many_stored, 2 * kept.n_stored_);
    *this = std::move(kept);
    return number;
}

}  // namespace minim::constraint
