// SPDX-License-Identifier: Apache-2.0
// The tokens that may follow in a state of an automaton.
//
// Finding them means following every token down the tree until it fails: a step for each node, 3 ms for a state that
// allows nearly all of 200 000. There are many bounded-repetition states (maxLength), but they differ in how long a
// text may be and not in where its bytes lead. So for a few reference states, the tokens are stored by the place that
// each leads to, with the transitions between these places. For another state with the same transitions, each
// transition is followed once instead of each token, and the tokens of places where it fails are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "constraint/automaton.h"
#include "constraint/positions.h"
#include "constraint/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace minim::constraint {

// The tokens that the state's own rule and the rules that it calls decide.
struct StateTokens {
    std::vector<int32_t> few;    // their ids, if they are few
    std::vector<uint64_t> bits;  // else one bit an id
    // Nodes of the trie where the rule may end, with more tokens below.
    std::vector<int32_t> exits;

    uint64_t bytes() const noexcept {
        return (few.size() + exits.size()) * sizeof(int32_t) + bits.size() * sizeof(uint64_t);
    }
};

// One thread at a time.
class StateTokensFinder {
  public:
    // All must outlive it. The tree is of the tokenizer's tokens.
    StateTokensFinder(const Automaton& automaton, const tokenizer::Tokenizer& tokenizer,
                      const TokenTrie& trie);

    StateTokens find(int32_t state, int32_t count = 0);

  private:
    static constexpr int32_t k_dead = Positions::k_dead;

    // A transition of tokens, between places numbered in the order in which they were reached.
    struct Transition {
        int32_t from;
        int32_t symbol;
        int32_t to;  // or k_dead
    };
    struct NodeAt {
        int32_t node;
        int32_t place;
    };
    // The stored data of a reference state, which allows many tokens.
    struct Reference {
        std::vector<Transition> transitions;  // the first transition to a place comes before those from it
        std::vector<uint8_t> may_end;         // by place
        std::vector<uint8_t>
            hides_exits;  // by place; 1: the reference may not end here, so exits are unknown for a state that may
        std::vector<uint32_t> begins;  // [n_places + 1], into `tokens`
        std::vector<int32_t> tokens;   // by the place they lead to
        std::vector<uint64_t> bits;    // the same tokens
        std::vector<NodeAt> exits;     // at places that may end
        std::vector<NodeAt> refused;   // nodes with which texts fail, and the place before them
    };

    StateTokens try_all();
    int32_t follow(Reference& found, int32_t from, int32_t symbol);
    int32_t add_place(Reference& found, int32_t position);
    std::optional<StateTokens> tokens_like(const Reference& reference);
    bool find_places(const Reference& reference);
    int32_t position_at(int32_t place, int32_t node);
    std::string_view text_of(int32_t node) const;
    bool add_refused(const Reference& reference, StateTokens& found);
    bool are_few(size_t n_tokens) const noexcept { return n_tokens <= 2 * n_words_; }

    const Automaton* automaton_;
    const tokenizer::Tokenizer* tokenizer_;
    const TokenTrie* trie_;
    size_t n_words_;  // of a mask
    Positions positions_;
    std::vector<Reference> references_;  // the last one used is last

    // The current search:
    int32_t start_ = 0;                  // the state's position
    std::vector<int32_t> positions_of_;  // by place; for a state like a reference also k_dead or k_mixed
    std::vector<int32_t> place_of_;      // by position
    std::vector<int32_t> next_;          // [place, symbol]: a place
    std::vector<int32_t> path_;          // by depth
    std::vector<std::pair<int32_t, int32_t>> allowed_;  // tokens, and the places they lead to
};

// Visits the nodes from `first` to before `last`, all below one node whose text led to `place`. step(node, place)
// returns the place that a node leads to from the one above it; nodes below one that leads to k_dead are skipped.
// `path` is scratch.
template <typename Step>
void walk_down(const TokenTrie& trie, int32_t first, int32_t last, int32_t place, std::vector<int32_t>& path,
               Step step) {
    if (first == last) return;
    const auto nodes = trie.nodes();
    const size_t depth_above = nodes[first].depth - size_t{1};
    path.resize(trie.longest_token() + 1);  // places by depth
    path[0] = place;
    for (int32_t i = first; i < last;) {
        const TokenTrie::Node& node = nodes[i];
        const size_t depth = node.depth - depth_above;
        const int32_t next = step(i, path[depth - 1]);
        path[depth] = next;
        i = next == Positions::k_dead ? node.end : i + 1;
    }
}

// Tries the tokens of the nodes from `first` to before `last`, starting at a position, and calls reached(node,
// position) for each text that the grammar allows.
template <typename Reached>
void try_tokens(const TokenTrie& trie, Positions& positions, int32_t first, int32_t last, int32_t position,
                std::vector<int32_t>& path, Reached reached) {
    const auto nodes = trie.nodes();
    const auto& symbol_of_byte = positions.automaton().symbol_of_byte;
    walk_down(trie, first, last, position, path, [&](int32_t i, int32_t from) {
        const int32_t to = positions.step(from, symbol_of_byte[nodes[i].byte]);
        if (to != Positions::k_dead) reached(i, to);
        return to;
    });
}

}  // namespace minim::constraint
