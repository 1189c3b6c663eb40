// SPDX-License-Identifier: Apache-2.0
// Rewrites rules that begin with themselves, directly or through others, so that none does and each has the same texts:
// `list ::= list "," item | item` becomes `item ("," item)*`.
#pragma once

#include "constraint/grammar.h"
#include "constraint/nfa.h"

namespace minim::constraint {

// Throws unsupported, naming the rule, if the automaton would be too large.
void remove_left_recursion(Nfa& nfa, const Grammar& grammar);

}  // namespace minim::constraint
