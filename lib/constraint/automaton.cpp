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

constexpr size_t k_max_entries = 16'000'000;  // of Automaton::next
constexpr size_t k_max_states = 250'000;
constexpr size_t k_max_transitions = size_t{1}
                                     << 26;  // from the NFA states of all DFA states, one for each symbol

constexpr int32_t k_none = Automaton::k_none;

// Sorted NFA states that read or accept something.
using StateSet = std::vector<int32_t>;

class Builder {
  public:
    Builder(const Grammar& grammar, size_t longest_token, size_t share)
        : grammar_(grammar), nfa_(make_nfa(grammar)), longest_token_(longest_token), share_(share) {
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
            std::array<int32_t, 512> names{};  // by symbol and whether the set has it, from 1
            int32_t n_names = 0;
            for (size_t byte = 0; byte < 256; ++byte) {
                int32_t& name = names[2 * of_byte[byte] + (set[byte] ? 1 : 0)];
                if (name == 0) name = ++n_names;
                of_byte[byte] = name - 1;
            }
            n_symbols = n_names;
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
        for (size_t i = 0; i < pending_.size(); ++i) add_transitions(pending_[i]);
    }

    // Returns the DFA state of the NFA states that can be reached from these without reading.
    int32_t state_of(const StateSet& from) {
        // A part that no text fits, such as a rule of left recursion alone, has no state: its number is negative.
        const auto first = std::ranges::find_if(from, [](int32_t s) { return s >= 0; });
        const bool counts = first != from.end() && nfa_.states[*first].is_counted;
        if (std::ranges::any_of(from,
                                [&](int32_t s) { return s >= 0 && nfa_.states[s].is_counted != counts; }))
            fail_internal("the rule '{}' counts some of its transitions only", grammar_.rules()[rule_].name);
        StateSet set;
        visited_.resize(nfa_.states.size(), 0);
        ++visit_;
        stack_.assign(from.begin(), from.end());
        while (!stack_.empty()) {
            const int32_t s = stack_.back();
            stack_.pop_back();
            if (s < 0 || visited_[s] == visit_) continue;
            visited_[s] = visit_;
            if (++a_.n_reached > Automaton::k_max_reached / share_) fail_too_large();
            const NfaState& state = nfa_.states[s];
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
            if (a_.accepts.size() >= k_max_states / share_ ||
                a_.next.size() + n_symbols > k_max_entries / share_)
                fail_too_large();
            a_.next.resize(a_.next.size() + n_symbols, k_none);
            a_.is_counted.push_back(counts ? 1 : 0);
            a_.accepts.push_back(std::ranges::any_of(
                place->first, [&](int32_t s) { return nfa_.states[s].kind == NfaState::Kind::accept; }));
            pending_.push_back(&*place);
        }
        return place->second;
    }

    [[noreturn]] void fail_too_large() const {
        fail(Status::unsupported, "the constraint's part '{}' needs too large an automaton ({} states)",
             grammar_.rules()[rule_].name, a_.accepts.size());
    }

    void add_transitions(const std::pair<const StateSet, int32_t>* entry) {
        for (StateSet& targets : by_symbol_) targets.clear();
        by_symbol_.resize(a_.n_symbols);
        const auto add_transition = [&](int32_t symbol, int32_t to) {
            if (++n_transitions_ > k_max_transitions / share_) {
                fail(Status::unsupported,
                     "the constraint's part '{}' has more than {} transitions in alternatives",
                     grammar_.rules()[rule_].name, k_max_transitions / share_);
            }
            by_symbol_[symbol].push_back(to);
        };
        std::map<int32_t, StateSet> by_rule;
        for (const int32_t s : entry->first) {
            const NfaState& state = nfa_.states[s];
            if (state.kind == NfaState::Kind::byte) {
                for (const int32_t symbol : symbols_of_set_[state.value]) add_transition(symbol, state.out);
            } else if (state.kind == NfaState::Kind::token) {
                add_transition(symbol_of_token_.at(state.value), state.out);
            } else if (state.kind == NfaState::Kind::call) {
                by_rule[state.value].push_back(state.out);
            }
        }
        const int64_t row = int64_t{entry->second} * a_.n_symbols;
        const StateSet* last_targets = nullptr;
        int32_t last_state = k_none;
        for (size_t symbol = 0; symbol < by_symbol_.size(); ++symbol) {
            const StateSet& targets = by_symbol_[symbol];
            if (targets.empty()) continue;
            if (last_targets == nullptr || *last_targets != targets) last_state = state_of(targets);
            last_targets = &targets;
            a_.next[row + symbol] = last_state;
        }
        // States are processed in the order of their numbers, so that calls come in this order too.
        a_.call_begins.push_back(static_cast<uint32_t>(a_.calls.size()));
        for (const auto& [rule, targets] : by_rule) a_.calls.push_back({rule, state_of(targets)});
    }

