// SPDX-License-Identifier: Apache-2.0
#include "constraint/number_texts.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "constraint/regex.h"

namespace minim::constraint {
namespace {

// The character classes of multiples_of(): 0 to 9 are the digits, then come the sign and the point.
constexpr size_t k_sign = 10;
constexpr size_t k_point = 11;

}  // namespace

TextAutomaton texts_of_value(const Decimal& value) {
    RegexNode zeros = repeat_node(text_node("0"), 0, -1);
    RegexNode fraction = value.fraction.empty()
                             ? optional_node(sequence_node({text_node(".0"), std::move(zeros)}))
                             : sequence_node({text_node("." + value.fraction), std::move(zeros)});
    RegexNode sign = text_node(value.is_negative && !value.is_zero() ? "-" : "");
    if (value.is_zero()) sign = optional_node(text_node("-"));
    return automaton_of(sequence_node({std::move(sign), text_node(value.whole.empty() ? "0" : value.whole),
                                       std::move(fraction)}),
                        Match::whole, "a number");
}

// If the divisor has k digits behind its point, a number is a multiple under two conditions. Its digits up to the k-th
// behind the point, read as a whole number, are a multiple of the divisor's digits; and all later digits are 0. The
// states are the remainders before the point, and the remainders after each number of digits behind it.
std::optional<TextAutomaton> multiples_of(const Decimal& divisor) {
    constexpr size_t k_max_states = 20'000;
    const size_t k = divisor.fraction.size();
    std::string all = divisor.whole + divisor.fraction;
    all.erase(0, std::min(all.find_first_not_of('0'), all.size()));
    if (all.size() > 5) return std::nullopt;
    const auto modulus = static_cast<size_t>(std::stoul(all));
    if (modulus * (k + 2) > k_max_states) return std::nullopt;
    TextAutomaton automaton;
    for (char digit = '0'; digit <= '9'; ++digit)
        automaton.classes.push_back(CodePoints().add(static_cast<uint8_t>(digit)));
    automaton.classes.push_back(CodePoints().add('-'));
    automaton.classes.push_back(CodePoints().add('.'));

    // Returns whether a remainder after i digits behind the point becomes 0 with zeros up to the k-th digit.
    const auto is_multiple_after = [&](size_t remainder, size_t i) {
        for (; i < k; ++i) remainder = remainder * 10 % modulus;
        return remainder == 0;
    };
    const int32_t start = automaton.add_state(false);
    const int32_t signed_start = automaton.add_state(false);
    automaton.connect(start, k_sign, signed_start);
    std::vector<int32_t> wholes;
    std::vector<std::vector<int32_t>> fractions(k + 1);  // [digits behind the point][remainder]
    for (size_t r = 0; r < modulus; ++r) wholes.push_back(automaton.add_state(is_multiple_after(r, 0)));
    for (size_t i = 0; i <= k; ++i)
        for (size_t r = 0; r < modulus; ++r)
            fractions[i].push_back(automaton.add_state(i > 0 && is_multiple_after(r, i)));
    for (size_t digit = 0; digit < 10; ++digit) {
        automaton.connect(start, digit, wholes[digit % modulus]);
        automaton.connect(signed_start, digit, wholes[digit % modulus]);
        for (size_t r = 0; r < modulus; ++r) {
            const size_t next = (r * 10 + digit) % modulus;
            automaton.connect(wholes[r], digit, wholes[next]);
            for (size_t i = 0; i < k; ++i) automaton.connect(fractions[i][r], digit, fractions[i + 1][next]);
        }
    }
    const int32_t zeros = automaton.add_state(true);  // behind the k-th digit
    automaton.connect(zeros, 0, zeros);
    automaton.connect(fractions[k][0], 0, zeros);
    for (size_t r = 0; r < modulus; ++r) automaton.connect(wholes[r], k_point, fractions[0][r]);
    drop_dead_states(automaton);
    return automaton;
}

bool is_multiple(const Decimal& value, const Decimal& divisor) {
    // Multiplies both by the power of ten that makes them whole numbers, then divides digit by digit.
    const size_t k = std::max(value.fraction.size(), divisor.fraction.size());
    const auto scaled = [k](const Decimal& decimal) {
        std::string digits = decimal.whole + decimal.fraction;
        digits.append(k - decimal.fraction.size(), '0');
        digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
        return digits;
    };
    const std::string dividend = scaled(value);
    const std::string by = scaled(divisor);
    std::string remainder;
    for (const char digit : dividend) {
        remainder += digit;
        remainder.erase(0, std::min(remainder.find_first_not_of('0'), remainder.size()));
        while (compare_wholes(remainder, by) >= 0) {
            int borrow = 0;
            for (size_t i = 0; i < remainder.size(); ++i) {
                const size_t at = remainder.size() - 1 - i;
                int difference =
                    remainder[at] - '0' - borrow - (i < by.size() ? by[by.size() - 1 - i] - '0' : 0);
                borrow = difference < 0 ? 1 : 0;
                if (difference < 0) difference += 10;
                remainder[at] = static_cast<char>('0' + difference);
            }
            remainder.erase(0, std::min(remainder.find_first_not_of('0'), remainder.size()));
        }
    }
    return remainder.empty();
}

}  // namespace minim::constraint
