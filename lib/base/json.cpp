// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <locale.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format_text.h"

namespace minim::json {
namespace {

template <typename... Args>
[[noreturn]] void refuse(Source source, Reason reason, fmt::format_string<Args...> text, Args&&... args) {
    if (source == Source::file) fail_file(reason, text, std::forward<Args>(args)...);
    fail(Status::invalid, text, std::forward<Args>(args)...);
}

// Sorts instead of hashing: this takes n log n steps even for keys that are chosen to collide.
void drop_repeated_keys(Value& object) {
    const size_t count = object.keys.size();
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        const int compared = object.keys[a].compare(object.keys[b]);
        return compared != 0 ? compared < 0 : a < b;
    });

    std::vector<bool> repeated(count, false);
    bool any = false;
    for (size_t i = 0; i < count;) {
        const size_t first = order[i];
        size_t last = first;
        for (++i; i < count && object.keys[order[i]] == object.keys[first]; ++i) {
            last = order[i];
            repeated[last] = true;
            any = true;
        }
        if (last != first) std::swap(object.items[first], object.items[last]);
    }
    if (!any) return;

    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
        if (repeated[i]) continue;
        if (kept != i) {
            object.keys[kept] = std::move(object.keys[i]);
            object.items[kept] = std::move(object.items[i]);
        }
        ++kept;
    }
    object.keys.resize(kept);
    object.items.resize(kept);
}

// A number that Python's json writes but JSON does not have.
struct NonFinite {
    size_t string;  // index, among all keys and strings, of the string that replaces the number
    double value;
    std::string_view text;
};

struct Spelling {
    std::string_view text;
    std::string_view string;  // of equal length, so that positions in errors stay correct
    double value;
};

constexpr Spelling k_non_finite[] = {
    {"NaN", "\"N\"", std::numeric_limits<double>::quiet_NaN()},
    {"Infinity", "\"Infini\"", std::numeric_limits<double>::infinity()},
    {"-Infinity", "\"-Infini\"", -std::numeric_limits<double>::infinity()},
};

const Spelling* non_finite_at(std::string_view text) {
    const auto* const found = std::find_if(std::begin(k_non_finite), std::end(k_non_finite),
                                           [&](const Spelling& s) { return text.starts_with(s.text); });
    return found == std::end(k_non_finite) ? nullptr : found;
}

// Replaces each non-finite number with a string (nlohmann-json accepts none), and returns their list.
std::vector<NonFinite> replace_non_finite(std::string& text) {
    std::vector<NonFinite> found;
    size_t n_strings = 0;
    for (size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '"') {
            for (++at; at < text.size() && text[at] != '"'; ++at) {
                if (text[at] == '\\') ++at;
            }
            ++n_strings;
        } else if (const Spelling* spelling = non_finite_at(std::string_view(text).substr(at))) {
            found.push_back({n_strings++, spelling->value, spelling->text});
            text.replace(at, spelling->string.size(), spelling->string);
            at += spelling->string.size() - 1;
        }
    }
    return found;
}

// Returns the cause of an error if it is more specific than a syntax error, else an empty text. `error` is the text of
// nlohmann-json, `position` the number of bytes read.
std::string_view cause_of(std::string_view error, std::string_view text, size_t position) {
    error = error.substr(0, error.find("; last read"));  // followed by the text itself
    if (error.find("surrogate") != std::string_view::npos)
        return "half of a surrogate pair, which is not a character";
    if (error.find("ill-formed UTF-8") != std::string_view::npos) return "the text is not UTF-8";
    for (size_t back = 1; back <= std::min<size_t>(position, 2); ++back) {
        if (position <= text.size() && non_finite_at(text.substr(position - back)) != nullptr)
            return "JSON has no NaN and no Infinity";
    }
    return {};
}

