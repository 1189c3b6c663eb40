// SPDX-License-Identifier: Apache-2.0
// The filters of Jinja: `value | name(arguments)`. One long file: a function for each filter, and their table.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/jinja_arguments.h"
#include "chat/jinja_builtins.h"
#include "chat/jinja_text.h"

namespace minim::chat::jinja {
namespace {

using FilterFn = Value (*)(std::string_view name, const Value& value, const Arguments& arguments,
                           Meter& meter);

struct Filter {
    std::string_view name;
    FilterFn run;
};

// Returns a value as text, for filters that work on text.
MarkedText soft_text(const Value& value, Meter& meter) {
    MarkedText text = to_text(value);
    meter.spend_text(text.size());
    return text;
}

// Returns what attribute= names: a path such as "a.b", which is followed part by part, or an index such as 0.
Value by_path(Value value, const Value& path, Meter& meter) {
    if (!path.is(Kind::text)) return subscript(value, path, meter);
    std::string_view rest = path.bytes();
    for (;;) {
        const size_t dot = std::min(rest.find('.'), rest.size());
        const std::string_view part = rest.substr(0, dot);
        int64_t index = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
        const bool is_index = error == std::errc() && end == part.data() + part.size();
        value = subscript(value, is_index ? integer(index) : text(part), meter);
        if (dot == rest.size()) return value;
        rest.remove_prefix(dot + 1);
    }
}

// Returns the key by which filters sort and compare an item. The case of texts is ignored, unless with_case.
Value sort_key(const Value& item, const Value* path, bool with_case, Meter& meter) {
    Value key = path == nullptr || path->is(Kind::none) ? item : by_path(item, *path, meter);
    if (with_case || !key.is(Kind::text)) return key;
    meter.spend_text(key.bytes().size());
    return text(change_case(key.text(), Case::lower));
}

Value length(std::string_view /*name*/, const Value& value, const Arguments& /*none*/, Meter& meter) {
    switch (value.kind) {
        case Kind::undefined:
            return integer(0);
        case Kind::text:
            meter.spend_text(value.bytes().size());
            return integer(static_cast<int64_t>(count_characters(value.bytes())));
        case Kind::list:
            return integer(static_cast<int64_t>(value.list().items.size()));
        case Kind::dict:
            return integer(static_cast<int64_t>(value.dict().keys.size()));
        default:
            fail(Status::invalid, "object of type '{}' has no len()", type_name(value));
    }
}

Value change(std::string_view name, const Value& value, const Arguments& /*none*/, Meter& meter) {
    const Case to = name == "upper"   ? Case::upper
                    : name == "lower" ? Case::lower
                    : name == "title" ? Case::title_filter
                                      : Case::capitalised;
    return text(change_case(soft_text(value, meter), to));
}

Value trim(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"chars"});
    const std::string_view characters =
        given.text(0) == nullptr ? std::string_view() : given.text(0)->bytes();
    return text(strip(soft_text(value, meter), Side::both, given.text(0) == nullptr ? nullptr : &characters));
}

Value to_string(std::string_view /*name*/, const Value& value, const Arguments& /*none*/, Meter& meter) {
    return text(soft_text(value, meter));
}

Value or_default(std::string_view name, const Value& value, const Arguments& arguments, Meter& /*meter*/) {
    const Parameters given(name, arguments, {"default_value", "boolean"});
    const bool is_missing = value.is(Kind::undefined) || (given.flag(1, false) && !is_true(value));
    if (!is_missing) return value;
    return given.get(0) == nullptr ? text("") : *given.get(0);
}

Value json(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = given.flag(0, false);
    style.sort_keys = given.flag(3, false);
    if (const Value* indent = given.get(1); indent != nullptr && !indent->is(Kind::none)) {
        style.has_indent = true;
        style.comma = ",";
        if (indent->is(Kind::text)) {
            style.indent = indent->bytes();
        } else {
            style.indent = std::string(std::clamp(given.whole(1, 0), int64_t{0}, int64_t{64}), ' ');
        }
    }
    if (const Value* both = given.get(2); both != nullptr && !both->is(Kind::none)) {
        const bool fits = both->is(Kind::list) && both->list().items.size() == 2 &&
                          both->list().items[0].is(Kind::text) && both->list().items[1].is(Kind::text);
        if (!fits) fail(Status::invalid, "tojson(): 'separators' is not a pair of str");
        style.comma = both->list().items[0].bytes();
        style.colon = both->list().items[1].bytes();
    }
    MarkedText result = to_json(value, style);
    meter.spend_text(result.size());
    return text(std::move(result));
}

