// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/error.h"
#include "chat/jinja_interpreter.h"

namespace minim::chat::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view symbol, const Value& a, const Value& b) {
    if (a.is(Kind::undefined)) fail_undefined(a);
    if (b.is(Kind::undefined)) fail_undefined(b);
    if (a.is(Kind::big_integer) || b.is(Kind::big_integer) || (symbol == "%" && a.is(Kind::text)))
        fail(Status::unsupported, "{} of {} and {} in the chat template is not supported", symbol,
             type_name(a), type_name(b));
    fail(Status::invalid, "unsupported operand type(s) for {}: '{}' and '{}'", symbol, type_name(a),
         type_name(b));
}

int64_t whole(const Value& value) {
    return value.is(Kind::boolean) ? int64_t{value.boolean} : value.integer;
}

[[noreturn]] void fail_size() {
    fail(Status::unsupported, "a number beyond 64 bits in the chat template");
}

Value power(int64_t base, int64_t exponent) {
    if (exponent < 0) return real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    int64_t result = 1;
    for (; exponent > 0; --exponent) {
        if (__builtin_mul_overflow(result, base, &result)) fail_size();
        if (base == 0 || base == 1) break;
        if (base == -1) return integer(exponent % 2 == 0 ? 1 : -1);
    }
    return integer(result);
}

Value of_integers(std::string_view symbol, int64_t a, int64_t b) {
    int64_t result = 0;
    if (symbol == "+") {
        if (__builtin_add_overflow(a, b, &result)) fail_size();
    } else if (symbol == "-") {
        if (__builtin_sub_overflow(a, b, &result)) fail_size();
    } else if (symbol == "*") {
        if (__builtin_mul_overflow(a, b, &result)) fail_size();
    } else if (symbol == "**") {
        return power(a, b);
    } else {
        if (b == 0) fail(Status::invalid, "division by zero");
        if (symbol == "/") return real(static_cast<double>(a) / static_cast<double>(b));
        if (b == -1) return symbol == "%" ? integer(0) : negated(integer(a));
        const bool rounds = a % b != 0 && (a < 0) != (b < 0);  // Python rounds down
        result = symbol == "%" ? a % b + (rounds ? b : 0) : a / b - (rounds ? 1 : 0);
    }
    return integer(result);
}

Value of_reals(std::string_view symbol, double a, double b) {
    if (symbol == "+") return real(a + b);
    if (symbol == "-") return real(a - b);
    if (symbol == "*") return real(a * b);
    if (symbol == "**") return real(std::pow(a, b));
    if (b == 0.0) fail(Status::invalid, "division by zero");
    if (symbol == "/") return real(a / b);
    if (symbol == "//") return real(std::floor(a / b));
    const double rest = std::fmod(a, b);
    return real(rest != 0.0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value repeated(const Value& value, int64_t times, Meter& meter) {
    if (value.is(Kind::text)) {
        MarkedText result;
        for (int64_t i = 0; i < times && !value.text().is_empty(); ++i) {
            meter.spend_text(value.bytes().size());
            result.append(value.text());
        }
        return text(std::move(result));
    }
    std::vector<Value> items;
    for (int64_t i = 0; i < times && !value.list().items.empty(); ++i) {
        meter.spend(value.list().items.size() * 4);
        items.insert(items.end(), value.list().items.begin(), value.list().items.end());
    }
    return list(std::move(items), value.list().is_tuple);
}

}  // namespace

Value negated(const Value& value) {
    if (value.is(Kind::real)) return real(-value.real);
    if (value.is(Kind::undefined)) fail_undefined(value);
    if (!value.is_number()) fail(Status::invalid, "bad operand type for unary -: '{}'", type_name(value));
    if (whole(value) == INT64_MIN) fail_size();
    return integer(-whole(value));
}

Value arithmetic(std::string_view symbol, const Value& a, const Value& b, Meter& meter) {
    if (a.is_number() && b.is_number()) {
        const bool is_real = a.is(Kind::real) || b.is(Kind::real);
        return is_real ? of_reals(symbol, a.as_real(), b.as_real()) : of_integers(symbol, whole(a), whole(b));
    }
    if (symbol == "+" && a.is(Kind::text) && b.is(Kind::text)) {
        meter.spend_text(a.bytes().size() + b.bytes().size());
        MarkedText result = a.text();
        result.append(b.text());
        return text(std::move(result));
    }
    if (symbol == "+" && a.is(Kind::list) && b.is(Kind::list) && a.list().is_tuple == b.list().is_tuple) {
        std::vector<Value> items = a.list().items;
        items.insert(items.end(), b.list().items.begin(), b.list().items.end());
        meter.spend(items.size() * 4);
        return list(std::move(items), a.list().is_tuple);
    }
    const auto is_sequence = [](const Value& value) { return value.is(Kind::text) || value.is(Kind::list); };
    const auto is_whole = [](const Value& value) {
        return value.is(Kind::integer) || value.is(Kind::boolean);
    };
    if (symbol == "*" && is_sequence(a) && is_whole(b)) return repeated(a, whole(b), meter);
    if (symbol == "*" && is_whole(a) && is_sequence(b)) return repeated(b, whole(a), meter);
    fail_operands(symbol, a, b);
}

}  // namespace minim::chat::jinja
