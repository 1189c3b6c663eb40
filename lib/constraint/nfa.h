// SPDX-License-Identifier: Apache-2.0
// A grammar's rules as nondeterministic automata, one after another in one list of states: the step between
// the grammar's expressions and the tables of automaton.h (Thompson's construction, built from the end).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "constraint/grammar.h"

namespace minim::constraint {

struct NfaState {
    enum class Kind : uint8_t {
        split,   // to `out` or `other`, reading nothing; either may be -1
        byte,    // to `out` by a byte of set `value`
        token,   // to `out` by token `value`
        call,    // to `out` by a non-empty text of rule `value`
        accept,  // the rule's text may end
    };
    Kind kind;
    int32_t value = -1;
    int32_t out = -1;
    int32_t other = -1;
    bool is_counted = false;  // a state of the graph of a rule that counts: entering it counts
};

struct Nfa {
    std::vector<NfaState> states;
    std::vector<ByteSet> byte_sets;
    std::vector<int32_t> rule_starts;
    std::vector<std::optional<Grammar::Counts>> rule_counts;  // by rule
    std::vector<int32_t>
        rule_begins;  // by rule: the first of its states, which accepts; no other rule's lie between

    static constexpr size_t k_max_states = 1'000'000;
};

// Throws unsupported, naming the rule, if the automaton would be too large.
Nfa make_nfa(const Grammar& grammar);

}  // namespace minim::constraint