    // Adds the counters of the rules that count. They follow calls of rules that have a text.
    void add_counters(const std::vector<uint8_t>& has_text) {
        a_.counters.clear();
        a_.counter_of.assign(a_.n_states(), k_none);
        for (size_t rule = 0; rule < a_.rule_starts.size(); ++rule) {
            const auto& counts = nfa_.rule_counts[rule];
            if (!counts) continue;
            const int32_t first = a_.rule_starts[rule];
            const int32_t end = rule + 1 < a_.rule_starts.size() ? a_.rule_starts[rule + 1] : a_.n_states();
            Counter::States states;
            for (int32_t state = first; state < end; ++state) {
                a_.counter_of[state] = static_cast<int32_t>(a_.counters.size());
                std::vector<int32_t>& next = states.next.emplace_back();
                for (int32_t symbol = 0; symbol < a_.n_symbols; ++symbol)
                    if (const int32_t to = a_.step(state, symbol); to >= 0) next.push_back(to - first);
                for (const Automaton::Call& call : a_.calls_of(state))
                    if (has_text[call.rule] != 0) next.push_back(call.next - first);
                std::ranges::sort(next);
                next.erase(std::unique(next.begin(), next.end()), next.end());
                states.accepts.push_back(a_.accepts[state]);
                states.is_counted.push_back(a_.is_counted[state]);
            }
            const std::string& name = grammar_.rules()[rule].name;
            a_.counters.push_back(
                {Counter(states, counts->least, counts->most, name, counter_steps_left_), first});
        }
    }

    // Facts about states and rules: whether the text can end from a state on, and whether a rule has a text that is not empty.
    struct Ends {
        std::vector<uint8_t> can_end;
        std::vector<uint8_t> has_text;
    };

    // A counter knows the ends of its rule from those of the rules called, so both are found in turns.
    Ends find_ends() {
        Ends ends;
        ends.has_text.assign(a_.rule_starts.size(), 1);
        while (true) {
            add_counters(ends.has_text);
            Ends found = find_ends_with_counters();
            const bool is_settled = std::ranges::all_of(a_.counters, [&](const Automaton::Counted& counted) {
                const int32_t counter = a_.counter_of[counted.first_state];
                for (int32_t state = counted.first_state;
                     state < a_.n_states() && a_.counter_of[state] == counter; ++state)
                    for (const Automaton::Call& call : a_.calls_of(state))
                        if (found.has_text[call.rule] != ends.has_text[call.rule]) return false;
                return true;
            });
            ends = std::move(found);
            if (is_settled) return ends;
        }
    }

    Ends find_ends_with_counters() {
        const auto n_states = static_cast<size_t>(a_.n_states());
        const size_t n_rules = a_.rule_starts.size();
        Ends ends{.can_end = std::vector<uint8_t>(n_states, 0), .has_text = std::vector<uint8_t>(n_rules, 0)};
        struct CallFrom {
            int32_t state;
            int32_t rule;
            int32_t next;
        };
        std::vector<std::vector<int32_t>> before(n_states);         // sources of transitions
        std::vector<std::vector<CallFrom>> calls_before(n_states);  // by the state after the call
        std::vector<std::vector<CallFrom>> callers(n_rules);
        std::vector<int32_t> rule_of_start(n_states, k_none);
        std::vector<size_t> ending;     // states from which the text can end, not yet followed
        std::vector<size_t> with_text;  // rules, not yet followed
        const auto set_end = [&](size_t state) {
            if (ends.can_end[state] != 0) return;
            ends.can_end[state] = 1;
            ending.push_back(state);
        };
        const auto set_text = [&](size_t rule) {
            if (ends.has_text[rule] != 0) return;
            ends.has_text[rule] = 1;
            with_text.push_back(rule);
        };
        const auto set_goes_on = [&](int32_t state) {
            if (a_.counter_of[state] != k_none) return;
            set_end(state);
            if (rule_of_start[state] != k_none) set_text(rule_of_start[state]);
        };
        for (size_t rule = 0; rule < n_rules; ++rule)
            rule_of_start[a_.rule_starts[rule]] = static_cast<int32_t>(rule);
        for (int32_t state = 0; state < a_.n_states(); ++state) {
            for (int32_t symbol = 0; symbol < a_.n_symbols; ++symbol) {
                const int32_t to = a_.step(state, symbol);
                if (to < 0) continue;
                auto& sources = before[to];
                if (sources.empty() || sources.back() != state) sources.push_back(state);
            }
            for (const Automaton::Call& call : a_.calls_of(state)) {
                calls_before[call.next].push_back({state, call.rule, call.next});
                callers[call.rule].push_back({state, call.rule, call.next});
            }
        }
        for (size_t state = 0; state < n_states; ++state) {
            if (a_.counter_of[state] == k_none) {
                if (a_.accepts[state] != 0) set_end(state);
                continue;
            }
            const Automaton::Counted& counted = a_.counters[a_.counter_of[state]];
            if (counted.counter.is_ever_alive(state - counted.first_state)) set_end(state);
            if (rule_of_start[state] != k_none && a_.goes_on(static_cast<int32_t>(state), 0))
                set_text(rule_of_start[state]);
        }
        while (!ending.empty() || !with_text.empty()) {
            if (!ending.empty()) {
                const size_t state = ending.back();
                ending.pop_back();
                for (const int32_t from : before[state]) set_goes_on(from);
                for (const CallFrom& call : calls_before[state])
                    if (ends.has_text[call.rule] != 0) set_goes_on(call.state);
                continue;
            }
            const size_t rule = with_text.back();
            with_text.pop_back();
            for (const CallFrom& call : callers[rule])
                if (ends.can_end[call.next] != 0) set_goes_on(call.state);
        }
        return ends;
    }

