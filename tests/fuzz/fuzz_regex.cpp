// SPDX-License-Identifier: Apache-2.0
// Any bytes as a regular expression: it either becomes an automaton or the error says where it is wrong.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "constraint/automaton.h"
#include "constraint/regex.h"
#include "require.h"
#include "share.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace minim;
    using namespace minim::constraint;
    const std::string_view pattern(reinterpret_cast<const char*>(data), size);
#ifdef MINIM_LIBFUZZER  // Repeats in the thousands are bounded by the same limits, and would take nearly all the time.
    size_t n_digits = 0;
    for (const char c : pattern) {
        n_digits = c >= '0' && c <= '9' ? n_digits + 1 : 0;
        if (n_digits == 4) return 0;
    }
#endif
    for (const Match match : {Match::whole, Match::anywhere}) {
        fuzz::require_refusal({Status::invalid, Status::unsupported},
                              "an expression is good, wrong or not regular", [&] {
                                  const Automaton automaton =
                                      make_automaton(grammar_of_regex(pattern, match), 64, fuzz::k_share);
                                  fuzz::require(automaton.n_states() > 0, "an automaton has a state");
                              });
    }
    return 0;
}