// Appends ".content", or "[\"a key\"]" for a key that is not a plain word.
void append_member(std::string& path, const std::string& key) {
    constexpr size_t k_longest = 64;
    const auto is_word = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
               c == '-';
    };
    if (!key.empty() && key.size() <= k_longest && std::all_of(key.begin(), key.end(), is_word)) {
        path += '.' + key;
        return;
    }
    std::string shown = key;
    if (shown.size() > k_longest) {
        shown.resize(k_longest);
        while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0x80) != 0) shown.pop_back();
        shown += "...";
    }
    path += '[';
    append_quoted(path, shown);
    path += ']';
}

// Receives nlohmann-json's events. `open` has the containers not yet closed; their addresses are stable,
// because a container's parent gets no further element while the container is open.
class TreeBuilder {
  public:
    // `non_finite` has the numbers that strings replace, with their index among all strings; see replace_non_finite().
    TreeBuilder(std::string_view text, std::string_view what, Source source,
                std::span<const NonFinite> non_finite)
        : text_(text), what_(what), source_(source), non_finite_(non_finite) {}

    Value take() { return std::move(root_); }

    bool null() {
        add(Value::Kind::null);
        return true;
    }
    bool boolean(bool value) {
        add(Value::Kind::boolean).boolean = value;
        return true;
    }
    bool number_integer(int64_t value) {
        return add_number(static_cast<double>(value), std::to_string(value));
    }
    bool number_unsigned(uint64_t value) {
        return add_number(static_cast<double>(value), std::to_string(value));
    }
    bool number_float(double value, const std::string& literal) { return add_number(value, literal); }
    bool string(std::string& text) {
        if (!non_finite_.empty() && non_finite_.front().string == n_strings_) {
            const NonFinite& number = non_finite_.front();
            non_finite_ = non_finite_.subspan(1);
            ++n_strings_;
            return add_number(number.value, std::string(number.text));
        }
        ++n_strings_;
        add(Value::Kind::string).text = std::move(text);
        return true;
    }
    bool start_array(size_t /*unknown*/) { return open(Value::Kind::array); }
    bool start_object(size_t /*unknown*/) { return open(Value::Kind::object); }
    bool key(std::string& text) {
        if (!non_finite_.empty() && non_finite_.front().string == n_strings_)
            return false;  // a number as a key
        ++n_strings_;
        open_.back()->keys.push_back(std::move(text));
        return true;
    }
    bool end_array() {
        open_.pop_back();
        return true;
    }
    bool end_object() {
        drop_repeated_keys(*open_.back());
        open_.pop_back();
        return true;
    }
    static bool binary(const std::vector<uint8_t>& /*bytes*/) { return false; }  // JSON text has none
    bool parse_error(size_t position, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) {
        constexpr int k_number_overflow =
            406;  // "number overflow parsing" in nlohmann-json's list of exceptions
        if (error.id == k_number_overflow) {
            refuse(source_, Reason::value, "{}: number out of range before byte {}", what_, position);
        }
        const std::string_view cause = cause_of(error.what(), text_, position);
        if (cause.empty()) refuse(source_, Reason::format, "{}: not valid JSON at byte {}", what_, position);
        refuse(source_, Reason::format, "{}{}: not valid JSON at byte {}: {}", what_, place(), position,
               cause);
    }

  private:
    // Returns the path of the value or key that is being read: "[1].content".
    std::string place() const {
        std::string path;
        for (const Value* container : open_) {
            const bool is_last = container == open_.back();
            if (container->is_array()) {
                path += format_text("[{}]", container->items.size() - (is_last ? 0 : 1));
            } else if (container->keys.size() > container->items.size() || !is_last) {
                append_member(path, container->keys.back());
            }
        }
        return path;
    }
    Value& add(Value::Kind kind) {
        Value& slot = open_.empty() ? root_ : open_.back()->items.emplace_back();
        slot.kind = kind;
        return slot;
    }
    bool add_number(double number, std::string digits) {
        Value& value = add(Value::Kind::number);
        value.number = number;
        value.text = std::move(digits);
        return true;
    }
    bool open(Value::Kind kind) {
        if (open_.size() == k_max_depth) {
            refuse(source_, Reason::limit, "{}: JSON nested deeper than {} levels", what_, k_max_depth);
        }
        open_.push_back(&add(kind));
        return true;
    }

