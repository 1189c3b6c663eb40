// SPDX-License-Identifier: Apache-2.0
#include "constraint/nfa.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace minim::constraint {
namespace {

using Kind = Grammar::Kind;

class Builder {
  public:
    explicit Builder(const Grammar& grammar) : grammar_(grammar) {
        nfa_.byte_sets = grammar.byte_sets();
        find_empty_rules();
    }

    Nfa build() {
        for (const Grammar::Rule& rule : grammar_.rules()) {
            rule_ = &rule;
            nfa_.rule_counts.push_back(counts_of(rule));
            nfa_.rule_begins.push_back(add({.kind = NfaState::Kind::accept}));
            nfa_.rule_starts.push_back(build(rule.body, nfa_.rule_begins.back()));
        }
        return std::move(nfa_);
    }

  private:
    int32_t add(const NfaState& state) {
        if (nfa_.states.size() >= Nfa::k_max_states) {
            fail(Status::unsupported, "the constraint's part '{}' needs an automaton of more than {} states",
                 rule_->name, Nfa::k_max_states);
        }
        nfa_.states.push_back(state);
        return static_cast<int32_t>(nfa_.states.size() - 1);
    }

    int32_t split(int32_t out, int32_t other) {
        return add({.kind = NfaState::Kind::split, .out = out, .other = other});
    }

    // Returns the state from which the part's texts lead to `next`. A part that stands in several places before the
    // same state is built once.
    int32_t build(Part part, int32_t next) {
        const Kind kind = grammar_[part].kind;
        if (kind == Kind::empty || kind == Kind::byte || kind == Kind::token) return build_new(part, next);
        const uint64_t key = uint64_t{static_cast<uint32_t>(part.index)} << 32 | static_cast<uint32_t>(next);
        const auto known = built_.find(key);
        if (known != built_.end()) return known->second;
        const int32_t start = build_new(part, next);
        built_.emplace(key, start);
        return start;
    }

    int32_t build_new(Part part, int32_t next) {
        const Grammar::Expression& e = grammar_[part];
        switch (e.kind) {
            case Kind::empty:
                return next;
            case Kind::nothing:
                return split(-1, -1);
            case Kind::byte:
                return add({.kind = NfaState::Kind::byte, .value = e.value, .out = next});
            case Kind::token:
                return add({.kind = NfaState::Kind::token, .value = e.value, .out = next});
            case Kind::call: {
                const int32_t call = add({.kind = NfaState::Kind::call, .value = e.value, .out = next});
                return rule_may_be_empty_[e.value] ? split(call, next) : call;
            }
            case Kind::sequence: {
                int32_t start = next;
                for (size_t i = e.parts.size(); i-- > 0;) start = build(e.parts[i], start);
                return start;
            }
            case Kind::choice: {
                int32_t start = -1;
                for (size_t i = e.parts.size(); i-- > 0;) start = split(build(e.parts[i], next), start);
                return start;
            }
            case Kind::repeat:
                return build_repeat(e, next);
            case Kind::graph:
                return build_graph(grammar_.graphs()[e.value], next);
        }
        return next;
    }

    int32_t build_repeat(const Grammar::Expression& e, int32_t next) {
        int32_t start = next;
        if (e.most < 0) {
            start = split(-1, next);
            const int32_t body = build(e.parts[0], start);
            nfa_.states[start].out = body;
        } else {
            for (int64_t i = e.least; i < e.most; ++i) start = split(build(e.parts[0], start), next);
        }
        for (int64_t i = 0; i < e.least; ++i) start = build(e.parts[0], start);
        return start;
    }

    int32_t build_graph(const Grammar::Graph& graph, int32_t next) {
        std::vector<int32_t> starts;  // by state of the graph
        for (const uint8_t accepts : graph.accepts) {
            starts.push_back(split(-1, accepts != 0 ? next : -1));
            nfa_.states.back().is_counted = rule_->counts.has_value();
        }
        std::vector<int32_t> transitions(graph.accepts.size(), -1);
        for (const Grammar::Graph::Edge& edge : graph.edges) {
            int32_t& transition = transitions[edge.from];
            transition = split(build(edge.part, starts[edge.to]), transition);
        }
        for (size_t i = 0; i < starts.size(); ++i) nfa_.states[starts[i]].out = transitions[i];
        return starts[0];
    }

    // Parts that may be empty can be added until there are enough.
    std::optional<Grammar::Counts> counts_of(const Grammar::Rule& rule) const {
        auto counts = rule.counts;
        if (!counts) return counts;
        const auto& graph = grammar_.graphs()[grammar_[rule.body].value];
        for (const Grammar::Graph::Edge& edge : graph.edges)
            if (may_be_empty(edge.part)) counts->least = 0;
        return counts;
    }

    bool may_be_empty(const Grammar::Graph& graph) const {
        std::vector<bool> is_reached(graph.accepts.size(), false);
        is_reached[0] = true;
        for (bool has_changed = true; has_changed;) {
            has_changed = false;
            for (const Grammar::Graph::Edge& edge : graph.edges) {
                const int64_t to = edge.to;
                if (is_reached[to] || !is_reached[edge.from] || !may_be_empty(edge.part)) continue;
                is_reached[to] = true;
                has_changed = true;
            }
        }
        for (size_t i = 0; i < is_reached.size(); ++i)
            if (is_reached[i] && graph.accepts[i] != 0) return true;
        return false;
    }

    void find_empty_rules() {
        rule_may_be_empty_.assign(grammar_.rules().size(), false);
        bool has_changed = true;
        while (has_changed) {
            has_changed = false;
            for (size_t rule = 0; rule < grammar_.rules().size(); ++rule) {
                if (rule_may_be_empty_[rule] || !may_be_empty(grammar_.rules()[rule].body)) continue;
                const auto counts = counts_of(grammar_.rules()[rule]);
                if (counts && counts->least > 0) continue;
                rule_may_be_empty_[rule] = true;
                has_changed = true;
            }
        }
    }

    bool may_be_empty(Part part) const {
        const Grammar::Expression& e = grammar_[part];
        const auto is_empty = [this](Part p) { return may_be_empty(p); };
        switch (e.kind) {
            case Kind::empty:
                return true;
            case Kind::graph:
                return may_be_empty(grammar_.graphs()[e.value]);
            case Kind::nothing:
            case Kind::byte:
            case Kind::token:
                return false;
            case Kind::call:
                return rule_may_be_empty_[e.value];
            case Kind::sequence:
                return std::ranges::all_of(e.parts, is_empty);
            case Kind::choice:
                return std::ranges::any_of(e.parts, is_empty);
            case Kind::repeat:
                return e.least == 0 || may_be_empty(e.parts[0]);
        }
        return false;
    }

    const Grammar& grammar_;
    Nfa nfa_;
    const Grammar::Rule* rule_ = nullptr;  // being built
    std::vector<bool> rule_may_be_empty_;
    std::unordered_map<uint64_t, int32_t> built_;  // by part and the state behind it
};

}  // namespace

Nfa make_nfa(const Grammar& grammar) {
    return Builder(grammar).build();
}

}  // namespace minim::constraint
