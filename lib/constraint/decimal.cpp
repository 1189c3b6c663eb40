// SPDX-License-Identifier: Apache-2.0
#include "constraint/decimal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

namespace minim::constraint {
namespace {

RegexNode digit_between(char first, char last) {
    return character_range_node(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}

// `most` < 0: any number.
RegexNode digits(int64_t least, int64_t most) {
    return repeat_node(digit_between('0', '9'), least, most);
}

RegexNode nothing() {
    return choice_node({});
}

std::string next_whole(std::string whole) {
    for (size_t i = whole.size(); i-- > 0;) {
        if (whole[i] != '9') {
            ++whole[i];
            return whole;
        }
        whole[i] = '0';
    }
    return whole.insert(0, 1, '1');
}

// Returns the whole number before `whole`, which is not 0.
std::string previous_whole(std::string whole) {
    for (size_t i = whole.size(); i-- > 0;) {
        if (whole[i] != '0') {
            --whole[i];
            break;
        }
        whole[i] = '9';
    }
    if (whole[0] == '0') whole.erase(0, 1);
    return whole;
}

// Accepts the numbers from `low` to `high`, which have equally many digits.
RegexNode of_same_length(std::string_view low, std::string_view high) {
    const auto n_after = static_cast<int64_t>(low.size()) - 1;
    if (n_after < 0) return sequence_node({});
    const std::string lowest(n_after, '0');
    const std::string highest(n_after, '9');
    const std::string_view low_rest = low.substr(1);
    const std::string_view high_rest = high.substr(1);
    const auto with_first = [&](char first, std::string_view rest_low, std::string_view rest_high) {
        return sequence_node({digit_between(first, first), of_same_length(rest_low, rest_high)});
    };
    if (low_rest == lowest && high_rest == highest)
        return sequence_node({digit_between(low[0], high[0]), digits(n_after, n_after)});
    if (low[0] == high[0]) return with_first(low[0], low_rest, high_rest);
    std::vector<RegexNode> parts = {with_first(low[0], low_rest, highest),
                                    with_first(high[0], lowest, high_rest)};
    if (high[0] - low[0] > 1) {
        parts.push_back(
            sequence_node({digit_between(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                           digits(n_after, n_after)}));
    }
    return choice_node(std::move(parts));
}

RegexNode whole_between(const std::string& low, const std::optional<std::string>& high) {
    const auto written = [](const std::string& whole) { return whole.empty() ? "0" : whole; };
    const std::string first = written(low);
    const std::string nines(first.size(), '9');
    if (!high) {
        return choice_node({of_same_length(first, nines),
                            sequence_node({digit_between('1', '9'), digits(std::ssize(first), -1)})});
    }
    const std::string last = written(*high);
    if (first.size() == last.size()) return first <= last ? of_same_length(first, last) : nothing();
    if (first.size() > last.size()) return nothing();
    const std::string least = std::string(1, '1').append(last.size() - 1, '0');
    std::vector<RegexNode> parts = {of_same_length(first, nines), of_same_length(least, last)};
    if (last.size() - first.size() > 1)
        parts.push_back(
            sequence_node({digit_between('1', '9'), digits(std::ssize(first), std::ssize(last) - 2)}));
    return choice_node(std::move(parts));
}

// Writes the fractions, with their point, between two bounds, either of which may be missing. A missing fraction counts as 0.
class FractionWriter {
  public:
    FractionWriter(const Bound* low, const Bound* high) : low_(low), high_(high) {}

    RegexNode write() {
        RegexNode with_point = sequence_node({text_node("."), more(0, low_, high_)});
        return may_end(0, low_, high_) ? optional_node(std::move(with_point)) : with_point;
    }

  private:
    // A bound is null if the digits so far satisfy it, whatever follows.
    static bool may_end(size_t n, const Bound* low, const Bound* high) {
        const bool is_above = low == nullptr || (n >= low->value.fraction.size() && low->is_included);
        const bool is_below = high == nullptr || n < high->value.fraction.size() || high->is_included;
        return is_above && is_below;
    }

    // Accepts at least one more digit. The n digits so far are equal to those of each bound that is not null.
    RegexNode more(size_t n, const Bound* low, const Bound* high) {
        if (low == nullptr && high == nullptr) return digits(1, -1);
        const bool is_low_done = low == nullptr || n >= low->value.fraction.size();
        const bool is_high_done = high == nullptr || n >= high->value.fraction.size();
        RegexNode zeros = repeat_node(text_node("0"), 0, -1);
        if (is_low_done && is_high_done) {
            // The number so far equals the bounds. With an upper bound only zeros may follow; with an excluded lower
            // bound alone, some later digit must not be 0.
            if (high != nullptr)
                return may_end(n, low, high) ? sequence_node({text_node("0"), std::move(zeros)}) : nothing();
            if (low->is_included) return digits(1, -1);
            return sequence_node({std::move(zeros), digit_between('1', '9'), digits(0, -1)});
        }
        const auto digit_at = [n](const Bound* bound, char without) {
            if (bound == nullptr) return without;
            return n < bound->value.fraction.size() ? bound->value.fraction[n] : '0';
        };
        const char first = digit_at(low, '0');
        const char last = digit_at(high, '9');
        std::vector<RegexNode> parts;
        for (char digit = first; digit <= last; ++digit) {
            const Bound* next_low = low != nullptr && digit == first ? low : nullptr;
            const Bound* next_high = high != nullptr && digit == last ? high : nullptr;
            RegexNode rest = more(n + 1, next_low, next_high);
            if (may_end(n + 1, next_low, next_high)) rest = optional_node(std::move(rest));
            parts.push_back(sequence_node({digit_between(digit, digit), std::move(rest)}));
        }
        return choice_node(std::move(parts));
    }

    const Bound* low_;
    const Bound* high_;
};

// Automata of bounds grow with the square of their digits. A bound with more digits is replaced by a power of ten within it for
// numbers written without an exponent; numbers between the two can still be written with one.
constexpr size_t k_max_bound_digits = 25;

Bound power_of_ten(size_t exponent, bool is_included) {
    const std::string whole = std::string(1, '1').append(exponent, '0');
    return {.value = {.is_negative = false, .whole = whole, .fraction = ""}, .is_included = is_included};
}

Bound rounded_up(const Bound& low) {
    const size_t n_digits = low.value.whole.size();
    return n_digits <= k_max_bound_digits ? low : power_of_ten(n_digits, true);
}

std::optional<Bound> rounded_down(const std::optional<Bound>& high) {
    if (!high || high->value.whole.size() <= k_max_bound_digits) return high;
    return power_of_ten(high->value.whole.size() - 1, false);
}

// The next three functions accept numbers of 0 and more, and ignore the signs of the bounds.
RegexNode positive_integer(const Bound& exact_low, const std::optional<Bound>& exact_high) {
    const Bound low = rounded_up(exact_low);
    const std::optional<Bound> high = rounded_down(exact_high);
    const bool starts_above = !low.value.fraction.empty() || !low.is_included;
    const std::string first = starts_above ? next_whole(low.value.whole) : low.value.whole;
    if (!high) return whole_between(first, std::nullopt);
    std::string last = high->value.whole;
    if (high->value.fraction.empty() && !high->is_included) {
        if (last.empty()) return nothing();
        last = previous_whole(last);
    }
    if (compare_wholes(first, last) > 0) return nothing();
    return whole_between(first, last);
}

RegexNode positive_plain(const Bound& exact_low, const std::optional<Bound>& exact_high) {
    const Bound low = rounded_up(exact_low);
    const std::optional<Bound> high = rounded_down(exact_high);
    const auto with_fraction = [](RegexNode whole, const Bound* above, const Bound* below) {
        return sequence_node({std::move(whole), FractionWriter(above, below).write()});
    };
    const auto exactly = [](const std::string& whole) { return whole_between(whole, whole); };
    const std::string& low_whole = low.value.whole;
    if (!high) {
        return choice_node(
            {with_fraction(exactly(low_whole), &low, nullptr),
             with_fraction(whole_between(next_whole(low_whole), std::nullopt), nullptr, nullptr)});
    }
    const std::string& high_whole = high->value.whole;
    const int compared = compare_wholes(low_whole, high_whole);
    if (compared > 0) return nothing();
    if (compared == 0) return with_fraction(exactly(low_whole), &low, &*high);
    std::vector<RegexNode> parts = {with_fraction(exactly(low_whole), &low, nullptr),
                                    with_fraction(exactly(high_whole), nullptr, &*high)};
    const std::string first = next_whole(low_whole);
    const std::string last = previous_whole(high_whole);
    if (compare_wholes(first, last) <= 0)
        parts.push_back(with_fraction(whole_between(first, last), nullptr, nullptr));
    return choice_node(std::move(parts));
}

// A number that is not 0, as d.ddd times 10 to the power of `exponent`.
struct Scientific {
    Bound mantissa;
    int64_t exponent = 0;
};

Scientific scientific(const Bound& bound) {
    const Decimal& value = bound.value;
    std::string all = value.whole + value.fraction;
    const size_t n_zeros = all.find_first_not_of('0');
    Scientific result;
    result.exponent = std::ssize(value.whole) - 1 - static_cast<int64_t>(n_zeros);
    all.erase(0, n_zeros);
    all.erase(all.find_last_not_of('0') + 1);
    result.mantissa = {.value = {.is_negative = false, .whole = all.substr(0, 1), .fraction = all.substr(1)},
                       .is_included = bound.is_included};
    return result;
}

// Accepts the exponents from `first` to `last`, either of which may be missing.
RegexNode exponents(std::optional<int64_t> first, std::optional<int64_t> last) {
    const auto text = [](int64_t n) { return n == 0 ? std::string() : std::to_string(n); };
    const auto signed_whole = [](RegexNode sign, RegexNode whole) {
        return sequence_node({std::move(sign), repeat_node(text_node("0"), 0, -1), std::move(whole)});
    };
    std::vector<RegexNode> parts;
    if (!last || *last >= 0) {
        const auto high = last ? std::optional(text(*last)) : std::nullopt;
        parts.push_back(signed_whole(optional_node(text_node("+")),
                                     whole_between(text(std::max<int64_t>(first.value_or(0), 0)), high)));
    }
    if (!first || *first < 0) {
        const auto high = first ? std::optional(text(-*first)) : std::nullopt;
        parts.push_back(signed_whole(text_node("-"),
                                     whole_between(text(std::max<int64_t>(-last.value_or(-1), 1)), high)));
    }
    return sequence_node({characters_node(CodePoints().add('e').add('E')), choice_node(std::move(parts))});
}

RegexNode positive_scientific(const Bound& low, const std::optional<Bound>& high) {
    if (high && high->value.is_zero()) return nothing();
    const Bound one = {.value = {.is_negative = false, .whole = "1", .fraction = ""}};
    const Bound ten = {.value = {.is_negative = false, .whole = "10", .fraction = ""}, .is_included = false};
    std::vector<RegexNode> parts;
    const auto add = [&](const Bound& from, const Bound& to, std::optional<int64_t> first,
                         std::optional<int64_t> last) {
        if (first && last && *first > *last) return;
        parts.push_back(sequence_node({positive_plain(from, to), exponents(first, last)}));
    };
    std::optional<int64_t> first;
    std::optional<int64_t> last;
    std::optional<Scientific> from;
    std::optional<Scientific> to;
    if (!low.value.is_zero()) from = scientific(low);
    if (high) to = scientific(*high);
    if (from) first = from->exponent + 1;
    if (to) last = to->exponent - 1;
    add(one, ten, first, last);
    if (from && to && from->exponent == to->exponent) {
        add(from->mantissa, to->mantissa, from->exponent, from->exponent);
    } else {
        if (from && (!to || from->exponent < to->exponent))
            add(from->mantissa, ten, from->exponent, from->exponent);
        if (to && (!from || from->exponent < to->exponent))
            add(one, to->mantissa, to->exponent, to->exponent);
    }
    return choice_node(std::move(parts));
}

RegexNode positive_number(const Bound& low, const std::optional<Bound>& high) {
    return choice_node({positive_plain(low, high), positive_scientific(low, high)});
}

template <typename Positive>
RegexNode between(const std::optional<Bound>& low, const std::optional<Bound>& high, Positive positive) {
    const auto is_negative = [](const Bound& bound) {
        return bound.value.is_negative && !bound.value.is_zero();
    };
    std::vector<RegexNode> parts;
    if (!high || !is_negative(*high)) {
        const bool starts_at_zero = !low || is_negative(*low);
        parts.push_back(positive(starts_at_zero ? Bound() : *low, high));
    }
    if (!low || is_negative(*low)) {
        const bool starts_at_zero = !high || !is_negative(*high);
        const Bound nearest = starts_at_zero ? Bound{.value = {}, .is_included = false} : *high;
        parts.push_back(sequence_node({text_node("-"), positive(nearest, low)}));
    }
    return choice_node(std::move(parts));
}

}  // namespace

std::optional<Decimal> parse_decimal(std::string_view number) {
    Decimal decimal;
    if (number.starts_with('-')) {
        decimal.is_negative = true;
        number.remove_prefix(1);
    }
    int64_t exponent = 0;
    const size_t e = number.find_first_of("eE");
    if (e != std::string_view::npos) {
        std::string_view digits_of_exponent = number.substr(e + 1);
        if (digits_of_exponent.starts_with('+')) digits_of_exponent.remove_prefix(1);
        const char* end = digits_of_exponent.data() + digits_of_exponent.size();
        const auto [rest, error] = std::from_chars(digits_of_exponent.data(), end, exponent);
        if (error != std::errc() || rest != end) return std::nullopt;
        number = number.substr(0, e);
    }
    const size_t point = std::min(number.find('.'), number.size());
    std::string all(number.substr(0, point));
    if (point < number.size()) all += number.substr(point + 1);
    if (all.find_first_not_of('0') == std::string::npos) return decimal;
    int64_t n_whole = 0;
    if (__builtin_add_overflow(static_cast<int64_t>(point), exponent, &n_whole)) return std::nullopt;

    // Zeros at either end move the point into the digits.
    const size_t n_leading = all.find_first_not_of('0');
    all.erase(0, n_leading);
    n_whole -= static_cast<int64_t>(n_leading);
    all.erase(all.find_last_not_of('0') + 1);
    if (n_whole > k_max_digits || std::ssize(all) - n_whole > k_max_digits) return std::nullopt;
    if (n_whole < 0) all.insert(0, -n_whole, '0');
    const auto n = static_cast<size_t>(std::max<int64_t>(n_whole, 0));
    if (all.size() < n) all.append(n - all.size(), '0');
    decimal.whole = all.substr(0, n);
    decimal.fraction = all.substr(n);
    return decimal;
}

int compare_wholes(const std::string& a, const std::string& b) noexcept {
    if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
    const int compared = a.compare(b);
    return compared < 0 ? -1 : compared > 0 ? 1 : 0;
}

int compare(const Decimal& a, const Decimal& b) noexcept {
    if (a.is_zero() && b.is_zero()) return 0;
    const bool a_is_below_zero = a.is_negative && !a.is_zero();
    const bool b_is_below_zero = b.is_negative && !b.is_zero();
    if (a_is_below_zero != b_is_below_zero) return a_is_below_zero ? -1 : 1;
    int compared = compare_wholes(a.whole, b.whole);
    if (compared == 0) {
        const int fractions = a.fraction.compare(b.fraction);
        compared = fractions < 0 ? -1 : fractions > 0 ? 1 : 0;
    }
    return a_is_below_zero ? -compared : compared;
}

std::string to_text(const Decimal& decimal) {
    if (decimal.is_zero()) return "0";
    std::string text = decimal.is_negative ? "-" : "";
    text += decimal.whole.empty() ? "0" : decimal.whole;
    if (!decimal.fraction.empty()) text += "." + decimal.fraction;
    return text;
}

RegexNode integer_between(const std::optional<Bound>& low, const std::optional<Bound>& high) {
    return between(low, high, positive_integer);
}

RegexNode number_between(const std::optional<Bound>& low, const std::optional<Bound>& high) {
    return between(low, high, positive_number);
}

RegexNode plain_number_between(const std::optional<Bound>& low, const std::optional<Bound>& high) {
    return between(low, high, positive_plain);
}

}  // namespace minim::constraint
