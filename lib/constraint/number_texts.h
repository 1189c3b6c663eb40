// SPDX-License-Identifier: Apache-2.0
// The texts of single numbers and of multiples, without exponent.
#pragma once

#include <optional>

#include "constraint/decimal.h"
#include "constraint/text_automaton.h"

namespace minim::constraint {

// Accepts the texts of one value, also with trailing zeros.
TextAutomaton texts_of_value(const Decimal& value);

// Accepts the multiples of `divisor`, which is above 0. Nothing if that takes too many states.
std::optional<TextAutomaton> multiples_of(const Decimal& divisor);

bool is_multiple(const Decimal& value, const Decimal& divisor);

}  // namespace minim::constraint
