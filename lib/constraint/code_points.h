// SPDX-License-Identifier: Apache-2.0
// Sets of characters, and the bytes that spell them.
#pragma once

#include <cstdint>
#include <vector>

#include "constraint/grammar.h"

namespace minim::constraint {

class CodePoints {
  public:
    CodePoints() = default;

    // Adds a range, both ends included, at most U+10FFFF.
    CodePoints& add(char32_t first, char32_t last);
    CodePoints& add(char32_t code_point) { return add(code_point, code_point); }
    CodePoints& add(const CodePoints& other);

    // Returns all other characters, without surrogates.
    CodePoints complement() const;
    CodePoints without(const CodePoints& other) const;
    CodePoints both(const CodePoints& other) const;  // the intersection

    bool contains(char32_t code_point) const noexcept;

    struct Range {
        char32_t first;
        char32_t last;
        bool operator==(const Range&) const = default;
    };
    // Returns the ranges in ascending order; no two touch.
    const std::vector<Range>& ranges() const noexcept { return ranges_; }
    bool operator==(const CodePoints&) const = default;

    static CodePoints all() { return CodePoints().complement(); }

  private:
    std::vector<Range> ranges_;
};

// Accepts one character of the set in UTF-8, except surrogates.
Part utf8(Grammar& grammar, const CodePoints& set);

}  // namespace minim::constraint
