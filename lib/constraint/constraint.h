// What an answer must look like, compiled for one vocabulary: which tokens may come next wherever the text
// stands. Nearly all of that depends on the state alone and not on who called its rule; it is found once a
// state and kept (state_tokens). The rest are tokens that reach beyond the end of a rule, as `"}` does beyond
// a JSON string: few, and tried one by one (matcher.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "constraint/automaton.h"
#include "constraint/positions.h"
#include "constraint/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace minim::constraint {

// Tokens that may follow in a state, as far as its own rule and the rules it calls decide.
struct StateTokens {
    std::vector<int32_t> few;    // their ids, where they are few
    std::vector<uint64_t> bits;  // else one bit an id
    // Nodes of the trie where the rule may end, with more tokens below.
    std::vector<int32_t> exits;

    uint64_t bytes() const noexcept {
        return (few.size() + exits.size()) * sizeof(int32_t) + bits.size() * sizeof(uint64_t);
    }
};

// Any thread.
class Constraint {
  public:
    // `starts_after`: any text is allowed up to and with this token, and two newlines behind it. Throws what
    // make_automaton does.
    Constraint(Grammar grammar, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
               std::shared_ptr<const TokenTrie> trie, std::optional<int32_t> starts_after);

    const Automaton& automaton() const noexcept { return automaton_; }
    const TokenTrie& trie() const noexcept { return *trie_; }
    const tokenizer::Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
    std::optional<int32_t> starts_after() const noexcept { return starts_after_; }

    std::shared_ptr<const StateTokens> state_tokens(int32_t state) const;

  private:
    // Tokens of a state that allows many, kept to find those of states that are nearly like it.
    struct Reference {
        int32_t state;
        std::vector<int32_t> nodes;  // of the allowed tokens, ascending
        std::shared_ptr<const StateTokens> tokens;
    };
    std::shared_ptr<const StateTokens> find_tokens(int32_t state) const;
    std::shared_ptr<const StateTokens> try_all_tokens(int32_t state) const;
    StateTokens tokens_like(const Reference& reference, int32_t state) const;

    std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
    std::shared_ptr<const TokenTrie> trie_;
    std::optional<int32_t> starts_after_;
    Automaton automaton_;

    mutable std::mutex mutex_;
    mutable Positions positions_;                                                     // for find_tokens
    mutable std::unordered_map<int32_t, std::shared_ptr<const StateTokens>> tokens_;  // by kind
    mutable uint64_t tokens_bytes_ = 0;
    mutable std::vector<Reference> references_;
    mutable std::vector<int32_t> path_;
    mutable std::vector<int32_t> found_nodes_;
};

// Tries the tokens of the nodes from `first` to before `last`, all below one node whose text led to
// `position`, and calls reached(node, position) for each text that the grammar allows. `path` is scratch.
template <typename Reached>
void try_tokens(const Constraint& constraint, Positions& positions, int32_t first, int32_t last,
                int32_t position, std::vector<int32_t>& path, Reached reached) {
    if (first == last) return;
    const auto nodes = constraint.trie().nodes();
    const auto& symbol_of_byte = constraint.automaton().symbol_of_byte;
    const size_t depth_above = nodes[static_cast<size_t>(first)].depth - size_t{1};
    path.resize(constraint.trie().longest_token() + 1);  // positions by depth
    path[0] = position;
    for (int32_t i = first; i < last;) {
        const TokenTrie::Node& node = nodes[static_cast<size_t>(i)];
        const size_t depth = node.depth - depth_above;
        const int32_t next = positions.step(path[depth - 1], symbol_of_byte[node.byte]);
        if (next == Positions::k_dead) {
            i = node.end;
            continue;
        }
        path[depth] = next;
        reached(i, next);
        ++i;
    }
}

}  // namespace minim::constraint
