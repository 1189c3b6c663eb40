// SPDX-License-Identifier: Apache-2.0
#include "constraint/automaton.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "base/hash.h"
#include "constraint/left_recursion.h"
#include "constraint/nfa.h"

namespace minim::constraint {
namespace {

constexpr size_t k_most_entries = 16'000'000;  // of Automaton::next
constexpr size_t k_most_states = 250'000;

constexpr int32_t k_none = Automaton::k_none;

// Sorted NFA states that read or accept something.
using StateSet = std::vector<int32_t>;

class Builder {
  public:
    Builder(const Grammar& grammar, size_t longest_token)
        : grammar_(grammar), nfa_(make_nfa(grammar)), longest_token_(longest_token) {
        remove_left_recursion(nfa_, grammar);
    }

    Automaton build() {
        name_symbols();
        for (size_t rule = 0; rule < grammar_.rules().size(); ++rule) determinise(rule);
        a_.call_begins.push_back(static_cast<uint32_t>(a_.calls.size()));
        a_.start_rule = grammar_.start().index;
        drop_dead_ends();
        order_rules();
        find_alike();
        return std::move(a_);
    }

  private:
    // Bytes that are in the same sets are one symbol.
    void name_symbols() {
        std::array<int32_t, 256> of_byte{};
        int32_t n_symbols = 1;
        for (const ByteSet& set : nfa_.byte_sets) {
            std::map<std::pair<int32_t, bool>, int32_t> names;
            for (size_t byte = 0; byte < 256; ++byte) {
                const auto [name, is_new] =
                    names.try_emplace({of_byte[byte], set[byte]}, static_cast<int32_t>(names.size()));
                of_byte[byte] = name->second;
            }
            n_symbols = static_cast<int32_t>(names.size());
        }
        a_.symbol_of_byte = of_byte;
        symbols_of_set_.resize(nfa_.byte_sets.size());
        for (size_t set = 0; set < nfa_.byte_sets.size(); ++set) {
            std::vector<int32_t>& symbols = symbols_of_set_[set];
            for (size_t byte = 0; byte < 256; ++byte)
                if (nfa_.byte_sets[set][byte]) symbols.push_back(of_byte[byte]);
            std::ranges::sort(symbols);
            symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
        }
        for (const NfaState& state : nfa_.states) {
            if (state.kind != NfaState::Kind::token) continue;
            if (symbol_of_token_.try_emplace(state.value, n_symbols).second)
                a_.tokens.push_back({state.value, n_symbols++});
        }
        a_.n_symbols = n_symbols;
    }

    // The subset construction.
    void determinise(size_t rule) {
        sets_.clear();
        pending_.clear();
        rule_ = rule;
        a_.rule_starts.push_back(state_of({nfa_.rule_starts[rule]}));
        for (size_t i = 0; i < pending_.size(); ++i) add_ways(pending_[i]);
    }

    // Returns the DFA state of the NFA states that can be reached from these without reading.
    int32_t state_of(const StateSet& from) {
        StateSet set;
        visited_.resize(nfa_.states.size(), 0);
        ++visit_;
        stack_.assign(from.begin(), from.end());
        while (!stack_.empty()) {
            const int32_t s = stack_.back();
            stack_.pop_back();
            if (s < 0 || visited_[static_cast<size_t>(s)] == visit_) continue;
            visited_[static_cast<size_t>(s)] = visit_;
            if (++a_.n_reached > Automaton::k_most_reached) fail_too_large();
            const NfaState& state = nfa_.states[static_cast<size_t>(s)];
            if (state.kind != NfaState::Kind::split) {
                set.push_back(s);
                continue;
            }
            stack_.push_back(state.other);
            stack_.push_back(state.out);
        }
        std::ranges::sort(set);
        const auto [place, is_new] = sets_.try_emplace(std::move(set), a_.n_states());
        if (is_new) {
            const auto n_symbols = static_cast<size_t>(a_.n_symbols);
            if (a_.accepts.size() == k_most_states || a_.next.size() + n_symbols > k_most_entries)
                fail_too_large();
            a_.next.resize(a_.next.size() + n_symbols, k_none);
            a_.accepts.push_back(std::ranges::any_of(place->first, [&](int32_t s) {
                return nfa_.states[static_cast<size_t>(s)].kind == NfaState::Kind::accept;
            }));
            pending_.push_back(&*place);
        }
        return place->second;
    }

    [[noreturn]] void fail_too_large() const {
        fail(Status::unsupported, "the constraint's part '{}' needs too large an automaton ({} states)",
             grammar_.rules()[rule_].name, a_.accepts.size());
    }

