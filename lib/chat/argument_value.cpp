// SPDX-License-Identifier: Apache-2.0
#include "chat/argument_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "chat/jinja_value.h"
#include "chat/markup.h"
#include "chat/python_text.h"

namespace minim::chat {

using json::Value;

namespace {

std::string_view trimmed(std::string_view text) {
    const size_t begin = text.find_first_not_of(markup::k_space);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(markup::k_space) + 1 - begin);
}

std::string_view without_outer_newlines(std::string_view text) {
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
    return text;
}

// `lower` is in lower case.
bool equals_any_case(std::string_view text, std::string_view lower) {
    return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) {
        return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
    });
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// A decimal number taken apart: sign, digits without the point, and the power of ten they are multiplied with.
struct Decimal {
    bool is_negative = false;
    bool is_integer = false;  // written without point and exponent
    std::string digits;       // without leading zeros; empty: zero
    int64_t exponent = 0;
};

std::optional<Decimal> read_decimal(std::string_view text) {
    constexpr int64_t k_max_exponent = 1'000'000;  // far beyond a double, and safe to add to
    Decimal decimal;
    size_t i = 0;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) decimal.is_negative = text[i++] == '-';
    size_t n_digits = 0;
    bool point = false;
    for (; i < text.size() && (is_digit(text[i]) || (text[i] == '.' && !point)); ++i) {
        if (text[i] == '.') {
            point = true;
            continue;
        }
        ++n_digits;
        if (point) --decimal.exponent;
        if (text[i] != '0' || !decimal.digits.empty()) decimal.digits += text[i];
    }
    if (n_digits == 0) return std::nullopt;
    decimal.is_integer = !point && i == text.size();
    if (i == text.size()) return decimal;
    if (text[i] != 'e' && text[i] != 'E') return std::nullopt;
    std::string_view power = text.substr(i + 1);
    const bool power_is_negative = power.starts_with('-');
    if (power.starts_with('+') || power_is_negative) power.remove_prefix(1);
    if (power.empty() || !std::all_of(power.begin(), power.end(), is_digit)) return std::nullopt;
    int64_t value = 0;
    for (const char c : power) value = std::min(value * 10 + (c - '0'), k_max_exponent);
    decimal.exponent += power_is_negative ? -value : value;
    return decimal;
}

double to_double(const Decimal& decimal) {
    if (decimal.digits.empty()) return 0.0;
    const std::string text = decimal.digits + "e" + std::to_string(decimal.exponent);
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) {
        // Out of range: from_chars does not say at which end.
        const auto magnitude = static_cast<int64_t>(decimal.digits.size()) + decimal.exponent;
        value = magnitude > 0 ? HUGE_VAL : 0.0;
    }
    return decimal.is_negative ? -value : value;
}

// Returns the digits of an integral value; nothing if it has a fraction.
std::optional<std::string> integral_digits(const Decimal& decimal) {
    const size_t n_zeros = decimal.digits.size() - (decimal.digits.find_last_not_of('0') + 1);
    if (decimal.digits.empty()) return "0";
    const std::string sign = decimal.is_negative ? "-" : "";
    if (decimal.exponent >= 0) return sign + decimal.digits + std::string(decimal.exponent, '0');
    const auto fraction = static_cast<size_t>(-decimal.exponent);
    if (fraction > n_zeros) return std::nullopt;
    return sign + decimal.digits.substr(0, decimal.digits.size() - fraction);
}

// Appends the number `text`: as an integer if it is integral, else as Python's repr() writes it.
bool append_number(std::string& out, std::string_view text) {
    const auto decimal = read_decimal(text);
    if (!decimal) return false;
    const double value = decimal->is_integer ? 0.0 : to_double(*decimal);
    if (std::isinf(value)) return false;
    if (const auto digits = integral_digits(*decimal)) {
        out += *digits;
    } else if (value == std::floor(value)) {
        // The double has lost the fraction: it is an integer below 2^54 or so, and its digits are appended.
        constexpr size_t k_max_digits = 400;
        char digits_of_double[k_max_digits];
        const auto end = std::to_chars(std::begin(digits_of_double), std::end(digits_of_double),
                                       std::abs(value), std::chars_format::fixed, 0);
        if (value < 0) out += '-';
        out.append(digits_of_double, end.ptr);
    } else {
        out += python_float(value);
    }
    return true;
}