Value join(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"d", "attribute"});
    const MarkedText separator = given.get(0) == nullptr ? MarkedText() : soft_text(*given.get(0), meter);
    MarkedText result;
    bool first = true;
    for (const Value& item : items_of(value, meter)) {
        if (!first) result.append(separator);
        result.append(soft_text(given.get(1) == nullptr ? item : by_path(item, *given.get(1), meter), meter));
        meter.spend_text(separator.size());
        first = false;
    }
    return text(std::move(result));
}

Value end_of(std::string_view name, const Value& value, const Arguments& /*none*/, Meter& meter) {
    const std::vector<Value> items = items_of(value, meter);
    if (items.empty()) return undefined(format_text("No {} item, sequence was empty.", name));
    return name == "first" ? items.front() : items.back();
}

Value to_list(std::string_view /*name*/, const Value& value, const Arguments& /*none*/, Meter& meter) {
    return list(items_of(value, meter));
}

Value reverse(std::string_view /*name*/, const Value& value, const Arguments& /*none*/, Meter& meter) {
    std::vector<Value> items = items_of(value, meter);
    std::reverse(items.begin(), items.end());
    if (!value.is(Kind::text)) return list(std::move(items));
    MarkedText result;
    for (const Value& item : items) result.append(item.text());
    return text(std::move(result));
}

Value items(std::string_view /*name*/, const Value& value, const Arguments& /*none*/, Meter& meter) {
    if (value.is(Kind::undefined)) return list({});
    if (!value.is(Kind::dict)) fail(Status::invalid, "Can only get item pairs from a mapping.");
    return call_method({value, "items"}, {}, meter);
}

Value replaced(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"old", "new", "count"});
    const MarkedText old = soft_text(given.require(0), meter);
    const int64_t most = given.get(2) == nullptr || given.get(2)->is(Kind::none) ? -1 : given.whole(2, -1);
    MarkedText result =
        replace(soft_text(value, meter), old.bytes(), soft_text(given.require(1), meter), most);
    meter.spend_text(result.size());
    return text(std::move(result));
}

// select, reject, selectattr, rejectattr: ("attribute",) "test", arguments of the test.
Value select(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const bool by_attribute = name.ends_with("attr");
    const bool keeps = name.starts_with("select");
    std::vector<Value> given = arguments.positional;
    Value path;
    if (by_attribute) {
        if (given.empty()) fail(Status::invalid, "{}() needs the name of an attribute", name);
        path = given.front();
        given.erase(given.begin());
    }
    std::string test;
    if (!given.empty()) {
        test = soft_text(given.front(), meter).bytes();
        given.erase(given.begin());
    }
    const Arguments rest = {given, arguments.keywords};
    std::vector<Value> kept;
    for (const Value& item : items_of(value, meter)) {
        const Value what = by_attribute ? by_path(item, path, meter) : item;
        meter.spend(1);
        if ((test.empty() ? is_true(what) : apply_test(test, what, rest, meter)) == keeps)
            kept.push_back(item);
    }
    return list(std::move(kept));
}

Value map(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    std::vector<Value> mapped;
    if (arguments.positional.empty()) {
        const Parameters given(name, arguments, {"attribute", "default"});
        for (const Value& item : items_of(value, meter)) {
            Value found = by_path(item, given.require(0), meter);
            if (found.is(Kind::undefined) && given.get(1) != nullptr) found = *given.get(1);
            mapped.push_back(std::move(found));
        }
        return list(std::move(mapped));
    }
    const std::string filter(soft_text(arguments.positional.front(), meter).bytes());
    const Arguments rest = {{arguments.positional.begin() + 1, arguments.positional.end()},
                            arguments.keywords};
    for (const Value& item : items_of(value, meter))
        mapped.push_back(apply_filter(filter, item, rest, meter));
    return list(std::move(mapped));
}

struct Keyed {
    Value key;
    Value item;
};

Value sorted(std::vector<Keyed> keyed, bool backwards, Meter& meter) {
    // Each comparison may look at whole texts. One look at each text is paid for already: pay for the others.
    for (size_t n = keyed.size(); n > 1; n /= 2) meter.spend(keyed.size());
    // Python keeps the order of equal items also if it sorts in reverse.
    std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
        return backwards ? compare(b.key, a.key) < 0 : compare(a.key, b.key) < 0;
    });
    std::vector<Value> items;
    for (Keyed& one : keyed) items.push_back(std::move(one.item));
    return list(std::move(items));
}

