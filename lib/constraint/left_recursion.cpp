// SPDX-License-Identifier: Apache-2.0
// The left-corner transform. Let a group be rules that begin with each other. A text of rule A of the group begins with
// something that belongs to no rule of the group: the start of some rule B. After a text of B comes what may follow it in a
// rule C that begins with B, which makes a text of C, and so on up to A:
//     start of A:     to each state that a rule of the group begins with, except calls of the group
//     end of B in A:  to the state after B in each C that begins with B; and if B is A, to the end of A
// So each rule of the group gets a copy of the states of all of them.
#include "constraint/left_recursion.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace minim::constraint {
namespace {

using Kind = NfaState::Kind;

class Rewriter {
  public:
    Rewriter(Nfa& nfa, const Grammar& grammar) : nfa_(nfa), grammar_(grammar) {}

    void rewrite() {
        find_starts();
        find_groups();
        for (const std::vector<int32_t>& group : groups_) rewrite(group);
    }

  private:
    struct Rule {
        int32_t begin = 0;  // its states in nfa_.states, of which the first accepts
        int32_t end = 0;
        std::vector<int32_t> first;  // the states that it begins with and that are no splits
        int32_t group = -1;
    };
    Rule& rule(int32_t index) { return rules_[index]; }
    NfaState& state(int32_t index) { return nfa_.states[index]; }

    void find_starts() {
        const size_t n_rules = nfa_.rule_starts.size();
        rules_.resize(n_rules);
        std::vector<bool> is_visited(nfa_.states.size(), false);
        std::vector<int32_t> stack;
        for (size_t r = 0; r < n_rules; ++r) {
            Rule& found = rules_[r];
            found.begin = nfa_.rule_begins[r];
            found.end = r + 1 < n_rules ? nfa_.rule_begins[r + 1] : static_cast<int32_t>(nfa_.states.size());
            stack.push_back(nfa_.rule_starts[r]);
            while (!stack.empty()) {
                const int32_t s = stack.back();
                stack.pop_back();
                if (s < 0 || is_visited[s]) continue;
                is_visited[s] = true;
                if (state(s).kind == Kind::split) {
                    stack.push_back(state(s).other);
                    stack.push_back(state(s).out);
                } else {
                    found.first.push_back(s);
                }
            }
        }
    }

    // Finds the strongly connected components of "begins with" that have a cycle (Tarjan's algorithm).
    void find_groups() {
        constexpr int32_t k_unseen = -1;
        struct Visit {
            int32_t rule;
            size_t n_followed;
        };
        const size_t n_rules = rules_.size();
        std::vector<int32_t> number(n_rules, k_unseen);
        std::vector<int32_t> lowest(n_rules, 0);
        std::vector<bool> is_open(n_rules, false);
        std::vector<int32_t> open;
        std::vector<Visit> path;
        int32_t n_seen = 0;
        const auto enter = [&](int32_t r) {
            const int64_t i = r;
            number[i] = lowest[i] = n_seen++;
            is_open[i] = true;
            open.push_back(r);
            path.push_back({r, 0});
        };
        for (size_t root = 0; root < n_rules; ++root) {
            if (number[root] == k_unseen) enter(static_cast<int32_t>(root));
            while (!path.empty()) {
                const int32_t r = path.back().rule;
                const int64_t i = r;
                if (path.back().n_followed < rules_[i].first.size()) {
                    const NfaState& next = state(rules_[i].first[path.back().n_followed++]);
                    if (next.kind != Kind::call) continue;
                    const int64_t callee = next.value;
                    if (number[callee] == k_unseen) {
                        enter(next.value);
                    } else if (is_open[callee]) {
                        lowest[i] = std::min(lowest[i], number[callee]);
                    }
                    continue;
                }
                path.pop_back();
                if (!path.empty()) {
                    int32_t& above = lowest[path.back().rule];
                    above = std::min(above, lowest[i]);
                }
                if (lowest[i] == number[i]) close_group(r, open, is_open);
            }
        }
    }

