#include "constraint/decimal.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace minim::constraint {
namespace {

Part digit_between(Grammar& grammar, char first, char last) {
    return grammar.byte_in(byte_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
}

Part digits(Grammar& grammar, int64_t least, int64_t most) {
    return grammar.repeat(digit_between(grammar, '0', '9'), least, most);
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

// Of a whole number that is not 0.
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

int compare_wholes(const std::string& a, const std::string& b) {
    if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
    const int compared = a.compare(b);
    return compared < 0 ? -1 : compared > 0 ? 1 : 0;
}

// Numbers of as many digits as both bounds have.
Part of_same_length(Grammar& grammar, std::string_view low, std::string_view high) {
    const auto n_after = static_cast<int64_t>(low.size()) - 1;
    if (n_after < 0) return grammar.empty();
    const std::string lowest(static_cast<size_t>(n_after), '0');
    const std::string highest(static_cast<size_t>(n_after), '9');
    const std::string_view low_rest = low.substr(1);
    const std::string_view high_rest = high.substr(1);
    const auto with_first = [&](char first, std::string_view rest_low, std::string_view rest_high) {
        return grammar.sequence(
            {digit_between(grammar, first, first), of_same_length(grammar, rest_low, rest_high)});
    };
    if (low_rest == lowest && high_rest == highest)
        return grammar.sequence({digit_between(grammar, low[0], high[0]), digits(grammar, n_after, n_after)});
    if (low[0] == high[0]) return with_first(low[0], low_rest, high_rest);
    std::vector<Part> parts = {with_first(low[0], low_rest, highest), with_first(high[0], lowest, high_rest)};
    if (high[0] - low[0] > 1) {
        parts.push_back(grammar.sequence(
            {digit_between(grammar, static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
             digits(grammar, n_after, n_after)}));
    }
    return grammar.choice(std::move(parts));
}

Part whole_between(Grammar& grammar, const std::string& low, const std::optional<std::string>& high) {
    const auto written = [](const std::string& whole) { return whole.empty() ? "0" : whole; };
    const std::string first = written(low);
    const std::string last = high ? written(*high) : std::string(static_cast<size_t>(k_most_digits), '9');
    std::vector<Part> parts;
    for (size_t length = first.size(); length <= last.size(); ++length) {
        const std::string from = length == first.size() ? first : std::string(1, '1').append(length - 1, '0');
        const std::string to = length == last.size() ? last : std::string(length, '9');
        if (from <= to) parts.push_back(of_same_length(grammar, from, to));
    }
    return grammar.choice(std::move(parts));
}

// Fractions, with their point, between bounds either of which may be missing. No fraction counts as 0.
class FractionWriter {
  public:
    FractionWriter(Grammar& grammar, const Bound* low, const Bound* high)
        : grammar_(grammar), low_(low), high_(high) {}

    Part write() {
        const Part with_point = grammar_.sequence({grammar_.text("."), more(0, low_, high_)});
        return may_end(0, low_, high_) ? grammar_.optional(with_point) : with_point;
    }

  private:
    // A bound is null where the digits so far are already beyond it.
    bool may_end(size_t n, const Bound* low, const Bound* high) const {
        const bool is_above = low == nullptr || (n >= low->value.fraction.size() && low->is_included);
        const bool is_below = high == nullptr || n < high->value.fraction.size() || high->is_included;
        return is_above && is_below;
    }

    // At least one more digit, after n that are those of the bounds given.
    Part more(size_t n, const Bound* low, const Bound* high) {
        const auto n_left = k_most_digits - static_cast<int64_t>(n);
        if (low == nullptr && high == nullptr) return digits(grammar_, 1, n_left);
        const bool is_low_done = low == nullptr || n >= low->value.fraction.size();
        const bool is_high_done = high == nullptr || n >= high->value.fraction.size();
        if (is_low_done && is_high_done) {
            if (high != nullptr) return grammar_.nothing();  // zeros that change nothing
            if (low->is_included) return digits(grammar_, 1, n_left);
            return grammar_.sequence({grammar_.repeat(grammar_.text("0"), 0, n_left - 1),
                                      digit_between(grammar_, '1', '9'), digits(grammar_, 0, n_left - 1)});
        }
        const auto digit_at = [n](const Bound* bound, char without) {
            if (bound == nullptr) return without;
            return n < bound->value.fraction.size() ? bound->value.fraction[n] : '0';
        };
        const char first = digit_at(low, '0');
        const char last = digit_at(high, '9');
        std::vector<Part> parts;
        for (char digit = first; digit <= last; ++digit) {
            const Bound* next_low = low != nullptr && digit == first ? low : nullptr;
            const Bound* next_high = high != nullptr && digit == last ? high : nullptr;
            Part rest = n_left > 1 ? more(n + 1, next_low, next_high) : grammar_.nothing();
            if (may_end(n + 1, next_low, next_high)) rest = grammar_.optional(rest);
            parts.push_back(grammar_.sequence({digit_between(grammar_, digit, digit), rest}));
        }
        return grammar_.choice(std::move(parts));
    }

    Grammar& grammar_;
    const Bound* low_;
    const Bound* high_;
};

// The next two: numbers of 0 and more; the bounds' signs do not count.
Part positive_integer(Grammar& grammar, const Bound& low, const std::optional<Bound>& high) {
    const bool starts_above = !low.value.fraction.empty() || !low.is_included;
    const std::string first = starts_above ? next_whole(low.value.whole) : low.value.whole;
    if (!high) return whole_between(grammar, first, std::nullopt);
    std::string last = high->value.whole;
    if (high->value.fraction.empty() && !high->is_included) {
        if (last.empty()) return grammar.nothing();
        last = previous_whole(last);
    }
    if (compare_wholes(first, last) > 0) return grammar.nothing();
    return whole_between(grammar, first, last);
}

Part positive_number(Grammar& grammar, const Bound& low, const std::optional<Bound>& high) {
    const auto with_fraction = [&](Part whole, const Bound* above, const Bound* below) {
        return grammar.sequence({whole, FractionWriter(grammar, above, below).write()});
    };
    const auto exactly = [&](const std::string& whole) { return whole_between(grammar, whole, whole); };
    const std::string& low_whole = low.value.whole;
    if (!high) {
        return grammar.choice(
            {with_fraction(exactly(low_whole), &low, nullptr),
             with_fraction(whole_between(grammar, next_whole(low_whole), std::nullopt), nullptr, nullptr)});
    }
    const std::string& high_whole = high->value.whole;
    const int compared = compare_wholes(low_whole, high_whole);
    if (compared > 0) return grammar.nothing();
    if (compared == 0) return with_fraction(exactly(low_whole), &low, &*high);
    std::vector<Part> parts = {with_fraction(exactly(low_whole), &low, nullptr),
                               with_fraction(exactly(high_whole), nullptr, &*high)};
    const std::string first = next_whole(low_whole);
    const std::string last = previous_whole(high_whole);
    if (compare_wholes(first, last) <= 0)
        parts.push_back(with_fraction(whole_between(grammar, first, last), nullptr, nullptr));
    return grammar.choice(std::move(parts));
}

template <typename Positive>
Part between(Grammar& grammar, const std::optional<Bound>& low, const std::optional<Bound>& high,
             Positive positive) {
    const auto is_negative = [](const Bound& bound) {
        return bound.value.is_negative && !bound.value.is_zero();
    };
    std::vector<Part> parts;
    if (!high || !is_negative(*high)) {
        const bool starts_at_zero = !low || is_negative(*low);
        parts.push_back(positive(grammar, starts_at_zero ? Bound() : *low, high));
    }
    if (!low || is_negative(*low)) {
        const bool starts_at_zero = !high || !is_negative(*high);
        const Bound nearest = starts_at_zero ? Bound{.value = {}, .is_included = false} : *high;
        parts.push_back(grammar.sequence({grammar.text("-"), positive(grammar, nearest, low)}));
    }
    return grammar.choice(std::move(parts));
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
    if (n_whole > k_most_digits || std::ssize(all) - n_whole > k_most_digits) return std::nullopt;
    if (n_whole < 0) all.insert(0, static_cast<size_t>(-n_whole), '0');
    const auto n = static_cast<size_t>(std::max<int64_t>(n_whole, 0));
    if (all.size() < n) all.append(n - all.size(), '0');
    decimal.whole = all.substr(0, n);
    decimal.fraction = all.substr(n);
    return decimal;
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

Part integer_between(Grammar& grammar, const std::optional<Bound>& low, const std::optional<Bound>& high) {
    return between(grammar, low, high, positive_integer);
}

Part number_between(Grammar& grammar, const std::optional<Bound>& low, const std::optional<Bound>& high) {
    return between(grammar, low, high, positive_number);
}

}  // namespace minim::constraint