    std::string_view text_;
    std::string_view what_;
    Source source_;
    std::span<const NonFinite> non_finite_;  // those still to come
    size_t n_strings_ = 0;                   // keys and strings so far
    Value root_;
    std::vector<Value*> open_;
};

void append(std::string& out, const Value& value) {
    switch (value.kind) {
        case Value::Kind::null:
            out += "null";
            return;
        case Value::Kind::boolean:
            out += value.boolean ? "true" : "false";
            return;
        case Value::Kind::number:
            out += value.text;
            return;
        case Value::Kind::string:
            append_quoted(out, value.text);
            return;
        case Value::Kind::array:
        case Value::Kind::object:
            break;
    }
    out += value.is_object() ? '{' : '[';
    for (size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) out += ',';
        if (value.is_object()) {
            append_quoted(out, value.keys[i]);
            out += ':';
        }
        append(out, value.items[i]);
    }
    out += value.is_object() ? '}' : ']';
}

// Sets the C locale for this thread while it exists. nlohmann-json reads numbers with strtod(), with the decimal point of the
// thread's locale, which may be a comma in a host.
class PlainNumbers {
  public:
    PlainNumbers() : c_(::newlocale(LC_ALL_MASK, "C", nullptr)) {
        if (c_ == nullptr) fail(Status::out_of_memory, "the C locale cannot be made");
        before_ = ::uselocale(c_);
    }
    ~PlainNumbers() {
        ::uselocale(before_);
        ::freelocale(c_);
    }
    PlainNumbers(const PlainNumbers&) = delete;
    PlainNumbers& operator=(const PlainNumbers&) = delete;

  private:
    locale_t c_;
    locale_t before_ = nullptr;
};

}  // namespace

bool Value::is_integer() const noexcept {
    return is_number() && text.find_first_not_of("-0123456789") == std::string::npos;
}

Value parse(std::string_view text, std::string_view what, Source source) {
    // nlohmann-json would treat a NUL as the end of the text and ignore the bytes after it.
    const size_t nul = text.find('\0');
    if (nul != std::string_view::npos) {
        refuse(source, Reason::format, "{}: not valid JSON at byte {}", what, nul + 1);
    }
    const PlainNumbers plain;
    std::string replaced;
    std::vector<NonFinite> non_finite;
    if (source == Source::file &&
        (text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos)) {
        replaced = text;
        non_finite = replace_non_finite(replaced);
        text = replaced;
    }
    TreeBuilder builder(text, what, source, non_finite);
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
        refuse(source, Reason::format, "{}: not valid JSON", what);
    }
    return builder.take();
}

const Value* find(const Value* value, std::string_view key) noexcept {
    if (value == nullptr || !value->is_object()) return nullptr;
    const auto at = std::find(value->keys.begin(), value->keys.end(), key);
    return at == value->keys.end() ? nullptr : &value->items[at - value->keys.begin()];
}

std::optional<int64_t> to_int64(const Value& value) noexcept {
    if (!value.is_integer()) return std::nullopt;
    const char* end = value.text.data() + value.text.size();
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(value.text.data(), end, number);
    if (error != std::errc() || rest != end) return std::nullopt;
    return number;
}

std::string to_text(const Value& value) {
    std::string out;
    append(out, value);
    return out;
}

void append_escaped(std::string& out, std::string_view text) {
    for (const char c : text) {
        switch (c) {
            case '"':
                out += "\\\"";
                break;
            case '\\':
                out += "\\\\";
                break;
            case '\b':
                out += "\\b";
                break;
            case '\f':
                out += "\\f";
                break;
            case '\n':
                out += "\\n";
                break;
            case '\r':
                out += "\\r";
                break;
            case '\t':
                out += "\\t";
                break;
            default:
                if (static_cast<unsigned char>(c) < 0x20) {
                    out += format_text("\\u{:04x}", static_cast<unsigned>(c));
                } else {
                    out += c;
                }
        }
    }
}

void append_quoted(std::string& out, std::string_view text) {
    out += '"';
    append_escaped(out, text);
    out += '"';
}

}  // namespace minim::json