Value sort(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"reverse", "case_sensitive", "attribute"});
    std::vector<Keyed> keyed;
    for (const Value& item : items_of(value, meter))
        keyed.push_back({sort_key(item, given.get(2), given.flag(1, false), meter), item});
    return sorted(std::move(keyed), given.flag(0, false), meter);
}

Value sort_dict(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"case_sensitive", "by", "reverse"});
    const bool by_value = given.text(1) != nullptr && given.text(1)->bytes() == "value";
    std::vector<Keyed> keyed;
    const Value pairs = items("items", value, {}, meter);
    for (const Value& pair : pairs.list().items)
        keyed.push_back(
            {sort_key(pair.list().items[by_value ? 1 : 0], nullptr, given.flag(0, false), meter), pair});
    return sorted(std::move(keyed), given.flag(2, false), meter);
}

Value unique(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"case_sensitive", "attribute"});
    std::vector<Value> seen;
    std::vector<Value> kept;
    for (const Value& item : items_of(value, meter)) {
        Value key = sort_key(item, given.get(1), given.flag(0, false), meter);
        meter.spend(seen.size());
        if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(other, key); }))
            continue;
        seen.push_back(std::move(key));
        kept.push_back(item);
    }
    return list(std::move(kept));
}

Value extreme(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"case_sensitive", "attribute"});
    const std::vector<Value> all = items_of(value, meter);
    if (all.empty()) return undefined("No aggregated item, sequence was empty.");
    const Value* best = nullptr;
    Value best_key;
    for (const Value& item : all) {
        Value key = sort_key(item, given.get(1), given.flag(0, false), meter);
        if (best != nullptr && (name == "min" ? compare(key, best_key) >= 0 : compare(key, best_key) <= 0))
            continue;
        best = &item;
        best_key = std::move(key);
    }
    return *best;
}

// Reads the text of a number as int() and float() do; nothing if it is not a number.
std::optional<double> read_real(std::string_view bytes) {
    const MarkedText stripped = strip(MarkedText(bytes, false), Side::both, nullptr);
    std::string_view digits = stripped.bytes();
    if (digits.starts_with('+')) digits.remove_prefix(1);
    double number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool is_whole = error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
    return is_whole && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> read_integer(std::string_view bytes) {
    const MarkedText stripped = strip(MarkedText(bytes, false), Side::both, nullptr);
    std::string_view digits = stripped.bytes();
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && end == digits.data() + digits.size() && !digits.empty()
               ? std::optional(number)
               : std::nullopt;
}

Value truncated(double number) {
    constexpr double k_limit = 9.2e18;
    if (!(std::abs(number) < k_limit))
        fail(Status::unsupported, "a number beyond 64 bits in the chat template");
    return integer(static_cast<int64_t>(number));
}

Value to_int(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"default", "base"});
    if (given.get(1) != nullptr) fail(Status::unsupported, "the filter 'int' with a base is not supported");
    const Value otherwise = given.get(0) == nullptr ? integer(0) : *given.get(0);
    if (value.is(Kind::undefined)) fail_undefined(value);
    if (value.is(Kind::integer) || value.is(Kind::big_integer)) return value;
    if (value.is(Kind::boolean)) return integer(value.boolean ? 1 : 0);
    if (value.is(Kind::real)) return std::isfinite(value.real) ? truncated(value.real) : otherwise;
    if (!value.is(Kind::text)) return otherwise;
    meter.spend_text(value.bytes().size());
    if (const auto whole = read_integer(value.bytes())) return integer(*whole);
    const auto number = read_real(value.bytes());
    return number ? truncated(*number) : otherwise;
}

Value to_real(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"default"});
    if (value.is(Kind::undefined)) fail_undefined(value);
    if (value.is_number()) return real(value.as_real());
    std::optional<double> number;
    if (value.is(Kind::text)) {
        meter.spend_text(value.bytes().size());
        number = read_real(value.bytes());
    }
    if (number) return real(*number);
    return given.get(0) == nullptr ? real(0.0) : *given.get(0);
}

