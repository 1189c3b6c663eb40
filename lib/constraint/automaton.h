// SPDX-License-Identifier: Apache-2.0
// A grammar as tables: every rule is a deterministic automaton over bytes and tokens, whose states may also call rules.
// Following it needs one or more stacks (positions.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "constraint/counter.h"
#include "constraint/grammar.h"

namespace minim::constraint {

struct Automaton {
    static constexpr int32_t k_none = -1;

    // Bytes that no rule distinguishes are one symbol. After them comes one symbol for each token that the grammar names
    // itself.
    int32_t n_symbols = 0;
    std::array<int32_t, 256> symbol_of_byte{};
    struct TokenSymbol {
        int32_t token;
        int32_t symbol;
    };
    std::vector<TokenSymbol> tokens;

    struct Call {
        int32_t rule;
        int32_t next;  // the state after a text of the rule, which is not empty
    };
    std::vector<int32_t> next;          // [state, symbol]; k_none: no text continues with the symbol
    std::vector<uint32_t> call_begins;  // [n_states + 1], into `calls`
    std::vector<Call> calls;
    std::vector<uint8_t> accepts;  // by state; 1: the rule's text may end here
    std::vector<uint8_t> lasts;    // by state; 1: the rule's text ends here, as nothing else can follow
    // By state: its kind. States of one kind allow the same tokens, with equal counts: no token is long enough to distinguish
    // them.
    std::vector<int32_t> kinds;

    // Rules that count (Grammar::counted): a place in such a rule is a state with a count, which is 0 in all other rules.
    struct Counted {
        Counter counter;
        int32_t first_state;
    };
    std::vector<int32_t> counter_of;  // by state: index into `counters`, or k_none
    std::vector<uint8_t> is_counted;  // by state; 1: entering it counts
    std::vector<Counted> counters;

    std::vector<int32_t> rule_starts;  // by rule: its first state
    std::vector<int32_t> call_order;   // by rule: its place in an order in which no rule begins with a call
                                       // of an earlier one
    int32_t start_rule = 0;

    // The number of NFA states visited to make all states of the tables. It can be as large as the product of the two
    // numbers of states: in a repeated part that may be empty, each place can be reached from all places before it.
    size_t n_reached = 0;
    static constexpr size_t k_max_reached = size_t{1} << 24;

    int32_t n_states() const noexcept { return static_cast<int32_t>(accepts.size()); }
    int32_t step(int32_t state, int32_t symbol) const noexcept {
        return next[int64_t{state} * n_symbols + symbol];
    }
    std::span<const Call> calls_of(int32_t state) const noexcept {
        const int64_t s = state;
        return std::span(calls).subspan(call_begins[s], call_begins[s + 1] - call_begins[s]);
    }
    // Returns the count in a state that is entered from one with this count; k_none if the rule cannot end after that.
    int32_t count_in(int32_t state, int32_t count) const noexcept {
        const int32_t counter = counter_of[state];
        return counter == k_none ? 0 : count_in_counted(state, count, counters[counter]);
    }
    // Returns whether the rule's text may end in a state with this count.
    bool accepts_at(int32_t state, int32_t count) const noexcept {
        if (accepts[state] == 0) return false;
        const int32_t counter = counter_of[state];
        return counter == k_none || counters[counter].counter.may_accept(count);
    }
    // Returns whether the rule's text ends here, as nothing else can follow.
    bool is_last(int32_t state, int32_t count) const noexcept {
        if (lasts[state] != 0) return true;
        return counter_of[state] != k_none && accepts_at(state, count) && !goes_on(state, count);
    }
    // Returns what determines the tokens of a state with this count: places with equal keys allow the same ones.
    std::vector<int32_t> kind_of(int32_t state, int32_t count, size_t longest_token) const;

    // Returns whether more of the rule's text can follow.
    bool goes_on(int32_t state, int32_t count) const noexcept;

  private:
    int32_t count_in_counted(int32_t state, int32_t count, const Counted& counted) const noexcept;
};

// `longest_token` in bytes. The limits of the tables are divided by `share`. Throws invalid if no text fits the grammar, and unsupported, with the name of a rule, if the
// tables would be too large.
Automaton make_automaton(const Grammar& grammar, size_t longest_token, size_t share = 1);

}  // namespace minim::constraint