    // Removes transitions that lead to no end of the text, so that every text that can go on can also end.
    void drop_dead_ends() {
        const auto [can_end, has_text] = find_ends();
        const auto n_states = static_cast<size_t>(a_.n_states());
        const auto n_symbols = static_cast<size_t>(a_.n_symbols);
        const int64_t start_rule = a_.start_rule;
        const int32_t start = a_.rule_starts[start_rule];
        if (has_text[start_rule] == 0 && !a_.accepts_at(start, 0))
            fail(Status::invalid, "no text fits the constraint");

        for (int32_t& to : a_.next)
            if (to >= 0 && can_end[to] == 0) to = k_none;
        std::vector<Automaton::Call> kept;
        for (size_t state = 0; state < n_states; ++state) {
            const auto begin = static_cast<uint32_t>(kept.size());
            for (const Automaton::Call& call : a_.calls_of(static_cast<int32_t>(state))) {
                if (has_text[call.rule] != 0 && can_end[call.next] != 0) kept.push_back(call);
            }
            a_.call_begins[state] = begin;
        }
        a_.call_begins[n_states] = static_cast<uint32_t>(kept.size());
        a_.calls = std::move(kept);

        a_.lasts.resize(n_states);
        for (size_t state = 0; state < n_states; ++state) {
            const auto row = std::span(a_.next).subspan(state * n_symbols, n_symbols);
            const bool goes_on = std::ranges::any_of(row, [](int32_t to) { return to >= 0; }) ||
                                 !a_.calls_of(static_cast<int32_t>(state)).empty();
            a_.lasts[state] = a_.accepts[state] != 0 && !goes_on ? 1 : 0;
        }
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
                const int64_t rule = path.back().rule;
                const auto calls = a_.calls_of(a_.rule_starts[rule]);
                if (path.back().n_followed == calls.size()) {
                    a_.call_order[rule] = --place;
                    seen[rule] = done;
                    path.pop_back();
                    continue;
                }
                const int32_t callee = calls[path.back().n_followed++].rule;
                if (seen[callee] == open)
                    fail_internal("the rule '{}' begins with itself", grammar_.rules()[callee].name);
                if (seen[callee] == done) continue;
                seen[callee] = open;
                path.push_back({callee, 0});
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
        for (const int32_t k : kind) ++n_of_kind[k];
        for (size_t state = 0; state < n_states; ++state) {  // those that count are of different kinds
            if (a_.counter_of[state] == k_none) continue;
            --n_of_kind[kind[state]];
            kind[state] = static_cast<int32_t>(n_of_kind.size());
            n_of_kind.push_back(1);
        }
        const std::vector<std::vector<int32_t>> before = states_before();
        std::vector<int32_t> to_look_at(n_states);
        std::iota(to_look_at.begin(), to_look_at.end(), 0);
        for (size_t round = 0; round < longest_token_ && !to_look_at.empty(); ++round) {
            std::unordered_map<StateSet, StateSet, VectorHash<int32_t>>
                groups;                                   // of states with equal transitions
            std::unordered_map<int32_t, int64_t> n_seen;  // by kind
            for (const int32_t state : to_look_at) {
                groups[transitions_of(state)].push_back(state);
                ++n_seen[kind[state]];
            }
            // States that were not examined keep the kind. If all were examined, the largest group keeps it.
            std::unordered_map<int32_t, const StateSet*> keeping;
            for (const auto& [transitions, group] : groups) {
                const int32_t old_kind = kind[group[0]];
                if (n_seen[old_kind] < n_of_kind[old_kind]) continue;
                const StateSet*& largest = keeping[old_kind];
                if (largest == nullptr || group.size() > largest->size()) largest = &group;
            }
            std::vector<const StateSet*> renamed;
            for (const auto& [transitions, group] : groups) {
                const auto kept = keeping.find(kind[group[0]]);
                if (kept == keeping.end() || kept->second != &group) renamed.push_back(&group);
            }
            std::vector<int32_t> changed;
            for (const StateSet* group : renamed) {
                const int32_t old_kind = kind[group->front()];
                n_of_kind[old_kind] -= std::ssize(*group);
                for (const int32_t state : *group) kind[state] = static_cast<int32_t>(n_of_kind.size());
                n_of_kind.push_back(std::ssize(*group));
                changed.insert(changed.end(), group->begin(), group->end());
            }
            to_look_at.clear();
            for (const int32_t state : changed) {
                const auto& sources = before[state];
                to_look_at.insert(to_look_at.end(), sources.begin(), sources.end());
            }
            std::ranges::sort(to_look_at);
            to_look_at.erase(std::unique(to_look_at.begin(), to_look_at.end()), to_look_at.end());
        }
    }

