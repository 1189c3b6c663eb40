// SPDX-License-Identifier: Apache-2.0
// Any bytes as a grammar in GBNF: it either becomes an automaton, in which texts can be followed, or the error says where it is
// wrong.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "constraint/automaton.h"
#include "constraint/gbnf.h"
#include "constraint/positions.h"
#include "require.h"
#include "share.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace minim;
    using namespace minim::constraint;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    fuzz::require_refusal(
        {Status::invalid, Status::unsupported}, "a grammar is good, wrong or too large", [&] {
            const Automaton automaton = make_automaton(grammar_of_gbnf(text, nullptr), 64, fuzz::k_share);
            Positions positions(automaton);
            // A text that can go on can also end: it is followed along the first byte that is possible.
            int32_t position = positions.start_of(automaton.start_rule);
            for (int n = 0; n < 200 && !positions.must_end(position); ++n) {
                int32_t next = Positions::k_dead;
                for (int32_t symbol = 0; symbol < automaton.n_symbols && next == Positions::k_dead; ++symbol)
                    next = positions.step(position, (symbol + n) % automaton.n_symbols);
                fuzz::require(next != Positions::k_dead, "a text that cannot end can go on");
                position = next;
            }
        });
    return 0;
}