    void add_ways(const std::pair<const StateSet, int32_t>* entry) {
        std::map<int32_t, StateSet> by_symbol;
        std::map<int32_t, StateSet> by_rule;
        for (const int32_t s : entry->first) {
            const NfaState& state = nfa_.states[static_cast<size_t>(s)];
            if (state.kind == NfaState::Kind::byte) {
                for (const int32_t symbol : symbols_of_set_[static_cast<size_t>(state.value)])
                    by_symbol[symbol].push_back(state.out);
            } else if (state.kind == NfaState::Kind::token) {
                by_symbol[symbol_of_token_.at(state.value)].push_back(state.out);
            } else if (state.kind == NfaState::Kind::call) {
                by_rule[state.value].push_back(state.out);
            }
        }
        const size_t row = static_cast<size_t>(entry->second) * static_cast<size_t>(a_.n_symbols);
        const StateSet* last_targets = nullptr;
        int32_t last_state = k_none;
        for (const auto& [symbol, targets] : by_symbol) {
            if (last_targets == nullptr || *last_targets != targets) last_state = state_of(targets);
            last_targets = &targets;
            a_.next[row + static_cast<size_t>(symbol)] = last_state;
        }
        // States are processed in the order of their numbers, so that calls come in this order too.
        a_.call_begins.push_back(static_cast<uint32_t>(a_.calls.size()));
        for (const auto& [rule, targets] : by_rule) a_.calls.push_back({rule, state_of(targets)});
    }

    // Removes transitions that lead to no end of the text, so that every text that can go on can also end.
    void drop_dead_ends() {
        const auto n_states = static_cast<size_t>(a_.n_states());
        const auto n_symbols = static_cast<size_t>(a_.n_symbols);
        std::vector<uint8_t> can_end = a_.accepts;
        std::vector<uint8_t> has_text(a_.rule_starts.size(), 0);  // a rule that is not empty
        const auto goes_on = [&](size_t state) {
            const auto row = std::span(a_.next).subspan(state * n_symbols, n_symbols);
            return std::ranges::any_of(
                       row, [&](int32_t to) { return to >= 0 && can_end[static_cast<size_t>(to)] != 0; }) ||
                   std::ranges::any_of(a_.calls_of(static_cast<int32_t>(state)), [&](const auto& call) {
                       return has_text[static_cast<size_t>(call.rule)] != 0 &&
                              can_end[static_cast<size_t>(call.next)] != 0;
                   });
        };
        bool has_changed = true;
        while (has_changed) {
            has_changed = false;
            for (size_t state = n_states; state-- > 0;) {
                if (can_end[state] != 0 || !goes_on(state)) continue;
                can_end[state] = 1;
                has_changed = true;
            }
            for (size_t rule = 0; rule < has_text.size(); ++rule) {
                if (has_text[rule] != 0 || !goes_on(static_cast<size_t>(a_.rule_starts[rule]))) continue;
                has_text[rule] = 1;
                has_changed = true;
            }
        }
        const auto start = static_cast<size_t>(a_.rule_starts[static_cast<size_t>(a_.start_rule)]);
        if (can_end[start] == 0) fail(Status::invalid, "no text fits the constraint");

        for (int32_t& to : a_.next)
            if (to >= 0 && can_end[static_cast<size_t>(to)] == 0) to = k_none;
        std::vector<Automaton::Call> kept;
        for (size_t state = 0; state < n_states; ++state) {
            const auto begin = static_cast<uint32_t>(kept.size());
            for (const Automaton::Call& call : a_.calls_of(static_cast<int32_t>(state))) {
                if (has_text[static_cast<size_t>(call.rule)] != 0 &&
                    can_end[static_cast<size_t>(call.next)] != 0)
                    kept.push_back(call);
            }
            a_.call_begins[state] = begin;
        }
        a_.call_begins[n_states] = static_cast<uint32_t>(kept.size());
        a_.calls = std::move(kept);

        a_.lasts.resize(n_states);
        for (size_t state = 0; state < n_states; ++state)
            a_.lasts[state] = a_.accepts[state] != 0 && !goes_on(state) ? 1 : 0;
    }

    // Orders the rules depth first along the calls that they begin with: a rule comes before the rules that it begins with.
    void order_rules() {
        const size_t n_rules = a_.rule_starts.size();
        a_.call_order.assign(n_rules, 0);
        enum : uint8_t { unseen, open, done };
        std::vector<uint8_t> seen(n_rules, unseen);
        struct Visit {
            int32_t rule;
            size_t n_followed;
        };
        auto place = static_cast<int32_t>(n_rules);
        std::vector<Visit> path;
        for (size_t root = 0; root < n_rules; ++root) {
            if (seen[root] != unseen) continue;
            path.push_back({static_cast<int32_t>(root), 0});
            seen[root] = open;
            while (!path.empty()) {
                const auto rule = static_cast<size_t>(path.back().rule);
                const auto calls = a_.calls_of(a_.rule_starts[rule]);
                if (path.back().n_followed == calls.size()) {
                    a_.call_order[rule] = --place;
                    seen[rule] = done;
                    path.pop_back();
                    continue;
                }
                const auto callee = static_cast<size_t>(calls[path.back().n_followed++].rule);
                if (seen[callee] == open)
                    fail_internal("the rule '{}' begins with itself", grammar_.rules()[callee].name);
                if (seen[callee] == done) continue;
                seen[callee] = open;
                path.push_back({static_cast<int32_t>(callee), 0});
            }
        }
    }