bool append_integer(std::string& out, std::string_view text) {
    const auto decimal = read_decimal(text);
    if (!decimal || !decimal->is_integer) return false;
    out += *integral_digits(*decimal);
    return true;
}

bool append_boolean(std::string& out, std::string_view text, bool words_count) {
    constexpr std::string_view k_true[] = {"true", "1", "yes", "on"};
    constexpr std::string_view k_false[] = {"false", "0", "no", "off"};
    const size_t count = words_count ? std::size(k_true) : 1;
    for (size_t i = 0; i < count; ++i) {
        const bool is_true = equals_any_case(text, k_true[i]);
        if (!is_true && !equals_any_case(text, k_false[i])) continue;
        out += is_true ? "true" : "false";
        return true;
    }
    return false;
}

std::optional<Value> strict_json(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) return std::nullopt;  // parse() skips the byte order mark of a file
    try {
        return json::parse(text, "argument", json::Source::argument);
    } catch (const Error& error) {
        if (error.status() != Status::invalid) throw;
        return std::nullopt;
    }
}

bool append_container(std::string& out, std::string_view text, TypeSet types) {
    const auto value = strict_json(text);
    if (!value) return false;
    if (!(value->is_object() && types.has(TypeSet::object)) &&
        !(value->is_array() && types.has(TypeSet::array)))
        return false;
    out += jinja::to_json(jinja::from_json(*value), {}).bytes();
    return true;
}

void add_type_name(TypeSet& types, std::string_view name) {
    constexpr std::pair<std::string_view, TypeSet::Bit> k_names[] = {
        {"null", TypeSet::null},     {"boolean", TypeSet::boolean}, {"integer", TypeSet::integer},
        {"number", TypeSet::number}, {"string", TypeSet::string},   {"object", TypeSet::object},
        {"array", TypeSet::array},
    };
    for (const auto& [known, bit] : k_names)
        if (name == known) types.add(bit);
}

void add_kind_of(TypeSet& types, const Value& value) {
    switch (value.kind) {
        case Value::Kind::null:
            return types.add(TypeSet::null);
        case Value::Kind::boolean:
            return types.add(TypeSet::boolean);
        case Value::Kind::number:
            return types.add(value.is_integer() ? TypeSet::integer : TypeSet::number);
        case Value::Kind::string:
            return types.add(TypeSet::string);
        case Value::Kind::array:
            return types.add(TypeSet::array);
        case Value::Kind::object:
            return types.add(TypeSet::object);
    }
}

// Returns the place in `root` that "#/a/b" points to; nullptr if there is none.
const Value* resolve(const Value* root, std::string_view reference) {
    if (!reference.starts_with('#')) return nullptr;
    reference.remove_prefix(1);
    while (root != nullptr && !reference.empty()) {
        if (reference[0] != '/') return nullptr;
        const size_t end = std::min(reference.find('/', 1), reference.size());
        std::string key;
        for (size_t i = 1; i < end; ++i) {
            const bool escaped = reference[i] == '~' && i + 1 < end;
            key += escaped ? (reference[++i] == '0' ? '~' : '/') : reference[i];
        }
        reference.remove_prefix(end);
        if (root->is_array()) {
            size_t index = 0;
            const auto [rest, error] = std::from_chars(key.data(), key.data() + key.size(), index);
            const bool found =
                error == std::errc() && rest == key.data() + key.size() && index < root->items.size();
            root = found ? &root->items[index] : nullptr;
        } else {
            root = json::find(root, key);
        }
    }
    return root;
}

// Returns the schemas with all that they are made of: the schemas that they refer to and the members of their unions.
// Each occurs once, which also ends cycles.
std::vector<const Value*> with_parts(const Value* root, std::vector<const Value*> parts) {
    std::set<const Value*> seen(parts.begin(), parts.end());
    const auto add = [&](const Value* part) {
        if (part != nullptr && seen.insert(part).second) parts.push_back(part);
    };
    for (size_t i = 0; i < parts.size(); ++i) {
        const Value* part = parts[i];
        if (const Value* reference = json::find(part, "$ref"); reference != nullptr && reference->is_string())
            add(resolve(root, reference->text));
        for (const std::string_view key : {"anyOf", "oneOf", "allOf"}) {
            const Value* members = json::find(part, key);
            if (members == nullptr || !members->is_array()) continue;
            for (const Value& member : members->items) add(&member);
        }
    }
    return parts;
}

