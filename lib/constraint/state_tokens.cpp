// SPDX-License-Identifier: Apache-2.0
#include "constraint/state_tokens.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace minim::constraint {
namespace {

constexpr size_t k_max_references = 4;
constexpr int32_t k_untried = -2;   // of a transition
constexpr int32_t k_not_seen = -2;  // of a place
constexpr int32_t k_mixed = -3;     // of a place at which the state has several positions
// At most one of 16 tokens or nodes is tried individually. If there are more, it is better to try all tokens, because
// other states can use the results.
constexpr size_t k_min_share = 16;

void set_bit(std::vector<uint64_t>& bits, int32_t id) noexcept {
    bits[int64_t{id} / 64] |= uint64_t{1} << (id % 64);
}

void flip_bit(std::vector<uint64_t>& bits, int32_t id) noexcept {
    bits[int64_t{id} / 64] ^= uint64_t{1} << (id % 64);
}

}  // namespace

StateTokensFinder::StateTokensFinder(const Automaton& automaton, const tokenizer::Tokenizer& tokenizer,
                                     const TokenTrie& trie)
    : automaton_(&automaton),
      tokenizer_(&tokenizer),
      trie_(&trie),
      n_words_((static_cast<size_t>(trie.n_vocab()) + 63) / 64),
      positions_(automaton) {}

StateTokens StateTokensFinder::find(int32_t state, int32_t count) {
    if (positions_.are_many()) positions_ = Positions(*automaton_);
    start_ = positions_.alone_in(state, count);
    for (size_t i = references_.size(); i-- > 0;) {
        auto tokens = tokens_like(references_[i]);
        if (!tokens) continue;
        const auto used = references_.begin() + static_cast<std::ptrdiff_t>(i);
        std::rotate(used, used + 1, references_.end());
        return *std::move(tokens);
    }
    return try_all();
}

StateTokens StateTokensFinder::try_all() {
    const auto nodes = trie_->nodes();
    const auto n_symbols = static_cast<size_t>(automaton_->n_symbols);
    const auto& symbol_of_byte = automaton_->symbol_of_byte;
    Reference found;
    positions_of_.clear();
    place_of_.clear();
    next_.clear();
    add_place(found, start_);
    // One entry more than needed: each node is written as an entry, which the next node overwrites unless the node is a
    // token's.
    allowed_.resize(trie_->n_vocab() + 1);
    size_t n_allowed = 0;
    const auto step = [&](int32_t i, int32_t from) {
        const TokenTrie::Node& node = nodes[i];
        const int32_t symbol = symbol_of_byte[node.byte];
        int32_t to = next_[int64_t{from} * n_symbols + symbol];
        if (to == k_untried) to = follow(found, from, symbol);
        if (to == k_dead) {
            found.refused.push_back({i, from});
            return to;
        }
        allowed_[n_allowed] = {node.token, to};
        n_allowed += node.token >= 0 ? 1 : 0;
        if (found.may_end[to] != 0 && node.end > i + 1) found.exits.push_back({i, to});
        return to;
    };
    walk_down(*trie_, 0, static_cast<int32_t>(nodes.size()), 0, path_, step);

    StateTokens tokens;
    for (const NodeAt& exit : found.exits) tokens.exits.push_back(exit.node);
    const auto allowed = std::span(allowed_).first(n_allowed);
    if (are_few(n_allowed)) {
        for (const auto& [token, place] : allowed) tokens.few.push_back(token);
        return tokens;
    }
    tokens.bits.resize(n_words_);
    for (const auto& [token, place] : allowed) set_bit(tokens.bits, token);

    const size_t n_places = found.may_end.size();
    found.hides_exits.resize(n_places, 0);
    for (const Transition& transition : found.transitions) {
        if (found.may_end[transition.from] == 0) found.hides_exits[transition.from] = 1;
    }
    found.begins.resize(n_places + 1, 0);
    for (const auto& [token, place] : allowed) ++found.begins[int64_t{place} + 1];
    std::partial_sum(found.begins.begin(), found.begins.end(), found.begins.begin());
    found.tokens.resize(n_allowed);
    std::vector<uint32_t> ends(found.begins.begin(), found.begins.end() - 1);
    for (const auto& [token, place] : allowed) found.tokens[ends[place]++] = token;
    found.bits = tokens.bits;
    if (references_.size() == k_max_references) references_.erase(references_.begin());
    references_.push_back(std::move(found));
    return tokens;
}

// Computes the place that a symbol leads to from another.
int32_t StateTokensFinder::follow(Reference& found, int32_t from, int32_t symbol) {
    const int32_t position = positions_.step(positions_of_[from], symbol);
    const int32_t to = position == k_dead ? k_dead : add_place(found, position);
    next_[int64_t{from} * automaton_->n_symbols + symbol] = to;
    found.transitions.push_back({from, symbol, to});
    return to;
}

// Returns the place of a position, which may exist already.
int32_t StateTokensFinder::add_place(Reference& found, int32_t position) {
    const auto index = static_cast<size_t>(position);
    if (index >= place_of_.size()) place_of_.resize(index + 1, k_not_seen);
    int32_t& place = place_of_[index];
    if (place != k_not_seen) return place;
    place = static_cast<int32_t>(positions_of_.size());
    positions_of_.push_back(position);
    found.may_end.push_back(positions_.may_end(position) ? 1 : 0);
    next_.resize(next_.size() + automaton_->n_symbols, k_untried);
    return place;
}