Value absolute(std::string_view /*name*/, const Value& value, const Arguments& /*none*/, Meter& /*meter*/) {
    if (value.is(Kind::real)) return real(std::abs(value.real));
    if (!value.is_number() || (value.is(Kind::integer) && value.integer == INT64_MIN))
        fail(Status::invalid, "bad operand type for abs(): '{}'", type_name(value));
    const auto whole = value.is(Kind::boolean) ? int64_t{value.boolean} : value.integer;
    return integer(whole < 0 ? -whole : whole);
}

Value rounded(std::string_view name, const Value& value, const Arguments& arguments, Meter& /*meter*/) {
    const Parameters given(name, arguments, {"precision", "method"});
    if (!value.is_number())
        fail(Status::invalid, "type {} doesn't define __round__ method", type_name(value));
    const int64_t precision = given.whole(0, 0);
    if (precision < 0 || precision > 15)
        fail(Status::unsupported, "round() to {} digits is not supported", precision);
    const std::string_view method = given.text(1) == nullptr ? "common" : given.text(1)->bytes();
    if (method == "common") {
        if (value.is(Kind::integer)) return value;
        // Converts by way of correctly rounded digits, as Python does.
        return real(*read_real(format_text("{:.{}f}", value.as_real(), precision)));
    }
    if (method != "ceil" && method != "floor") fail(Status::invalid, "method must be common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = value.as_real() * scale;
    return real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value sum(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"attribute", "start"});
    bool is_real = false;
    double total = 0;
    int64_t whole = given.whole(1, 0);
    for (const Value& item : items_of(value, meter)) {
        const Value number = given.get(0) == nullptr || given.get(0)->is(Kind::none)
                                 ? item
                                 : by_path(item, *given.get(0), meter);
        if (!number.is_number())
            fail(Status::invalid, "unsupported operand type for +: '{}'", type_name(number));
        if (number.is(Kind::real)) {
            is_real = true;
            total += number.real;
        } else if (__builtin_add_overflow(
                       whole, number.is(Kind::boolean) ? int64_t{number.boolean} : number.integer, &whole)) {
            fail(Status::unsupported, "a number beyond 64 bits in the chat template");
        }
    }
    return is_real ? real(total + static_cast<double>(whole)) : integer(whole);
}

Value indent(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"width", "first", "blank"});
    MarkedText indention;
    if (given.get(0) != nullptr && given.get(0)->is(Kind::text)) {
        indention = given.get(0)->text();
    } else {
        indention.append(std::string(std::clamp(given.whole(0, 4), int64_t{0}, int64_t{1000}), ' '), false);
    }
    MarkedText source = soft_text(value, meter);
    source.append("\n", false);
    const std::vector<MarkedText> lines = split_lines(source, false);
    MarkedText result;
    for (size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) result.append("\n", false);
        const bool indented = i == 0 ? given.flag(1, false) : given.flag(2, false) || !lines[i].is_empty();
        if (indented) result.append(indention);
        result.append(lines[i]);
        meter.spend_text(indention.size() + lines[i].size());
    }
    return text(std::move(result));
}

constexpr Filter k_filters[] = {
    {"abs", absolute},
    {"capitalize", change},
    {"count", length},
    {"d", or_default},
    {"default", or_default},
    {"dictsort", sort_dict},
    {"first", end_of},
    {"float", to_real},
    {"indent", indent},
    {"int", to_int},
    {"items", items},
    {"join", join},
    {"last", end_of},
    {"length", length},
    {"list", to_list},
    {"lower", change},
    {"map", map},
    {"max", extreme},
    {"min", extreme},
    {"reject", select},
    {"rejectattr", select},
    {"replace", replaced},
    {"reverse", reverse},
    {"round", rounded},
    {"safe", to_string},
    {"select", select},
    {"selectattr", select},
    {"sort", sort},
    {"string", to_string},
    {"sum", sum},
    {"title", change},
    {"tojson", json},
    {"trim", trim},
    {"unique", unique},
    {"upper", change},
};

const Filter* find_filter(std::string_view name) {
    const auto* const found = std::find_if(std::begin(k_filters), std::end(k_filters),
                                           [&](const Filter& filter) { return filter.name == name; });
    return found == std::end(k_filters) ? nullptr : found;
}

}  // namespace

bool is_filter(std::string_view name) noexcept {
    return find_filter(name) != nullptr;
}

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
    const Filter* filter = find_filter(name);
    if (filter == nullptr)
        fail(Status::unsupported, "the chat template uses the filter '{}', which is not supported", name);
    meter.spend(1);
    return filter->run(name, value, arguments, meter);
}

}  // namespace minim::chat::jinja