void add_types(TypeSet& types, const Value* part) {
    if (const Value* type = json::find(part, "type")) {
        if (type->is_string()) add_type_name(types, type->text);
        if (type->is_array()) {
            for (const Value& item : type->items) add_type_name(types, item.text);
        }
    }
    if (const Value* values = json::find(part, "enum"); values != nullptr && values->is_array()) {
        for (const Value& value : values->items) add_kind_of(types, value);
    }
    if (const Value* value = json::find(part, "const")) add_kind_of(types, *value);
}

}  // namespace

ToolSet::ToolSet(Value tools) : tools_(std::move(tools)) {
    if (tools_.is_null()) return;
    if (!tools_.is_array()) fail(Status::invalid, "tools: not an array");
    for (size_t i = 0; i < tools_.items.size(); ++i) {
        const Value& tool = tools_.items[i];
        if (!tool.is_object()) fail(Status::invalid, "tools[{}]: not an object", i);
        const Value* wrapped = json::find(&tool, "function");
        const Value* function = wrapped != nullptr && wrapped->is_object() ? wrapped : &tool;
        const Value* name = json::find(function, "name");
        if (name == nullptr || !name->is_string()) fail(Status::invalid, "tools[{}]: no name", i);
        functions_.push_back(function);
    }
}

const Value* ToolSet::find(std::string_view name) const noexcept {
    for (const Value* function : functions_)
        if (json::find(function, "name")->text == name) return function;
    return nullptr;
}

ValueSchema ToolSet::schema_of(std::string_view tool, std::string_view parameter) const {
    const Value* root = json::find(find(tool), "parameters");
    std::vector<const Value*> properties;
    for (const Value* part : with_parts(root, {root}))
        if (const Value* property = json::find(json::find(part, "properties"), parameter))
            properties.push_back(property);
    return {root, with_parts(root, std::move(properties))};
}

TypeSet ToolSet::types_of(std::string_view tool, std::string_view parameter) const {
    TypeSet types = types_in(schema_of(tool, parameter));
    if (types.is_empty()) types.add(TypeSet::string);
    return types;
}

TypeSet types_in(const ValueSchema& schema) {
    TypeSet types;
    for (const Value* part : schema.parts) add_types(types, part);
    return types;
}

ValueSchema member_schema(const ValueSchema& object, std::string_view name) {
    std::vector<const Value*> found;
    for (const Value* part : object.parts)
        if (const Value* property = json::find(json::find(part, "properties"), name))
            found.push_back(property);
    for (size_t i = 0; found.empty() && i < object.parts.size(); ++i)
        if (const Value* further = json::find(object.parts[i], "additionalProperties"))
            found.push_back(further);
    return {object.root, with_parts(object.root, std::move(found))};
}

ValueSchema item_schema(const ValueSchema& array, size_t index) {
    std::vector<const Value*> found;
    for (const Value* part : array.parts) {
        const Value* prefix = json::find(part, "prefixItems");
        const bool has_own = prefix != nullptr && prefix->is_array() && index < prefix->items.size();
        const Value* item = has_own ? &prefix->items[index] : json::find(part, "items");
        if (item != nullptr) found.push_back(item);
    }
    return {array.root, with_parts(array.root, std::move(found))};
}

void append_argument(std::string& out, std::string_view text, TypeSet types, bool keeps_newlines) {
    const bool may_be_string = types.has(TypeSet::string);
    const std::string_view string = keeps_newlines ? text : without_outer_newlines(text);
    if (types.is_string_only()) return json::append_quoted(out, string);

    const std::string_view word = trimmed(text);
    if ((types.has(TypeSet::null) || !may_be_string) && equals_any_case(word, "null")) {
        out += "null";
        return;
    }
    if (types.has(TypeSet::integer) && append_integer(out, word)) return;
    if (types.has(TypeSet::number) && append_number(out, word)) return;
    if (types.has(TypeSet::boolean) && append_boolean(out, word, !may_be_string)) return;
    if ((types.has(TypeSet::object) || types.has(TypeSet::array)) && append_container(out, word, types))
        return;
    if (may_be_string) return json::append_quoted(out, string);

    if (const auto value = strict_json(word)) {
        out += jinja::to_json(jinja::from_json(*value), {}).bytes();
    } else {
        json::append_quoted(out, word);
    }
}

}  // namespace minim::chat
