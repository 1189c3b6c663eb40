// SPDX-License-Identifier: Apache-2.0
#include "constraint/regex_nfa.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "constraint/character_sets.h"

namespace minim::constraint {
namespace {

constexpr size_t k_max_states = 1'000'000;

// Converts the tree to states, from the end (Thompson's construction).
class Builder {
  public:
    explicit Builder(std::string_view where) : where_(where) {
        any_next_ = set_of(CodePoints::all());
        const int32_t found = add({.kind = RegexState::Kind::found});
        nfa_.any = add({.kind = RegexState::Kind::characters, .value = any_next_, .out = found});
        nfa_.word =
            add({.kind = RegexState::Kind::characters, .value = set_of(word_characters()), .out = found});
    }

    RegexNfa build_text(const RegexNode& tree, bool is_anywhere) {
        int32_t end = add({.kind = RegexState::Kind::accept});
        if (is_anywhere) end = any_text(end);
        const int32_t start = build(tree, end);
        nfa_.start = is_anywhere ? any_text(start) : start;
        return std::move(nfa_);
    }

  private:
    int32_t add(const RegexState& state) {
        if (nfa_.states.size() >= k_max_states)
            fail(Status::unsupported, "{}: a regular expression needs an automaton of more than {} states",
                 where_, k_max_states);
        nfa_.states.push_back(state);
        return static_cast<int32_t>(nfa_.states.size() - 1);
    }

    int32_t set_of(const CodePoints& set) {
        std::vector<uint32_t> key;
        for (const CodePoints::Range& range : set.ranges()) {
            key.push_back(range.first);
            key.push_back(range.last);
        }
        const auto [place, is_new] =
            set_numbers_.try_emplace(std::move(key), static_cast<int32_t>(nfa_.sets.size()));
        if (is_new) nfa_.sets.push_back(set);
        return place->second;
    }

    int32_t any_text(int32_t next) {
        const int32_t start = add({.kind = RegexState::Kind::split, .out = next});
        const int32_t any = add({.kind = RegexState::Kind::characters, .value = any_next_, .out = start});
        nfa_.states[start].other = any;
        return start;
    }

    int32_t build(const RegexNode& node, int32_t next) {
        switch (node.kind) {
            case RegexNode::Kind::characters:
                return add({.kind = RegexState::Kind::characters, .value = set_of(node.set), .out = next});
            case RegexNode::Kind::sequence:
                for (size_t i = node.nodes.size(); i-- > 0;) next = build(node.nodes[i], next);
                return next;
            case RegexNode::Kind::choice: {
                int32_t start = -1;
                for (size_t i = node.nodes.size(); i-- > 0;) {
                    const int32_t transition = build(node.nodes[i], next);
                    start = add({.kind = RegexState::Kind::split, .out = transition, .other = start});
                }
                return start >= 0 ? start : add({.kind = RegexState::Kind::split});
            }
            case RegexNode::Kind::repeat:
                return build_repeat(node, next);
            case RegexNode::Kind::text_start:
                nfa_.has_text_start = true;
                return add({.kind = RegexState::Kind::text_start, .out = next});
            case RegexNode::Kind::text_end:
                return add(
                    {.kind = RegexState::Kind::ahead, .is_negated = true, .value = nfa_.any, .out = next});
            case RegexNode::Kind::word_edge:
                nfa_.has_word_edge = true;
                return add({.kind = RegexState::Kind::word_edge, .is_negated = node.is_negated, .out = next});
            case RegexNode::Kind::look:
                return build_look(node, next);
        }
        return next;
    }

    int32_t build_repeat(const RegexNode& node, int32_t next) {
        int32_t start = next;
        if (node.most < 0) {
            start = add({.kind = RegexState::Kind::split, .other = next});
            const int32_t body = build(node.nodes[0], start);
            nfa_.states[start].out = body;
        } else {
            for (int64_t i = node.least; i < node.most; ++i) {
                const int32_t body = build(node.nodes[0], start);
                start = add({.kind = RegexState::Kind::split, .out = body, .other = next});
            }
        }
        for (int64_t i = 0; i < node.least; ++i) start = build(node.nodes[0], start);
        return start;
    }

    int32_t build_look(const RegexNode& node, int32_t next) {
        const bool was_in_behind = is_in_behind_;
        if (!node.is_behind && was_in_behind)
            fail(Status::unsupported, "{}: a regular expression has a lookahead within a lookbehind", where_);
        is_in_behind_ = was_in_behind || node.is_behind;
        const int32_t body = build(node.nodes[0], add({.kind = RegexState::Kind::found}));
        is_in_behind_ = was_in_behind;
        if (!node.is_behind)
            return add(
                {.kind = RegexState::Kind::ahead, .is_negated = node.is_negated, .value = body, .out = next});
        nfa_.behinds.push_back(body);
        return add({.kind = RegexState::Kind::behind,
                    .is_negated = node.is_negated,
                    .value = static_cast<int32_t>(nfa_.behinds.size() - 1),
                    .out = next});
    }

    RegexNfa nfa_;
    std::string_view where_;
    std::map<std::vector<uint32_t>, int32_t> set_numbers_;
    int32_t any_next_ = -1;
    bool is_in_behind_ = false;
};

}  // namespace

RegexNfa make_regex_nfa(const RegexNode& tree, bool is_anywhere, std::string_view where) {
    return Builder(where).build_text(tree, is_anywhere);
}

}  // namespace minim::constraint
