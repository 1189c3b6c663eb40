// SPDX-License-Identifier: Apache-2.0
// Decimal numbers as written, for bounds of numbers: exact, unlike a double.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "constraint/regex_tree.h"

namespace minim::constraint {

// -12.5: {true, "12", "5"}.
struct Decimal {
    bool is_negative = false;
    std::string whole;     // without leading zeros; empty for 0
    std::string fraction;  // without trailing zeros

    bool is_zero() const noexcept { return whole.empty() && fraction.empty(); }
};

// Parses a JSON number; nothing if it has more than k_max_digits digits before or after the point.
std::optional<Decimal> parse_decimal(std::string_view number);
constexpr int64_t k_max_digits = 2000;

// Returns the text of the number without exponent. Equal numbers have the same text.
std::string to_text(const Decimal& decimal);

// Return -1, 0 or 1 if a is below, equal to or above b: for whole numbers without leading zeros, and for any numbers.
int compare_wholes(const std::string& a, const std::string& b) noexcept;
int compare(const Decimal& a, const Decimal& b) noexcept;

struct Bound {
    Decimal value;
    bool is_included = true;
};

// Returns the numbers between two bounds, either of which may be missing. Integers have no point and no exponent;
// numbers have no exponent, or one non-zero digit before the point: 1.5e-7.
RegexNode integer_between(const std::optional<Bound>& low, const std::optional<Bound>& high);
RegexNode number_between(const std::optional<Bound>& low, const std::optional<Bound>& high);
// As number_between(), but only the numbers without exponent.
RegexNode plain_number_between(const std::optional<Bound>& low, const std::optional<Bound>& high);

}  // namespace minim::constraint
