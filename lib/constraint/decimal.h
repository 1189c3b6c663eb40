// Decimal numbers as they are written, for bounds of numbers: exact where a double is not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "constraint/grammar.h"

namespace minim::constraint {

// -12.5: {true, "12", "5"}.
struct Decimal {
    bool is_negative = false;
    std::string whole;     // without leading zeros; empty for 0
    std::string fraction;  // without trailing zeros

    bool is_zero() const noexcept { return whole.empty() && fraction.empty(); }
};

// A JSON number. Nothing where it has more than k_most_digits digits before or behind the point.
std::optional<Decimal> parse_decimal(std::string_view number);

// -1, 0 or 1, as a is below, equal to or above b.
int compare(const Decimal& a, const Decimal& b) noexcept;

constexpr int64_t k_most_digits = 18;

struct Bound {
    Decimal value;
    bool is_included = true;
};

// The numbers between two bounds, written without exponent. Either bound may be missing.
Part integer_between(Grammar& grammar, const std::optional<Bound>& low, const std::optional<Bound>& high);
Part number_between(Grammar& grammar, const std::optional<Bound>& low, const std::optional<Bound>& high);

}  // namespace minim::constraint
