// SPDX-License-Identifier: Apache-2.0
#include "constraint/positions.h"

#include <algorithm>
#include <map>

namespace minim::constraint {

int32_t Positions::start_of(int32_t rule) {
    return alone_in(automaton_->rule_starts[static_cast<size_t>(rule)]);
}

int32_t Positions::alone_in(int32_t state) {
    found_.clear();
    found_.push_back({state, frame_of({{k_end_of_text, 0}})});
    found_end_ = automaton_->accepts[static_cast<size_t>(state)] != 0;
    return position_of_found();
}

int32_t Positions::read(int32_t position, std::string_view bytes) {
    for (const char byte : bytes) {
        if (position == k_dead) break;
        position = step(position, automaton_->symbol_of_byte[static_cast<uint8_t>(byte)]);
    }
    return position;
}

int32_t Positions::after(int32_t frame) {
    found_.clear();
    found_end_ = false;
    returned_.clear();
    return_to(frame);
    return position_of_found();
}

int32_t Positions::work_out(int32_t position, int32_t symbol) {
    found_.clear();
    found_end_ = false;
    returned_.clear();
    for (const Place& place : entries_[static_cast<size_t>(position)].readers) {
        const int32_t state = automaton_->step(place.state, symbol);
        if (state == Automaton::k_none) continue;
        if (!automaton_->is_last(state)) found_.push_back({state, place.frame});
        if (automaton_->accepts[static_cast<size_t>(state)] != 0) return_to(place.frame);
    }
    const int32_t next = position_of_found();
    next_[static_cast<size_t>(position) * n_symbols_ + static_cast<size_t>(symbol)] = next;
    return next;
}

// Adds the places after a rule of the frame, and if such a place may end its own rule, the places after that one.
void Positions::return_to(int32_t frame) {
    const size_t first = returned_.size();
    if (std::ranges::find(returned_, frame) != returned_.end()) return;
    returned_.push_back(frame);
    for (size_t i = first; i < returned_.size(); ++i) {
        for (const Place& place : frames_[static_cast<size_t>(returned_[i])]) {
            if (place.state == k_end_of_text) {
                found_end_ = true;
                continue;
            }
            if (!automaton_->is_last(place.state)) found_.push_back(place);
            if (automaton_->accepts[static_cast<size_t>(place.state)] != 0 &&
                std::ranges::find(returned_, place.frame) == returned_.end())
                returned_.push_back(place.frame);
        }
    }
}

int32_t Positions::position_of_found() {
    if (found_.empty() && !found_end_) return k_dead;
    std::ranges::sort(found_);
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    PlaceList key = found_;
    if (found_end_) key.push_back({k_end_of_text, 0});
    const auto known = numbers_.find(key);
    if (known != numbers_.end()) return known->second;

    const size_t number = entries_.size();
    Entry entry{.places = found_, .readers = readers_of(found_)};
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
            Called& entry = called[automaton_->call_order[static_cast<size_t>(call.rule)]];
            entry.rule = call.rule;
            if (!automaton_->is_last(call.next)) {
                entry.returns.push_back({call.next, place.frame});
                continue;
            }
            // A call at the very end of a rule returns to where that rule returns.
            const PlaceList& returns = frames_[static_cast<size_t>(place.frame)];
            entry.returns.insert(entry.returns.end(), returns.begin(), returns.end());
        }
    };
    for (const Place& place : places) add_calls(place);
    while (!called.empty()) {
        const Called entry = std::move(called.begin()->second);
        called.erase(called.begin());
        const Place start = {automaton_->rule_starts[static_cast<size_t>(entry.rule)],
                             frame_of(entry.returns)};
        readers.push_back(start);
        add_calls(start);
    }
    return readers;
}

int32_t Positions::frame_of(PlaceList returns) {
    std::ranges::sort(returns);
    returns.erase(std::unique(returns.begin(), returns.end()), returns.end());
    const auto number = static_cast<int32_t>(frames_.size());
    const auto known = frame_numbers_.find(returns);
    if (known != frame_numbers_.end()) return known->second;
    frames_.push_back(returns);
    try {
        frame_numbers_.emplace(std::move(returns), number);
    } catch (...) {
        frames_.pop_back();
        throw;
    }
    return number;
}

int32_t Positions::keep_only(int32_t position) {
    const Entry& entry = entries_[static_cast<size_t>(position)];
    std::vector<uint8_t> is_needed(frames_.size(), 0);
    const auto mark = [&](const PlaceList& places) {
        for (const Place& place : places)
            if (place.state != k_end_of_text) is_needed[static_cast<size_t>(place.frame)] = 1;
    };
    mark(entry.places);
    for (size_t frame = frames_.size(); frame-- > 0;)
        if (is_needed[frame] != 0) mark(frames_[frame]);

    Positions kept(*automaton_);
    std::vector<int32_t> new_numbers(frames_.size(), 0);
    const auto renumbered = [&](PlaceList places) {
        for (Place& place : places)
            if (place.state != k_end_of_text) place.frame = new_numbers[static_cast<size_t>(place.frame)];
        return places;
    };
    for (size_t frame = 0; frame < frames_.size(); ++frame)
        if (is_needed[frame] != 0) new_numbers[frame] = kept.frame_of(renumbered(frames_[frame]));
    kept.found_ = renumbered(entry.places);
    kept.found_end_ = may_end(position);
    const int32_t number = kept.position_of_found();
    *this = std::move(kept);
    return number;
}

}  // namespace minim::constraint