    // Returns the kind of a state and the kinds that its transitions lead to.
    StateSet transitions_of(int32_t state) const {
        const auto kind_of = [&](int32_t s) { return s < 0 ? k_none : a_.kinds[s]; };
        StateSet transitions = {kind_of(state)};
        for (int32_t symbol = 0; symbol < a_.n_symbols; ++symbol)
            transitions.push_back(kind_of(a_.step(state, symbol)));
        for (const Automaton::Call& call : a_.calls_of(state)) {
            transitions.push_back(call.rule);
            transitions.push_back(kind_of(call.next));
        }
        return transitions;
    }

    std::vector<std::vector<int32_t>> states_before() const {
        std::vector<std::vector<int32_t>> before(a_.n_states());
        const auto add = [&](int32_t from, int32_t to) {
            if (to < 0) return;
            auto& sources = before[to];
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
    size_t share_;
    Automaton a_;
    std::vector<std::vector<int32_t>> symbols_of_set_;
    std::map<int32_t, int32_t> symbol_of_token_;
    size_t counter_steps_left_ = Counter::k_max_steps;

    // Data of the rule that is being made deterministic:
    size_t rule_ = 0;
    std::unordered_map<StateSet, int32_t, VectorHash<int32_t>> sets_;
    std::vector<const std::pair<const StateSet, int32_t>*> pending_;
    std::vector<uint32_t> visited_;
    uint32_t visit_ = 0;
    std::vector<int32_t> stack_;
    std::vector<StateSet> by_symbol_;  // the targets of one DFA state, by symbol
    size_t n_transitions_ = 0;         // of all rules
};

}  // namespace

int32_t Automaton::count_in_counted(int32_t state, int32_t count, const Counted& counted) const noexcept {
    const int64_t entered = is_counted[state] != 0 ? counted.counter.after(count) : int64_t{count};
    if (entered == Counter::k_none || !counted.counter.is_alive(state - counted.first_state, entered))
        return k_none;
    return static_cast<int32_t>(entered);
}

bool Automaton::goes_on(int32_t state, int32_t count) const noexcept {
    const auto is_open = [&](int32_t to) { return to != k_none && count_in(to, count) != k_none; };
    for (int32_t symbol = 0; symbol < n_symbols; ++symbol)
        if (is_open(step(state, symbol))) return true;
    return std::ranges::any_of(calls_of(state), [&](const Call& call) { return is_open(call.next); });
}

std::vector<int32_t> Automaton::kind_of(int32_t state, int32_t count, size_t longest_token) const {
    std::vector<int32_t> key = {kinds[state]};
    const int32_t counter = counter_of[state];
    if (counter == k_none) return key;
    counters[counter].counter.append_rows(count, static_cast<int64_t>(longest_token) + 1, key);
    return key;
}

Automaton make_automaton(const Grammar& grammar, size_t longest_token, size_t share) {
    return Builder(grammar, longest_token, share).build();
}

}  // namespace minim::constraint
