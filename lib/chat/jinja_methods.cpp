// SPDX-License-Identifier: Apache-2.0
// Methods of Python's str, list and dict, of loops, and Jinja's functions.
#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/jinja_arguments.h"
#include "chat/jinja_builtins.h"
#include "chat/jinja_loop.h"
#include "chat/jinja_text.h"

namespace minim::chat::jinja {
namespace {

constexpr std::string_view k_functions[] = {"range", "dict", "namespace", "raise_exception"};
constexpr std::string_view k_unsupported_functions[] = {"strftime_now", "cycler", "joiner", "lipsum",
                                                        "self",         "caller", "varargs"};

Value texts(std::vector<MarkedText> parts, Meter& meter) {
    std::vector<Value> items;
    for (MarkedText& part : parts) items.push_back(text(std::move(part)));
    meter.spend(items.size() * 4);
    return list(std::move(items));
}

// Returns whether `bytes` matches the first argument: a text, or any text of a tuple.
bool matches_any(const Parameters& given, bool (*matches)(std::string_view, std::string_view),
                 std::string_view bytes) {
    const Value& what = given.require(0);
    if (!what.is(Kind::list))
        return matches(bytes, given.text(0) == nullptr ? "None" : given.text(0)->bytes());
    return std::any_of(what.list().items.begin(), what.list().items.end(),
                       [&](const Value& one) { return one.is(Kind::text) && matches(bytes, one.bytes()); });
}

// Returns the part of a text that Python's find() searches, and sets `begin` to its byte offset.
std::string_view searched(const MarkedText& self, const Parameters& given, size_t& begin) {
    if (given.get(1) == nullptr && given.get(2) == nullptr) return self.bytes();
    const std::vector<size_t> offsets = character_offsets(self.bytes());
    const auto n = static_cast<int64_t>(offsets.size()) - 1;
    const auto offset = [&](size_t index, int64_t otherwise) {
        const int64_t at = given.get(index) == nullptr || given.get(index)->is(Kind::none)
                               ? otherwise
                               : given.whole(index, 0);
        return offsets[std::clamp(at < 0 ? at + n : at, int64_t{0}, n)];
    };
    begin = offset(1, 0);
    const size_t end = offset(2, n);
    return end > begin ? self.bytes().substr(begin, end - begin) : std::string_view();
}

Value find(std::string_view name, const MarkedText& self, const Arguments& arguments) {
    const Parameters given(name, arguments, {"sub", "start", "end"});
    given.require(0);
    size_t begin = 0;
    const std::string_view where = searched(self, given, begin);
    const std::string_view what = given.text(0) == nullptr ? "None" : given.text(0)->bytes();
    if (name == "count") {
        if (what.empty()) return integer(static_cast<int64_t>(count_characters(where)) + 1);
        int64_t count = 0;
        for (size_t at = where.find(what); at != std::string_view::npos;
             at = where.find(what, at + what.size()))
            ++count;
        return integer(count);
    }
    const size_t at = name.starts_with('r') ? where.rfind(what) : where.find(what);
    if (at != std::string_view::npos)
        return integer(static_cast<int64_t>(count_characters(self.bytes().substr(0, begin + at))));
    if (name.ends_with("index")) fail(Status::invalid, "substring not found");
    return integer(-1);
}

Value split_method(std::string_view name, const MarkedText& self, const Arguments& arguments, Meter& meter) {
    const Parameters given(name, arguments, {"sep", "maxsplit"});
    const int64_t most = given.whole(1, -1);
    const MarkedText* separator = given.text(0);
    if (separator == nullptr) {
        if (name == "rsplit" && most >= 0)
            fail(Status::unsupported, "rsplit() with maxsplit and without a separator is not supported");
        return texts(split(self, nullptr, most), meter);
    }
    const std::string_view bytes = separator->bytes();
    return texts(name == "split" ? split(self, &bytes, most) : split_from_right(self, bytes, most), meter);
}

Value partition(std::string_view name, const MarkedText& self, const Arguments& arguments) {
    const Parameters given(name, arguments, {"sep"});
    given.require(0);
    const MarkedText separator = given.text(0) == nullptr ? MarkedText("None", false) : *given.text(0);
    if (separator.is_empty()) fail(Status::invalid, "empty separator");
    const bool from_right = name == "rpartition";
    const size_t at =
        from_right ? self.bytes().rfind(separator.bytes()) : self.bytes().find(separator.bytes());
    if (at == std::string_view::npos) {
        if (from_right) return list({text(""), text(""), text(self)}, true);
        return list({text(self), text(""), text("")}, true);
    }
    const size_t end = at + separator.size();
    return list({text(self.slice(0, at)), text(self.slice(at, end)), text(self.slice(end))}, true);
}

bool all_digits(std::string_view bytes) {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (!std::all_of(bytes.begin(), bytes.end(), is_ascii))
        fail(Status::unsupported, "isdigit() of text beyond ASCII is not supported");
    return !bytes.empty() &&
           std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Value join(const MarkedText& separator, const Value& what, Meter& meter) {
    MarkedText result;
    bool first = true;
    for (const Value& item : items_of(what, meter)) {
        if (!item.is(Kind::text))
            fail(Status::invalid, "sequence item: expected str instance, {} found", type_name(item));
        if (!first) result.append(separator);
        result.append(item.text());
        first = false;
        meter.spend_text(separator.size() + item.bytes().size());
    }
    return text(std::move(result));
}

std::optional<Value> text_method(std::string_view name, const MarkedText& self, const Arguments& arguments,
                                 Meter& meter) {
    meter.spend_text(self.size());
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
        const Parameters given(name, arguments, {"chars"});
        const Side side = name == "strip" ? Side::both : name == "lstrip" ? Side::left : Side::right;
        const std::string_view characters =
            given.text(0) == nullptr ? std::string_view() : given.text(0)->bytes();
        return text(strip(self, side, given.text(0) == nullptr ? nullptr : &characters));
    }
    if (name == "split" || name == "rsplit") return split_method(name, self, arguments, meter);
    if (name == "startswith" || name == "endswith") {
        const Parameters given(name, arguments, {"prefix"});
        const auto starts = [](std::string_view a, std::string_view b) { return a.starts_with(b); };
        const auto ends = [](std::string_view a, std::string_view b) { return a.ends_with(b); };
        return boolean(name == "startswith" ? matches_any(given, starts, self.bytes())
                                            : matches_any(given, ends, self.bytes()));
    }
    if (name == "replace") {
        const Parameters given(name, arguments, {"old", "new", "count"});
        if (given.text(0) == nullptr || given.text(1) == nullptr)
            fail(Status::invalid, "replace() needs two str");
        const MarkedText result = replace(self, given.text(0)->bytes(), *given.text(1), given.whole(2, -1));
        meter.spend_text(result.size());
        return text(result);
    }
    if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count")
        return find(name, self, arguments);
    if (name == "partition" || name == "rpartition") return partition(name, self, arguments);
    if (name == "join") return join(self, Parameters(name, arguments, {"iterable"}).require(0), meter);
    if (name == "removeprefix" || name == "removesuffix") {
        const Parameters given(name, arguments, {"prefix"});
        given.require(0);
        const std::string_view what = given.text(0) == nullptr ? "None" : given.text(0)->bytes();
        if (name == "removeprefix") return text(self.slice(self.bytes().starts_with(what) ? what.size() : 0));
        return text(self.slice(0, self.size() - (self.bytes().ends_with(what) ? what.size() : 0)));
    }
    if (name == "splitlines") {
        const Parameters given(name, arguments, {"keepends"});
        return texts(split_lines(self, given.flag(0, false)), meter);
    }
    constexpr std::string_view k_others[] = {"upper", "lower", "capitalize", "title", "isdigit", "isspace"};
    if (std::find(std::begin(k_others), std::end(k_others), name) == std::end(k_others)) return std::nullopt;
    const Parameters none_given(name, arguments, {});
    if (name == "upper") return text(change_case(self, Case::upper));
    if (name == "lower") return text(change_case(self, Case::lower));
    if (name == "capitalize") return text(change_case(self, Case::capitalised));
    if (name == "title") return text(change_case(self, Case::title));
    if (name == "isdigit") return boolean(all_digits(self.bytes()));
    return boolean(!self.is_empty() && strip(self, Side::left, nullptr).is_empty());
}

std::optional<Value> list_method(std::string_view name, const List& self, const Arguments& arguments,
                                 Meter& meter) {
    if (name != "index" && name != "count") return std::nullopt;
    const Parameters given(name, arguments, {"value"});
    meter.spend(self.items.size());
    const auto is_it = [&](const Value& item) { return equal(item, given.require(0)); };
    if (name == "count") return integer(std::count_if(self.items.begin(), self.items.end(), is_it));
    const auto at = std::find_if(self.items.begin(), self.items.end(), is_it);
    if (at == self.items.end()) fail(Status::invalid, "the value is not in the list");
    return integer(at - self.items.begin());
}

std::optional<Value> dict_method(std::string_view name, const Value& self, const Arguments& arguments,
                                 Meter& meter) {
    const Dict& dict = self.dict();
    if (name == "get") {
        const Parameters given(name, arguments, {"key", "default"});
        const Value& key = given.require(0);
        meter.spend(dict.keys.size() / 8);
        if (key.is(Kind::text)) {
            if (const Value* found = dict.read(key.bytes())) return *found;
        }
        return given.get(1) == nullptr ? none() : *given.get(1);
    }
    if (name != "items" && name != "keys" && name != "values") return std::nullopt;
    const Parameters none_given(name, arguments, {});
    dict.was_read = true;
    meter.spend(dict.keys.size() * 8);
    std::vector<Value> items;
    for (size_t i = 0; i < dict.keys.size(); ++i) {
        if (name == "values") {
            items.push_back(dict.values[i]);
        } else if (name == "keys") {
            items.push_back(text(dict.keys[i]));
        } else {
            items.push_back(list({text(dict.keys[i]), dict.values[i]}, true));
        }
    }
    return list(std::move(items));
}

std::optional<Value> loop_method(std::string_view name, const Loop& loop, const Arguments& arguments) {
    if (name == "cycle") {
        if (arguments.positional.empty()) fail(Status::invalid, "no items for cycling given");
        return arguments.positional[loop.index % arguments.positional.size()];
    }
    if (name != "changed") return std::nullopt;
    Value now = list(arguments.positional, true);
    const bool changed = !loop.has_changed_before || !equal(now, loop.last_changed);
    loop.has_changed_before = true;
    loop.last_changed = std::move(now);
    return boolean(changed);
}

Value range(const Arguments& arguments, Meter& meter) {
    constexpr int64_t k_max = 100'000;  // as Jinja's sandbox has it
    const Parameters given("range", arguments, {"start", "stop", "step"});
    given.require(0);
    const bool only_stop = given.get(1) == nullptr;
    const int64_t begin = only_stop ? 0 : given.whole(0, 0);
    const int64_t end = given.whole(only_stop ? 0 : 1, 0);
    const int64_t step = given.whole(2, 1);
    if (step == 0) fail(Status::invalid, "range() arg 3 must not be zero");
    std::vector<Value> items;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
        if (items.size() >= k_max) fail(Status::invalid, "range too big: more than {} items", k_max);
        items.push_back(integer(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    meter.spend(items.size() * 4);
    return list(std::move(items));
}

Value function(std::string_view name, const Arguments& arguments, Meter& meter) {
    if (name == "range") return range(arguments, meter);
    if (name == "raise_exception") {
        const Parameters given(name, arguments, {"message"});
        fail(Status::invalid, "{}", to_text(given.require(0)).bytes());
    }
    Dict members;  // dict(a=1)
    const Parameters none_given(name, {arguments.positional, {}}, {});
    for (const auto& [key, value] : arguments.keywords) {
        members.keys.emplace_back(key, false);
        members.values.push_back(value);
    }
    return dict(std::move(members));
}

}  // namespace

bool is_function(std::string_view name) noexcept {
    return std::find(std::begin(k_functions), std::end(k_functions), name) != std::end(k_functions);
}

bool is_unsupported_function(std::string_view name) noexcept {
    return std::find(std::begin(k_unsupported_functions), std::end(k_unsupported_functions), name) !=
           std::end(k_unsupported_functions);
}

Value loop_value(std::shared_ptr<const Loop> loop) {
    Value value;
    value.kind = Kind::loop;
    value.pointer = std::move(loop);
    return value;
}

Value loop_attribute(const Value& value, std::string_view name) {
    const Loop& loop = value.loop();
    const auto count = static_cast<int64_t>(loop.items.size());
    const auto index = static_cast<int64_t>(loop.index);
    if (name == "index") return integer(index + 1);
    if (name == "index0") return integer(index);
    if (name == "revindex") return integer(count - index);
    if (name == "revindex0") return integer(count - index - 1);
    if (name == "first") return boolean(index == 0);
    if (name == "last") return boolean(index + 1 == count);
    if (name == "length") return integer(count);
    if (name == "depth") return integer(1);
    if (name == "depth0") return integer(0);
    if (name == "previtem")
        return index > 0 ? loop.items[loop.index - 1] : undefined("there is no previous item");
    if (name == "nextitem")
        return index + 1 < count ? loop.items[loop.index + 1] : undefined("there is no next item");
    if (name == "cycle" || name == "changed") return method(value, name);
    return undefined(format_text("loop has no attribute '{}'", name));
}

Value call_method(const Method& method, const Arguments& arguments, Meter& meter) {
    std::optional<Value> result;
    switch (method.self.kind) {
        case Kind::undefined:
            return function(method.name, arguments, meter);
        case Kind::text:
            result = text_method(method.name, method.self.text(), arguments, meter);
            break;
        case Kind::list:
            result = list_method(method.name, method.self.list(), arguments, meter);
            break;
        case Kind::dict:
            result = dict_method(method.name, method.self, arguments, meter);
            break;
        case Kind::loop:
            result = loop_method(method.name, method.self.loop(), arguments);
            break;
        default:
            break;
    }
    if (!result) {
        fail(Status::unsupported, "the chat template calls {}() of a {}, which is not supported", method.name,
             type_name(method.self));
    }
    return std::move(*result);
}

}  // namespace minim::chat::jinja
