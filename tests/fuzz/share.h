// SPDX-License-Identifier: Apache-2.0
// The share of an automaton's limits that a fuzzed constraint has.
#pragma once

#include <cstddef>

namespace minim::fuzz {

// At the limits themselves a case takes half a minute under sanitizers.
constexpr size_t k_share = 16;

}  // namespace minim::fuzz