    // Moore's refinement, stopped at the length of the longest token: after round n, states of one kind do not differ
    // for any text of n symbols, and a call reads at least one symbol. Only states with transitions to states of a new
    // kind are examined again.
    void find_alike() {
        const auto n_states = static_cast<size_t>(a_.n_states());
        std::vector<int32_t>& kind = a_.kinds;
        kind.assign(a_.accepts.begin(), a_.accepts.end());
        std::vector<int64_t> n_of_kind(2, 0);
        for (const int32_t k : kind) ++n_of_kind[static_cast<size_t>(k)];
        const std::vector<std::vector<int32_t>> before = states_before();
        std::vector<int32_t> to_look_at(n_states);
        std::iota(to_look_at.begin(), to_look_at.end(), 0);
        for (size_t round = 0; round < longest_token_ && !to_look_at.empty(); ++round) {
            std::unordered_map<StateSet, StateSet, VectorHash<int32_t>>
                groups;                                   // of states with equal transitions
            std::unordered_map<int32_t, int64_t> n_seen;  // by kind
            for (const int32_t state : to_look_at) {
                groups[ways_of(state)].push_back(state);
                ++n_seen[kind[static_cast<size_t>(state)]];
            }
            // States that were not examined keep the kind. If all were examined, the largest group keeps it.
            std::unordered_map<int32_t, const StateSet*> keeping;
            for (const auto& [ways, group] : groups) {
                const int32_t old_kind = kind[static_cast<size_t>(group[0])];
                if (n_seen[old_kind] < n_of_kind[static_cast<size_t>(old_kind)]) continue;
                const StateSet*& largest = keeping[old_kind];
                if (largest == nullptr || group.size() > largest->size()) largest = &group;
            }
            std::vector<const StateSet*> renamed;
            for (const auto& [ways, group] : groups) {
                const auto kept = keeping.find(kind[static_cast<size_t>(group[0])]);
                if (kept == keeping.end() || kept->second != &group) renamed.push_back(&group);
            }
            std::vector<int32_t> changed;
            for (const StateSet* group : renamed) {
                const int32_t old_kind = kind[static_cast<size_t>(group->front())];
                n_of_kind[static_cast<size_t>(old_kind)] -= std::ssize(*group);
                for (const int32_t state : *group)
                    kind[static_cast<size_t>(state)] = static_cast<int32_t>(n_of_kind.size());
                n_of_kind.push_back(std::ssize(*group));
                changed.insert(changed.end(), group->begin(), group->end());
            }
            to_look_at.clear();
            for (const int32_t state : changed) {
                const auto& sources = before[static_cast<size_t>(state)];
                to_look_at.insert(to_look_at.end(), sources.begin(), sources.end());
            }
            std::ranges::sort(to_look_at);
            to_look_at.erase(std::unique(to_look_at.begin(), to_look_at.end()), to_look_at.end());
        }
    }

    // Returns the kind of a state and the kinds that its transitions lead to.
    StateSet ways_of(int32_t state) const {
        const auto kind_of = [&](int32_t s) { return s < 0 ? k_none : a_.kinds[static_cast<size_t>(s)]; };
        StateSet ways = {kind_of(state)};
        for (int32_t symbol = 0; symbol < a_.n_symbols; ++symbol)
            ways.push_back(kind_of(a_.step(state, symbol)));
        for (const Automaton::Call& call : a_.calls_of(state)) {
            ways.push_back(call.rule);
            ways.push_back(kind_of(call.next));
        }
        return ways;
    }

    std::vector<std::vector<int32_t>> states_before() const {
        std::vector<std::vector<int32_t>> before(static_cast<size_t>(a_.n_states()));
        const auto add = [&](int32_t from, int32_t to) {
            if (to < 0) return;
            auto& sources = before[static_cast<size_t>(to)];
            if (sources.empty() || sources.back() != from) sources.push_back(from);
        };
        for (int32_t state = 0; state < a_.n_states(); ++state) {
            for (int32_t symbol = 0; symbol < a_.n_symbols; ++symbol) add(state, a_.step(state, symbol));
            for (const Automaton::Call& call : a_.calls_of(state)) add(state, call.next);
        }
        return before;
    }

    const Grammar& grammar_;
    Nfa nfa_;
    size_t longest_token_;
    Automaton a_;
    std::vector<std::vector<int32_t>> symbols_of_set_;
    std::map<int32_t, int32_t> symbol_of_token_;

    // Data of the rule that is being made deterministic:
    size_t rule_ = 0;
    std::unordered_map<StateSet, int32_t, VectorHash<int32_t>> sets_;
    std::vector<const std::pair<const StateSet, int32_t>*> pending_;
    std::vector<uint32_t> visited_;
    uint32_t visit_ = 0;
    std::vector<int32_t> stack_;
};

}  // namespace

Automaton make_automaton(const Grammar& grammar, size_t longest_token) {
    return Builder(grammar, longest_token).build();
}

}  // namespace minim::constraint