    void close_group(int32_t first, std::vector<int32_t>& open, std::vector<bool>& is_open) {
        std::vector<int32_t> group;
        int32_t r = -1;
        do {
            r = open.back();
            open.pop_back();
            is_open[r] = false;
            group.push_back(r);
        } while (r != first);
        const bool is_cycle = group.size() > 1 || std::ranges::any_of(rule(first).first, [&](int32_t s) {
                                  return state(s).kind == Kind::call && state(s).value == first;
                              });
        if (!is_cycle) return;
        for (const int32_t member : group) {
            if (!nfa_.rule_counts[member]) continue;
            fail(Status::unsupported,
                 "the constraint's part '{}' begins with itself, within a repetition that is counted",
                 grammar_.rules()[member].name);
        }
        for (const int32_t member : group) rule(member).group = static_cast<int32_t>(groups_.size());
        groups_.push_back(std::move(group));
    }

    bool is_call_within(int32_t s, int32_t group) {
        return state(s).kind == Kind::call && rule(state(s).value).group == group;
    }

    void rewrite(const std::vector<int32_t>& group) {
        std::vector<int32_t> starts;
        for (const int32_t goal : group) starts.push_back(add_rule(goal, group));
        for (size_t i = 0; i < group.size(); ++i) nfa_.rule_starts[group[i]] = starts[i];
    }

    // Adds the states of a rule of the group and returns its start.
    int32_t add_rule(int32_t goal, const std::vector<int32_t>& group) {
        const int32_t number = rule(goal).group;
        std::vector<int32_t> shifts;  // by member: from its states to their copies
        for (const int32_t member : group) {
            shifts.push_back(static_cast<int32_t>(nfa_.states.size()) - rule(member).begin);
            copy(rule(member), goal);
        }
        const int32_t end = add(goal, {.kind = Kind::accept});
        int32_t start = -1;
        const auto begin_with = [&](int32_t s) {
            start = add(goal, {.kind = Kind::split, .out = s, .other = start});
        };
        for (size_t i = 0; i < group.size(); ++i) {
            for (const int32_t s : rule(group[i]).first) {
                if (state(s).kind == Kind::accept) {
                    if (group[i] == goal) begin_with(end);
                } else if (!is_call_within(s, number)) {
                    begin_with(s + shifts[i]);
                }
            }
        }
        std::vector<int32_t> after(group.size(), -1);  // by member: where its end leads
        const auto place_of = [&](int32_t member) {
            return std::ranges::find(group, member) - group.begin();
        };
        after[place_of(goal)] = add(goal, {.kind = Kind::split, .out = end});
        for (size_t i = 0; i < group.size(); ++i) {
            for (const int32_t s : rule(group[i]).first) {
                if (!is_call_within(s, number)) continue;
                int32_t& transition = after[place_of(state(s).value)];
                transition =
                    add(goal, {.kind = Kind::split, .out = state(s).out + shifts[i], .other = transition});
            }
        }
        for (size_t i = 0; i < group.size(); ++i)
            state(rule(group[i]).begin + shifts[i]) = {.kind = Kind::split, .out = after[i]};
        return start;
    }

    void copy(const Rule& from, int32_t goal) {
        const int32_t shift = static_cast<int32_t>(nfa_.states.size()) - from.begin;
        const auto moved = [&](int32_t s) { return s < 0 ? s : s + shift; };
        for (int32_t s = from.begin; s < from.end; ++s) {
            NfaState copied = state(s);
            copied.out = moved(copied.out);
            copied.other = moved(copied.other);
            add(goal, copied);
        }
    }

    int32_t add(int32_t goal, const NfaState& added) {
        if (nfa_.states.size() >= Nfa::k_max_states) {
            fail(Status::unsupported,
                 "the constraint's part '{}' begins with itself, and needs an automaton of more than {} "
                 "states",
                 grammar_.rules()[goal].name, Nfa::k_max_states);
        }
        nfa_.states.push_back(added);
        return static_cast<int32_t>(nfa_.states.size() - 1);
    }

    Nfa& nfa_;
    const Grammar& grammar_;
    std::vector<Rule> rules_;
    std::vector<std::vector<int32_t>> groups_;  // of rules that begin with each other
};

}  // namespace

void remove_left_recursion(Nfa& nfa, const Grammar& grammar) {
    Rewriter(nfa, grammar).rewrite();
}

}  // namespace minim::constraint
