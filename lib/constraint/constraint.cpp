#include "constraint/constraint.h"

#include <algorithm>
#include <span>
#include <utility>

namespace minim::constraint {
namespace {

constexpr uint64_t k_most_kept_bytes = uint64_t{64} << 20;
constexpr size_t k_most_references = 4;
constexpr int32_t k_least_alike = 10;  // symbols; below, following two states costs more than one
constexpr int64_t k_newlines_after_reasoning = 2;

void set_bit(std::vector<uint64_t>& bits, int32_t id) noexcept {
    bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
}

void clear_bit(std::vector<uint64_t>& bits, int32_t id) noexcept {
    bits[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << (static_cast<size_t>(id) % 64));
}

// The place of the first entry of an ascending list that is not below `least`, looked for from `at` on in
// growing strides: it is near as a rule.
size_t first_from(const std::vector<int32_t>& list, size_t at, int32_t least) noexcept {
    size_t stride = 1;
    while (at + stride <= list.size() && list[at + stride - 1] < least) {
        at += stride;
        stride *= 2;
    }
    const auto begin = list.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = list.begin() + static_cast<std::ptrdiff_t>(std::min(at + stride, list.size()));
    return static_cast<size_t>(std::lower_bound(begin, end, least) - list.begin());
}

Grammar after_reasoning(Grammar grammar) {
    const Part newlines = grammar.repeat(grammar.byte_in(ByteSet().set('\n')), 0, k_newlines_after_reasoning);
    const Part answer = grammar.call(grammar.start());
    grammar.start_with(grammar.sequence({newlines, answer}));
    return grammar;
}

}  // namespace

Constraint::Constraint(Grammar grammar, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                       std::shared_ptr<const TokenTrie> trie, std::optional<int32_t> starts_after)
    : tokenizer_(std::move(tokenizer)),
      trie_(std::move(trie)),
      starts_after_(starts_after),
      automaton_(make_automaton(starts_after ? after_reasoning(std::move(grammar)) : grammar,
                                trie_->longest_token())),
      positions_(automaton_) {}

std::shared_ptr<const StateTokens> Constraint::state_tokens(int32_t state) const {
    const int32_t kind = automaton_.kinds[static_cast<size_t>(state)];
    const std::lock_guard lock(mutex_);
    const auto known = tokens_.find(kind);
    if (known != tokens_.end()) return known->second;

    auto tokens = find_tokens(state);
    if (tokens_bytes_ + tokens->bytes() > k_most_kept_bytes) {
        tokens_.clear();
        tokens_bytes_ = 0;
    }
    tokens_.emplace(kind, tokens);
    tokens_bytes_ += tokens->bytes();
    return tokens;
}

std::shared_ptr<const StateTokens> Constraint::find_tokens(int32_t state) const {
    if (positions_.are_many()) positions_ = Positions(automaton_);
    const Reference* nearest = nullptr;
    int32_t alike_for = k_least_alike - 1;
    for (const Reference& reference : references_) {
        const int32_t length = automaton_.alike_for(reference.state, state);
        if (length > alike_for) nearest = &reference;
        alike_for = std::max(alike_for, length);
    }
    if (nearest == nullptr) return try_all_tokens(state);
    return std::make_shared<const StateTokens>(tokens_like(*nearest, state));
}

std::shared_ptr<const StateTokens> Constraint::try_all_tokens(int32_t state) const {
    const auto nodes = trie_->nodes();
    StateTokens tokens;
    // One entry too many: each node's index is written, and stays where the node is a token's.
    found_nodes_.resize(static_cast<size_t>(trie_->n_vocab()) + 1);
    size_t n_allowed = 0;
    try_tokens(*this, positions_, 0, static_cast<int32_t>(nodes.size()), positions_.alone_in(state), path_,
               [&](int32_t i, int32_t position) {
                   const TokenTrie::Node& node = nodes[static_cast<size_t>(i)];
                   found_nodes_[n_allowed] = i;
                   n_allowed += node.token >= 0 ? 1 : 0;
                   if (positions_.may_end(position) && node.end > i + 1) tokens.exits.push_back(i);
               });
    const auto allowed = std::span(found_nodes_).first(n_allowed);
    // As bits where these are smaller.
    const size_t n_words = (static_cast<size_t>(trie_->n_vocab()) + 63) / 64;
    const bool are_few = allowed.size() <= 2 * n_words;
    if (are_few) {
        for (const int32_t i : allowed) tokens.few.push_back(nodes[static_cast<size_t>(i)].token);
        return std::make_shared<const StateTokens>(std::move(tokens));
    }
    tokens.bits.resize(n_words);
    for (const int32_t i : allowed) set_bit(tokens.bits, nodes[static_cast<size_t>(i)].token);
    auto shared = std::make_shared<const StateTokens>(std::move(tokens));
    if (references_.size() == k_most_references) references_.erase(references_.begin());
    references_.push_back({state, {allowed.begin(), allowed.end()}, shared});
    return shared;
}

// Follows both states down the tree, and goes below a node only where the texts below are long enough to tell
// them apart: a text that must end after 50 more characters is like one without a limit for nearly all
// tokens.
StateTokens Constraint::tokens_like(const Reference& reference, int32_t state) const {
    const auto nodes = trie_->nodes();
    const auto& symbol_of_byte = automaton_.symbol_of_byte;
    StateTokens tokens{.few = {}, .bits = reference.tokens->bits, .exits = {}};
    const std::vector<int32_t>& their_exits = reference.tokens->exits;
    std::vector<int32_t> their_path(trie_->longest_token() + 1);
    path_.resize(trie_->longest_token() + 1);
    their_path[0] = positions_.alone_in(reference.state);
    path_[0] = positions_.alone_in(state);
    const auto step = [&](int32_t position, uint8_t byte) {
        return position < 0 ? Positions::k_dead : positions_.step(position, symbol_of_byte[byte]);
    };
    // The entries of an ascending list from `first` to before `last`, both of which only grow from call to
    // call.
    const auto within = [](const std::vector<int32_t>& list, size_t& at, int32_t first, int32_t last) {
        const size_t begin = first_from(list, at, first);
        at = first_from(list, begin, last);
        return std::span(list).subspan(begin, at - begin);
    };
    size_t at_node = 0;
    size_t at_exit = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(nodes.size());) {
        const TokenTrie::Node& node = nodes[static_cast<size_t>(i)];
        const int32_t theirs = step(their_path[node.depth - size_t{1}], node.byte);
        const int32_t ours = step(path_[node.depth - size_t{1}], node.byte);
        if (ours == Positions::k_dead) {
            for (const int32_t removed : within(reference.nodes, at_node, i, node.end))
                clear_bit(tokens.bits, nodes[static_cast<size_t>(removed)].token);
            i = node.end;
        } else if (theirs != Positions::k_dead && positions_.alike_for(theirs, ours) >= node.height) {
            const auto kept = within(their_exits, at_exit, i, node.end);
            tokens.exits.insert(tokens.exits.end(), kept.begin(), kept.end());
            i = node.end;
        } else {
            their_path[node.depth] = theirs;
            path_[node.depth] = ours;
            if (node.token >= 0) set_bit(tokens.bits, node.token);
            if (positions_.may_end(ours) && node.end > i + 1) tokens.exits.push_back(i);
            ++i;
        }
    }
    return tokens;
}

}  // namespace minim::constraint
