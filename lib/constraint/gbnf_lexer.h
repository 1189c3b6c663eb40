// SPDX-License-Identifier: Apache-2.0
// The text of a grammar in GBNF as a list of symbols: the step before gbnf.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "constraint/code_points.h"

namespace minim::constraint {

struct GbnfSymbol {
    enum class Kind : uint8_t {
        name,        // of a rule, `text`
        definition,  // ::=
        literal,     // `text`, in UTF-8
        characters,  // one of `set`
        token,       // `text` between < and >
        bar,
        open,
        close,
        repeat,  // `least` to `most` times what is before
        end,     // of the grammar
    };
    Kind kind;
    int64_t line;  // from 1
    std::string text{};
    CodePoints set{};
    int64_t least = 0;
    int64_t most = 0;  // -1: no end
};

// Returns the symbols, of which the last is `end`. Throws invalid or unsupported, with the line.
std::vector<GbnfSymbol> read_gbnf_symbols(std::string_view text);

template <typename... Args>
[[noreturn]] void fail_in_grammar(Status status, int64_t line, fmt::format_string<Args...> text,
                                  Args&&... args) {
    fail(status, "grammar, line {}: {}", line, format_text(text, std::forward<Args>(args)...));
}

}  // namespace minim::constraint
