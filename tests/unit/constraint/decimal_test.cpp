// SPDX-License-Identifier: Apache-2.0
#include "constraint/decimal.h"

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "constraint/number_texts.h"
#include "support.h"
#include "support/catch.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;

namespace {

std::optional<Bound> bound(const char* number, bool is_included = true) {
    if (number == nullptr) return std::nullopt;
    return Bound{parse_decimal(number).value(), is_included};
}

// Returns the value of a number's text, in any locale.
double number(std::string_view text) {
    double value = 0.0;
    REQUIRE(std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc());
    return value;
}

Language of_tree(const RegexNode& tree) {
    Grammar grammar;
    const Part part = part_of(grammar, automaton_of(tree, Match::whole, "number"), utf8_spelling(grammar));
    return Language(only(std::move(grammar), part));
}

Language integers(std::optional<Bound> low, std::optional<Bound> high) {
    return of_tree(integer_between(low, high));
}

Language numbers(std::optional<Bound> low, std::optional<Bound> high) {
    return of_tree(number_between(low, high));
}

}  // namespace

TEST_CASE("decimals are read exactly") {
    const auto text = [](const char* number) {
        const Decimal d = parse_decimal(number).value();
        return (d.is_negative ? "-" : "") + d.whole + "." + d.fraction;
    };
    CHECK(text("0") == ".");
    CHECK(text("-12.50") == "-12.5");
    CHECK(text("0.001") == ".001");
    CHECK(text("1e3") == "1000.");
    CHECK(text("1.25E+1") == "12.5");
    CHECK(text("125e-2") == "1.25");
    CHECK(text("5e-3") == ".005");
    CHECK(text("100e-1") == "10.");
    CHECK(text("0e999999999999999999") == ".");
    CHECK_FALSE(parse_decimal("1e2000").has_value());
    CHECK(parse_decimal("1e1999").has_value());
    CHECK_FALSE(parse_decimal("1e-2001").has_value());
    CHECK_FALSE(parse_decimal("1e9223372036854775807").has_value());
    CHECK_FALSE(parse_decimal("1e99999999999999999999").has_value());
}

TEST_CASE("decimals compare as numbers") {
    const char* ascending[] = {"-100",  "-10.5", "-10.49", "-1",  "-0.01", "0",
                               "0.009", "0.01",  "1",      "1.5", "10",    "100"};
    for (size_t i = 0; i < std::size(ascending); ++i)
        for (size_t j = 0; j < std::size(ascending); ++j) {
            const int expected = i < j ? -1 : i > j ? 1 : 0;
            CHECK(compare(*parse_decimal(ascending[i]), *parse_decimal(ascending[j])) == expected);
        }
    CHECK(compare(*parse_decimal("-0"), *parse_decimal("0")) == 0);
}

TEST_CASE("integers between bounds are those and no others") {
    const std::pair<const char*, const char*> ranges[] = {
        {"0", "0"},     {"0", "9"},       {"3", "7"},    {"7", "12"},    {"-5", "5"},
        {"-120", "-7"}, {"95", "1203"},   {"10", "99"},  {"100", "100"}, {"-1000", "-1"},
        {"0.5", "3.5"}, {"-3.5", "-0.5"}, {"199", "201"}};
    for (const auto& [low, high] : ranges) {
        for (const bool low_in : {true, false}) {
            for (const bool high_in : {true, false}) {
                const double a = number(low);
                const double b = number(high);
                const auto fits = [&](double x) {
                    return (low_in ? x >= a : x > a) && (high_in ? x <= b : x < b);
                };
                bool any = false;
                for (int x = -1500; x <= 1500; ++x) any = any || fits(x);
                if (!any) {
                    CHECK_THROWS(integers(bound(low, low_in), bound(high, high_in)));
                    continue;
                }
                INFO(low << " to " << high << " " << low_in << high_in);
                Language language = integers(bound(low, low_in), bound(high, high_in));
                for (int x = -1500; x <= 1500; ++x)
                    if (language.has(std::to_string(x)) != fits(x)) FAIL(x);
                CHECK_FALSE(language.has("007"));
                CHECK_FALSE(language.has("-0"));
                CHECK_FALSE(language.has(""));
            }
        }
    }
}

TEST_CASE("integers with one bound") {
    Language from = integers(bound("-12"), std::nullopt);
    for (const char* good : {"-12", "0", "98765432109876543210987654321098765432109876543210"})
        CHECK(from.has(good));
    for (const char* bad : {"-13", "-100000000000000000000", "1e3"}) CHECK_FALSE(from.has(bad));
    Language to = integers(std::nullopt, bound("12"));
    for (const char* good : {"-99999999999999999999999", "12"}) CHECK(to.has(good));
    CHECK_FALSE(to.has("13"));
    CHECK_FALSE(to.has("10000000000000000000000"));
}