// Returns the tokens of a state that has the transitions of the reference; nothing if its transitions differ.
std::optional<StateTokens> StateTokensFinder::tokens_like(const Reference& reference) {
    if (!find_places(reference)) return std::nullopt;
    StateTokens found;
    if (!add_refused(reference, found)) return std::nullopt;
    for (const NodeAt& exit : reference.exits) {
        const int32_t position = position_at(exit.place, exit.node);
        if (position != k_dead && positions_.may_end(position)) found.exits.push_back(exit.node);
    }
    const size_t n_places = reference.may_end.size();
    const auto tokens_at = [&](size_t place) {
        const uint32_t begin = reference.begins[place];
        return std::span(reference.tokens).subspan(begin, reference.begins[place + 1] - begin);
    };
    size_t n_kept = 0;
    for (size_t place = 0; place < n_places; ++place) {
        if (positions_of_[place] == k_mixed) {
            for (const int32_t token : tokens_at(place))
                if (positions_.read(start_, tokenizer_->token_bytes(token)) != k_dead)
                    found.few.push_back(token);
        } else if (positions_of_[place] != k_dead) {
            n_kept += tokens_at(place).size();
        }
    }
    const auto is_kept = [&](size_t place) {
        return positions_of_[place] != k_dead && positions_of_[place] != k_mixed;
    };
    if (are_few(n_kept + found.few.size())) {
        for (size_t place = 0; place < n_places; ++place)
            if (is_kept(place))
                found.few.insert(found.few.end(), tokens_at(place).begin(), tokens_at(place).end());
        return found;
    }
    // Iterates over the smaller of the two sets: tokens that stay, or tokens that are left out.
    const bool are_most_kept = 2 * n_kept > reference.tokens.size();
    if (are_most_kept)
        found.bits = reference.bits;
    else
        found.bits.resize(n_words_);
    for (size_t place = 0; place < n_places; ++place) {
        if (is_kept(place) == are_most_kept) continue;
        for (const int32_t token : tokens_at(place)) flip_bit(found.bits, token);
    }
    for (const int32_t token : found.few) set_bit(found.bits, token);
    found.few = {};
    return found;
}

// Finds the state's position at each place of the reference. Returns false if many tokens have other transitions.
bool StateTokensFinder::find_places(const Reference& reference) {
    positions_of_.assign(reference.may_end.size(), k_not_seen);
    positions_of_[0] = start_;
    size_t n_mixed = 0;
    bool has_changed = true;
    while (has_changed) {
        has_changed = false;
        for (const Transition& transition : reference.transitions) {
            if (transition.to == k_dead) continue;
            const int64_t place = transition.to;
            if (positions_of_[place] == k_mixed) continue;
            const int32_t from = positions_of_[transition.from];
            const int32_t to = from < 0 ? from : positions_.step(from, transition.symbol);
            if (positions_of_[place] == to) continue;
            const bool is_first = positions_of_[place] == k_not_seen;
            positions_of_[place] = is_first ? to : k_mixed;
            if (positions_of_[place] != k_mixed) continue;
            // Later places may have been computed from only one of the two positions.
            has_changed = true;
            n_mixed += reference.begins[place + 1] - reference.begins[place];
            if (reference.hides_exits[place] != 0 || n_mixed > reference.tokens.size() / k_min_share)
                return false;
        }
    }
    for (size_t place = 0; place < positions_of_.size(); ++place) {
        const bool may_end = positions_of_[place] >= 0 && positions_.may_end(positions_of_[place]);
        if (may_end && reference.hides_exits[place] != 0) return false;
    }
    return true;
}

// Returns the state's position after a node's text, which led the reference to the place.
int32_t StateTokensFinder::position_at(int32_t place, int32_t node) {
    const int32_t position = positions_of_[place];
    return position != k_mixed ? position : positions_.read(start_, text_of(node));
}

// Returns the bytes that lead to a node: those with which the tokens below it begin.
std::string_view StateTokensFinder::text_of(int32_t node) const {
    const auto nodes = trie_->nodes();
    int64_t i = node;
    const size_t length = nodes[i].depth;
    while (nodes[i].token < 0) ++i;
    return tokenizer_->token_bytes(nodes[i].token).substr(0, length);
}

// Adds the tokens that the state allows and the reference does not. Returns false if too many must be tried.
bool StateTokensFinder::add_refused(const Reference& reference, StateTokens& found) {
    const auto nodes = trie_->nodes();
    size_t n_tried = 0;
    for (const NodeAt& refused : reference.refused) {
        const TokenTrie::Node& node = nodes[refused.node];
        const int32_t from = positions_of_[refused.place];
        int32_t to = k_dead;
        if (from >= 0) to = positions_.step(from, automaton_->symbol_of_byte[node.byte]);
        if (from == k_mixed) {
            to = positions_.read(start_, text_of(refused.node));
            ++n_tried;
        }
        if (to != k_dead) n_tried += node.end - refused.node;
        if (n_tried > nodes.size() / k_min_share) return false;
        if (to == k_dead) continue;
        const auto reached = [&](int32_t i, int32_t position) {
            const TokenTrie::Node& at = nodes[i];
            if (at.token >= 0) found.few.push_back(at.token);
            if (positions_.may_end(position) && at.end > i + 1) found.exits.push_back(i);
        };
        reached(refused.node, to);
        try_tokens(*trie_, positions_, refused.node + 1, node.end, to, path_, reached);
    }
    return true;
}

}  // namespace minim::constraint
