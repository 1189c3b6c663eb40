// SPDX-License-Identifier: Apache-2.0
// The tests of Jinja: `value is name(argument)`.
#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "chat/jinja_arguments.h"
#include "chat/jinja_builtins.h"
#include "chat/jinja_text.h"

namespace minim::chat::jinja {
namespace {

using TestFn = bool (*)(const Value& value, const Value* argument, Meter& meter);

struct Test {
    std::string_view name;
    bool takes_argument;
    TestFn run;
};

int64_t whole_number(const Value& value) {
    if (value.is(Kind::undefined)) fail_undefined(value);
    if (value.is(Kind::boolean)) return value.boolean ? 1 : 0;
    if (!value.is(Kind::integer)) fail(Status::invalid, "a {} is not a whole number", type_name(value));
    return value.integer;
}

bool is_equal(const Value& a, const Value* b, Meter& /*meter*/) {
    return equal(a, *b);
}
bool is_not_equal(const Value& a, const Value* b, Meter& /*meter*/) {
    return !equal(a, *b);
}
bool is_less(const Value& a, const Value* b, Meter& /*meter*/) {
    return compare(a, *b) < 0;
}
bool is_less_or_equal(const Value& a, const Value* b, Meter& /*meter*/) {
    return compare(a, *b) <= 0;
}
bool is_greater(const Value& a, const Value* b, Meter& /*meter*/) {
    return compare(a, *b) > 0;
}
bool is_greater_or_equal(const Value& a, const Value* b, Meter& /*meter*/) {
    return compare(a, *b) >= 0;
}

bool is_same(const Value& a, const Value* b, Meter& /*meter*/) {
    if (a.kind != b->kind) return false;
    if (a.is(Kind::none) || a.is(Kind::undefined)) return true;
    if (a.is(Kind::boolean)) return a.boolean == b->boolean;
    fail(Status::unsupported, "the test 'sameas' is supported for true, false and none only");
}

template <bool upper>
bool has_case(const Value& value, const Value* /*none*/, Meter& meter) {
    const MarkedText text = to_text(value);
    meter.spend_text(text.size());
    const MarkedText changed = change_case(text, upper ? Case::upper : Case::lower);
    const MarkedText other = change_case(text, upper ? Case::lower : Case::upper);
    return text.bytes() == changed.bytes() && text.bytes() != other.bytes();
}

template <Kind... kinds>
bool is_kind(const Value& value, const Value* /*none*/, Meter& /*meter*/) {
    return ((value.kind == kinds) || ...);
}

constexpr Test k_tests[] = {
    {"!=", true, is_not_equal},
    {"<", true, is_less},
    {"<=", true, is_less_or_equal},
    {"==", true, is_equal},
    {">", true, is_greater},
    {">=", true, is_greater_or_equal},
    {"boolean", false, is_kind<Kind::boolean>},
    {"callable", false, is_kind<Kind::macro, Kind::method>},
    {"defined", false, [](const Value& v, const Value*, Meter&) { return !v.is(Kind::undefined); }},
    {"divisibleby", true,
     [](const Value& v, const Value* by, Meter&) {
         if (whole_number(*by) == 0) fail(Status::invalid, "integer modulo by zero");
         return whole_number(*by) == -1 || whole_number(v) % whole_number(*by) == 0;
     }},
    {"eq", true, is_equal},
    {"equalto", true, is_equal},
    {"even", false, [](const Value& v, const Value*, Meter&) { return whole_number(v) % 2 == 0; }},
    {"false", false, [](const Value& v, const Value*, Meter&) { return v.is(Kind::boolean) && !v.boolean; }},
    {"float", false, is_kind<Kind::real>},
    {"ge", true, is_greater_or_equal},
    {"greaterthan", true, is_greater},
    {"gt", true, is_greater},
    {"in", true, [](const Value& v, const Value* in, Meter& meter) { return contains(*in, v, meter); }},
    {"integer", false, is_kind<Kind::integer, Kind::big_integer>},
    {"iterable", false, is_kind<Kind::text, Kind::list, Kind::dict, Kind::undefined, Kind::loop>},
    {"le", true, is_less_or_equal},
    {"lessthan", true, is_less},
    {"lower", false, has_case<false>},
    {"lt", true, is_less},
    {"mapping", false, is_kind<Kind::dict>},
    {"ne", true, is_not_equal},
    {"none", false, is_kind<Kind::none>},
    {"number", false, is_kind<Kind::integer, Kind::big_integer, Kind::real, Kind::boolean>},
    {"odd", false, [](const Value& v, const Value*, Meter&) { return whole_number(v) % 2 != 0; }},
    {"sameas", true, is_same},
    {"sequence", false, is_kind<Kind::text, Kind::list, Kind::dict, Kind::undefined>},
    {"string", false, is_kind<Kind::text>},
    {"true", false, [](const Value& v, const Value*, Meter&) { return v.is(Kind::boolean) && v.boolean; }},
    {"undefined", false, is_kind<Kind::undefined>},
    {"upper", false, has_case<true>},
};

const Test* find_test(std::string_view name) {
    const auto* const found = std::find_if(std::begin(k_tests), std::end(k_tests),
                                           [&](const Test& test) { return test.name == name; });
    return found == std::end(k_tests) ? nullptr : found;
}

}  // namespace

bool is_test(std::string_view name) noexcept {
    return find_test(name) != nullptr;
}

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Test* test = find_test(name);
    if (test == nullptr)
        fail(Status::unsupported, "the chat template uses the test '{}', which is not supported", name);
    if (!test->takes_argument) {
        const Parameters none_given(name, arguments, {});
        return test->run(value, nullptr, meter);
    }
    const Parameters given(name, arguments, {"other"});
    return test->run(value, &given.require(0), meter);
}

}  // namespace minim::chat::jinja
