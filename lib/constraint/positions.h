// SPDX-License-Identifier: Apache-2.0
// The position of a text in an automaton: the states that it may be in, each with the stack of rules that called its rule.
// Positions and stacks are numbered and cached, so that each transition is computed once (a deterministic automaton, built
// lazily). Stacks share their lower parts: rules called at one place have one frame, however many paths lead there (Tomita's
// graph-structured stack). A place is dropped if another one of its state has a stack that allows all that its own allows, so
// that ambiguity (`sum ::= sum "+" sum | [0-9]`) does not make positions grow with the text.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "constraint/automaton.h"

namespace minim::constraint {

// One thread at a time.
class Positions {
  public:
    static constexpr int32_t k_dead = -1;  // no text of the grammar begins like this

    // The automaton must outlive it.
    explicit Positions(const Automaton& automaton)
        : automaton_(&automaton), n_symbols_(automaton.n_symbols) {}

    const Automaton& automaton() const noexcept { return *automaton_; }

    // Returns the position before any text of the rule.
    int32_t start_of(int32_t rule);
    // Returns the position in a state, with this count, whose rule no other rule has called: the text ends where the rule ends.
    int32_t alone_in(int32_t state, int32_t count = 0);

    int32_t step(int32_t position, int32_t symbol) {
        const int32_t known = next_[int64_t{position} * n_symbols_ + symbol];
        return known != k_unknown ? known : work_out(position, symbol);
    }

    // Returns the position after all these bytes; k_dead stays dead.
    int32_t read(int32_t position, std::string_view bytes);

    // Returns whether the text may end here.
    bool may_end(int32_t position) const noexcept { return may_end_[position] != 0; }
    // Returns whether nothing can follow.
    bool must_end(int32_t position) const noexcept { return entries_[position].places.empty(); }

    // A state of a rule, with its count if the rule counts, and the frame that tells where the text continues when the rule ends.
    struct Place {
        int32_t state;
        int32_t count;
        int32_t frame;
        bool operator==(const Place&) const = default;
        // clang-tidy mistakes the 0 of the generated comparison for a pointer.
        auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr)
    };
    // Returns the places after the last byte, without the rules that they call next.
    std::span<const Place> places(int32_t position) const noexcept { return entries_[position].places; }
    // Returns the position after the end of a rule whose places these are: all have one state and count.
    int32_t after(std::span<const Place> places);

    // Returns true if the cache is large enough to drop some entries.
    bool are_many() const noexcept { return entries_.size() > k_many || n_stored_ > limit_of_stored_; }
    // Drops all but this position; returns its new number.
    int32_t keep_only(int32_t position);

  private:
    static constexpr size_t k_many = 1 << 16;
    static constexpr size_t k_many_stored = 1 << 20;  // places
    static constexpr int32_t k_unknown = -2;
    static constexpr int32_t k_end_of_text = -1;  // as a Place's state: the text ends with the rule

    using PlaceList = std::vector<Place>;
    struct Entry {
        PlaceList places;
        PlaceList
            readers;  // the places, and those of the rules called there: all that may read the next symbol
    };

    struct Frame {
        PlaceList returns;     // places of frames with lower numbers: where a text goes on after the rule
        PlaceList reached;     // these, and the places after them if they may end their own rules
        bool may_end = false;  // the text may end with the rule
    };

    int32_t work_out(int32_t position, int32_t symbol);
    void return_to(int32_t frame);
    int32_t position_of_found();
    PlaceList readers_of(const PlaceList& places);
    int32_t frame_of(PlaceList returns);
    void reduce(PlaceList& places);
    bool is_within(int32_t frame, int32_t other, int depth);
    void count_stored(size_t n_places);

    const Automaton* automaton_;
    size_t n_symbols_;
    std::deque<Frame> frames_;
    std::unordered_map<PlaceList, int32_t, VectorHash<Place>> frame_numbers_;
    std::deque<Entry> entries_;
    std::vector<uint8_t> may_end_;
    std::vector<int32_t> next_;  // [position, symbol]
    std::unordered_map<PlaceList, int32_t, VectorHash<Place>> numbers_;
    std::unordered_map<uint64_t, bool> is_within_;  // by two frames
    size_t n_stored_ = 0;                           // places in frames and entries
    size_t limit_of_stored_ = k_many_stored;

    // The position being worked out.
    PlaceList found_;
    bool found_end_ = false;
    std::vector<int32_t> returned_;  // frames
};

}  // namespace minim::constraint
