// SPDX-License-Identifier: Apache-2.0
// Access to parts of template values: attributes, items, slices, and what a loop runs over.
#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/jinja_builtins.h"
#include "chat/jinja_loop.h"
#include "chat/jinja_text.h"

namespace minim::chat::jinja {
namespace {

// The names that Python's own types have: Jinja finds these before it looks for keys of a dict.
constexpr std::string_view k_dict_names[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                             "pop",   "popitem", "setdefault", "update", "values"};
constexpr std::string_view k_list_names[] = {"append", "clear", "copy",   "count",   "extend", "index",
                                             "insert", "pop",   "remove", "reverse", "sort"};
constexpr std::string_view k_text_names[] = {
    "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
    "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
    "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
    "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
    "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
    "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
    "swapcase",   "title",        "translate",    "upper",   "zfill"};

template <size_t n>
bool has(const std::string_view (&names)[n], std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Returns the attribute if the type itself has one of this name.
std::optional<Value> own_attribute(const Value& value, std::string_view name) {
    switch (value.kind) {
        case Kind::text:
            if (has(k_text_names, name)) return method(value, name);
            break;
        case Kind::list:
            if (has(k_list_names, name)) return method(value, name);
            break;
        case Kind::dict:
            if (has(k_dict_names, name)) return method(value, name);
            break;
        case Kind::loop:
            return loop_attribute(value, name);
        case Kind::space:
            for (const auto& [member, member_value] : value.space().members)
                if (member == name) return member_value;
            break;
        case Kind::macro:
        case Kind::method:
            fail(Status::unsupported, "the chat template reads '{}' of a {}", name, type_name(value));
        default:
            break;
    }
    if (name.starts_with("__"))
        fail(Status::invalid, "access to attribute '{}' of '{}' object is unsafe", name, type_name(value));
    return std::nullopt;
}

Value no_attribute(const Value& value, std::string_view name) {
    return undefined(format_text("'{} object' has no attribute '{}'", type_name(value), name));
}

Value no_element(const Value& value, const Value& key) {
    return no_attribute(value, key.is(Kind::text) ? key.bytes() : to_text(key).bytes());
}

// Returns the position that a Python index means; nothing if it is outside.
std::optional<size_t> position(int64_t index, size_t count) {
    const auto n = static_cast<int64_t>(count);
    if (index < -n || index >= n) return std::nullopt;
    return index < 0 ? index + n : index;
}

Value element(const Value& value, int64_t index, Meter& meter) {
    if (value.is(Kind::list)) {
        const auto at = position(index, value.list().items.size());
        return at ? value.list().items[*at] : undefined(format_text("list object has no element {}", index));
    }
    meter.spend_text(value.bytes().size());
    const std::vector<size_t> offsets = character_offsets(value.bytes());
    const auto at = position(index, offsets.size() - 1);
    if (!at) return undefined(format_text("str object has no element {}", index));
    return text(value.text().slice(offsets[*at], offsets[*at + 1]));
}

int64_t bound(const Value& value, int64_t otherwise) {
    if (value.is(Kind::undefined) || value.is(Kind::none)) return otherwise;
    if (value.is(Kind::boolean)) return value.boolean ? 1 : 0;
    if (!value.is(Kind::integer))
        fail(Status::invalid, "slice indices must be integers or None, not {}", type_name(value));
    return value.integer;
}

// Python's slice.indices(): the positions that begin:end:step selects of `count`.
std::vector<size_t> selected(const Value& begin, const Value& end, const Value& step, size_t count) {
    const int64_t stride = bound(step, 1);
    if (stride == 0) fail(Status::invalid, "slice step cannot be zero");
    const auto n = static_cast<int64_t>(count);
    const int64_t low = stride > 0 ? 0 : -1;
    const int64_t high = stride > 0 ? n : n - 1;
    const auto clamped = [&](const Value& value, int64_t otherwise) {
        if (value.is(Kind::undefined) || value.is(Kind::none)) return otherwise;
        const int64_t index = bound(value, 0);
        return std::clamp(index < 0 ? index + n : index, low, high);
    };
    std::vector<size_t> positions;
    const int64_t stop = clamped(end, stride > 0 ? high : low);
    for (int64_t i = clamped(begin, stride > 0 ? low : high); stride > 0 ? i < stop : i > stop;) {
        positions.push_back(i);
        if (stride > n || stride < -n) break;
        i += stride;
    }
    return positions;
}

}  // namespace

void fail_undefined(const Value& value) {
    if (value.pointer == nullptr) fail(Status::invalid, "a value of the chat template is undefined");
    fail(Status::invalid, "{}", value.bytes());
}

Value attribute(const Value& value, std::string_view name) {
    if (value.is(Kind::undefined)) fail_undefined(value);
    if (auto own = own_attribute(value, name)) return std::move(*own);
    if (value.is(Kind::dict)) {
        if (const Value* found = value.dict().read(name)) return *found;
    }
    return no_attribute(value, name);
}

Value subscript(const Value& value, const Value& key, Meter& meter) {
    if (value.is(Kind::undefined)) fail_undefined(value);
    if (value.is(Kind::dict) && key.is(Kind::text)) {
        meter.spend(value.dict().keys.size() / 8);
        if (const Value* found = value.dict().read(key.bytes())) return *found;
    }
    const bool is_index = key.is(Kind::integer) || key.is(Kind::boolean);
    if ((value.is(Kind::list) || value.is(Kind::text)) && is_index)
        return element(value, bound(key, 0), meter);
    if (key.is(Kind::text)) {
        if (auto own = own_attribute(value, key.bytes())) return std::move(*own);
    }
    return no_element(value, key);
}

Value slice(const Value& value, const Value& begin, const Value& end, const Value& step, Meter& meter) {
    if (value.is(Kind::undefined)) fail_undefined(value);
    if (value.is(Kind::list)) {
        std::vector<Value> items;
        for (const size_t at : selected(begin, end, step, value.list().items.size()))
            items.push_back(value.list().items[at]);
        meter.spend(items.size() * 4);
        return list(std::move(items), value.list().is_tuple);
    }
    if (!value.is(Kind::text)) return no_attribute(value, "slice");
    meter.spend_text(value.bytes().size());
    const std::vector<size_t> offsets = character_offsets(value.bytes());
    const std::vector<size_t> positions = selected(begin, end, step, offsets.size() - 1);
    if (positions.empty()) return text("");
    if (bound(step, 1) == 1)
        return text(value.text().slice(offsets[positions.front()], offsets[positions.back() + 1]));
    MarkedText result;
    for (const size_t at : positions) result.append(value.text(), offsets[at], offsets[at + 1]);
    return text(std::move(result));
}

std::vector<Value> items_of(const Value& value, Meter& meter) {
    std::vector<Value> items;
    switch (value.kind) {
        case Kind::undefined:
            break;
        case Kind::list:
            items = value.list().items;
            break;
        case Kind::dict:
            value.dict().was_read = true;
            for (const MarkedText& key : value.dict().keys) items.push_back(text(key));
            break;
        case Kind::text: {
            meter.spend(value.bytes().size() * 4);
            const std::vector<size_t> offsets = character_offsets(value.bytes());
            for (size_t i = 0; i + 1 < offsets.size(); ++i)
                items.push_back(text(value.text().slice(offsets[i], offsets[i + 1])));
            break;
        }
        default:
            fail(Status::invalid, "'{}' object is not iterable", type_name(value));
    }
    meter.spend(items.size() * 4);
    return items;
}

bool contains(const Value& container, const Value& item, Meter& meter) {
    switch (container.kind) {
        case Kind::undefined:
            return false;
        case Kind::text:
            if (!item.is(Kind::text))
                fail(Status::invalid, "'in <string>' requires string as left operand, not {}",
                     type_name(item));
            meter.spend_text(container.bytes().size());
            return container.bytes().find(item.bytes()) != std::string_view::npos;
        case Kind::list:
            meter.spend(container.list().items.size());
            return std::any_of(container.list().items.begin(), container.list().items.end(),
                               [&](const Value& other) { return equal(other, item); });
        case Kind::dict:
            meter.spend(container.dict().keys.size() / 8);
            return item.is(Kind::text) && container.dict().read(item.bytes()) != nullptr;
        default:
            fail(Status::invalid, "argument of type '{}' is not iterable", type_name(container));
    }
}

}  // namespace minim::chat::jinja