TEST_CASE("numbers between bounds are those and no others") {
    const std::pair<const char*, const char*> ranges[] = {
        {"0", "1"},       {"0", "0"},      {"0.25", "0.75"},  {"-1.5", "1.5"},
        {"1.05", "1.1"},  {"9.9", "10.1"}, {"-3.25", "-3.2"}, {"2", "30"},
        {"0.099", "0.1"}, {"-0.5", "0"},   {"3.14", "3.14"},  {"19.99", "200"}};
    for (const auto& [low, high] : ranges) {
        for (const bool low_in : {true, false}) {
            for (const bool high_in : {true, false}) {
                if (std::string_view(low) == high && !(low_in && high_in)) {
                    CHECK_THROWS(numbers(bound(low, low_in), bound(high, high_in)));
                    continue;
                }
                INFO(low << " to " << high << " " << low_in << high_in);
                Language language = numbers(bound(low, low_in), bound(high, high_in));
                // Thousandths, so that the comparison is exact.
                const auto thousandths = [](const char* text) { return std::lround(number(text) * 1000); };
                const long a = thousandths(low);
                const long b = thousandths(high);
                for (long x = -4000; x <= 31000; ++x) {
                    const bool fits = (low_in ? x >= a : x > a) && (high_in ? x <= b : x < b);
                    std::string text = std::to_string(std::abs(x));
                    while (text.size() < 4) text.insert(0, 1, '0');
                    text.insert(text.size() - 3, 1, '.');
                    while (text.back() == '0') text.pop_back();
                    if (text.back() == '.') text.pop_back();
                    if (x < 0) text.insert(0, 1, '-');
                    if (language.has(text) != fits) FAIL(text << " should " << (fits ? "" : "not ") << "fit");
                }
                for (const char* bad : {"", ".5", "1.", "01", "-", "10e0", "0x1"})
                    CHECK_FALSE(language.has(bad));
            }
        }
    }
}

TEST_CASE("numbers with one bound, and digits beyond those of the bound") {
    Language above = numbers(bound("0", false), std::nullopt);
    for (const char* good : {"0.001", "1", "12345.678", "0.00000000000000001"}) CHECK(above.has(good));
    for (const char* bad : {"0", "0.0", "-1", "0.000"}) CHECK_FALSE(above.has(bad));
    Language below = numbers(std::nullopt, bound("0.5"));
    for (const char* good : {"0.49999", "-100", "0", "0.5"}) CHECK(below.has(good));
    for (const char* bad : {"0.51", "1", "0.500001"}) CHECK_FALSE(below.has(bad));
}

TEST_CASE("numbers between bounds may have an exponent behind one digit and a point") {
    Language all = numbers(bound("-1.5e-7"), bound("250"));
    for (const char* good :
         {"1e-300", "-1.5e-7", "-1.5E-07", "-1e-8", "2.5e2", "2.5e+002", "1e0", "2e2", "9.9e1"})
        CHECK(all.has(good));
    for (const char* bad :
         {"-1.51e-7", "-1e-6", "2.51e2", "3e2", "1e3", "0e1", "10e1", "-1e0", "1e", "1e-", "1.e1"})
        CHECK_FALSE(all.has(bad));
    Language small = numbers(bound("1e-300", false), bound("1e-299", false));
    for (const char* good : {"1.5e-300", "9.99e-300"}) CHECK(small.has(good));
    for (const char* bad : {"1e-300", "1e-299", "1.0e-300", "1", "0"}) CHECK_FALSE(small.has(bad));
    Language doubles = numbers(bound("-1.7976931348623157e308"), bound("1.7976931348623157e308"));
    for (const char* good : {"1.7976931348623157e308", "-1.7e308", "5e-324", "123456789.5", "-0.25"})
        CHECK(doubles.has(good));
    for (const char* bad : {"1.7976931348623158e308", "1e309", "-1e1000"}) CHECK_FALSE(doubles.has(bad));
}

TEST_CASE("multiples") {
    const auto multiples = [](const char* divisor) {
        return multiples_of(parse_decimal(divisor).value()).value();
    };
    const std::vector<std::pair<const char*, long>> divisors = {
        {"1", 1000}, {"7", 7000}, {"0.5", 500}, {"2.5", 2500}, {"0.01", 10}, {"0.3", 300}, {"100", 100000}};
    for (const auto& [divisor, thousandths] : divisors) {
        INFO(divisor);
        const TextAutomaton texts = multiples(divisor);
        for (long x = 0; x < 20000; ++x) {
            std::string text = std::to_string(x);
            while (text.size() < 4) text.insert(0, 1, '0');
            text.insert(text.size() - 3, 1, '.');
            const bool fits = x % thousandths == 0;
            if (texts.has(text) != fits || texts.has("-" + text + "00") != fits) FAIL(text);
            if (is_multiple(parse_decimal(text).value(), parse_decimal(divisor).value()) != fits) FAIL(text);
        }
    }
    CHECK_FALSE(multiples_of(parse_decimal("0.123456789").value()).has_value());
    CHECK(is_multiple(parse_decimal("1e300").value(), parse_decimal("0.123456789e-3").value()) == false);
}
