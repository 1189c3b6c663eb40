// SPDX-License-Identifier: Apache-2.0
// Sets of texts as deterministic automata over characters, which can be intersected and complemented: the combined
// conditions of the keywords for one string or number.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/code_points.h"
#include "constraint/grammar.h"

namespace minim::constraint {

struct TextAutomaton {
    static constexpr int32_t k_none = -1;

    // Disjoint sets of characters that no state distinguishes. Other characters occur in no text.
    std::vector<CodePoints> classes;
    std::vector<int32_t> next;     // [state, class]; k_none: no text continues with the class
    std::vector<uint8_t> accepts;  // by state; the first is the start

    size_t n_states() const noexcept { return accepts.size(); }
    int32_t step(int32_t state, size_t of_class) const noexcept {
        return next[int64_t{state} * classes.size() + of_class];
    }
    int32_t add_state(bool may_end);
    void connect(int32_t from, size_t of_class, int32_t to) noexcept {
        next[int64_t{from} * classes.size() + of_class] = to;
    }

    bool has(std::string_view utf8) const;
    bool is_empty() const;  // true if it has no text
};

constexpr size_t k_max_text_states = 250'000;

// Returns the texts of both. Throws unsupported, beginning with `where`, if it takes more than k_max_text_states.
TextAutomaton both(const TextAutomaton& a, const TextAutomaton& b, std::string_view where);
// Returns all other texts.
TextAutomaton other_texts(const TextAutomaton& texts);
// Returns the texts of `least` to `most` characters; `most` < 0: no limit.
TextAutomaton texts_of_length(int64_t least, int64_t most);
// Returns the texts in which `closer` (ASCII) does not occur.
TextAutomaton texts_without(std::string_view closer);
// Returns exactly these texts, which are UTF-8.
TextAutomaton listed_texts(const std::vector<std::string>& texts);

// Removes the states from which no text ends.
void drop_dead_states(TextAutomaton& automaton);

// Merges states that accept the same texts, unless there are very many states.
void merge_alike_states(TextAutomaton& automaton);

// Returns classes of characters such that no set distinguishes two characters of a class.
std::vector<CodePoints> character_classes(const std::vector<CodePoints>& sets);

// Returns how one character of a set is written in the text.
using Spelling = std::function<Part(const CodePoints&)>;

// Returns the spelling that writes characters in UTF-8. The grammar must outlive it.
Spelling utf8_spelling(Grammar& grammar);

Grammar::Graph graph_of(const TextAutomaton& automaton, const Spelling& spelling);
Part part_of(Grammar& grammar, const TextAutomaton& automaton, const Spelling& spelling);

}  // namespace minim::constraint
