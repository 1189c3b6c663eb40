// SPDX-License-Identifier: Apache-2.0
#include "chat/jinja_text.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/jinja_lexer.h"

namespace minim::chat::jinja {
namespace {

bool is_continuation(char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Returns the code point that begins at `at`, and its bytes.
Utf8Step step_at(std::string_view text, size_t at) {
    return next_utf8(text.substr(at));
}

size_t previous_character(std::string_view text, size_t at) {
    do --at;
    while (at > 0 && is_continuation(text[at]));
    return at;
}

bool is_stripped(std::string_view character, const std::string_view* characters) {
    if (characters != nullptr) return characters->find(character) != std::string_view::npos;
    return is_python_space(next_utf8(character).code_point);
}

std::vector<MarkedText> split_at_space(const MarkedText& text, int64_t most) {
    const std::string_view bytes = text.bytes();
    std::vector<MarkedText> parts;
    const auto skip = [&](size_t at, bool space) {
        while (at < bytes.size() && is_python_space(step_at(bytes, at).code_point) == space)
            at += step_at(bytes, at).length;
        return at;
    };
    for (size_t at = skip(0, true); at < bytes.size();) {
        if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
            parts.push_back(strip(text.slice(at), Side::right, nullptr));
            break;
        }
        const size_t end = skip(at, false);
        parts.push_back(text.slice(at, end));
        at = skip(end, true);
    }
    return parts;
}

char upper(char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool begins_word(char before, Case to) {
    if (to == Case::title) return upper(before) == lower(before);
    constexpr std::string_view k_openers = "-({[<";
    return is_python_space(static_cast<unsigned char>(before)) ||
           k_openers.find(before) != std::string_view::npos;
}

}  // namespace

size_t count_characters(std::string_view text) noexcept {
    return text.size() - std::count_if(text.begin(), text.end(), is_continuation);
}

std::vector<size_t> character_offsets(std::string_view text) {
    std::vector<size_t> offsets;
    for (size_t i = 0; i < text.size(); ++i)
        if (!is_continuation(text[i])) offsets.push_back(i);
    offsets.push_back(text.size());
    return offsets;
}

MarkedText strip(const MarkedText& text, Side side, const std::string_view* characters) {
    const std::string_view bytes = text.bytes();
    size_t begin = 0;
    size_t end = bytes.size();
    const auto has = [&](Side which) {
        return (static_cast<unsigned>(side) & static_cast<unsigned>(which)) != 0;
    };
    while (has(Side::left) && begin < end) {
        const size_t length = step_at(bytes, begin).length;
        if (!is_stripped(bytes.substr(begin, length), characters)) break;
        begin += length;
    }
    while (has(Side::right) && begin < end) {
        const size_t at = previous_character(bytes, end);
        if (!is_stripped(bytes.substr(at, end - at), characters)) break;
        end = at;
    }
    return text.slice(begin, end);
}

std::vector<MarkedText> split(const MarkedText& text, const std::string_view* separator, int64_t most) {
    if (separator == nullptr) return split_at_space(text, most);
    if (separator->empty()) fail(Status::invalid, "empty separator");
    std::vector<MarkedText> parts;
    size_t begin = 0;
    while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
        const size_t at = text.bytes().find(*separator, begin);
        if (at == std::string_view::npos) break;
        parts.push_back(text.slice(begin, at));
        begin = at + separator->size();
    }
    parts.push_back(text.slice(begin));
    return parts;
}

std::vector<MarkedText> split_from_right(const MarkedText& text, std::string_view separator, int64_t most) {
    if (separator.empty()) fail(Status::invalid, "empty separator");
    std::vector<MarkedText> parts;
    size_t end = text.size();
    while ((most < 0 || static_cast<int64_t>(parts.size()) < most) && end >= separator.size()) {
        const size_t at = text.bytes().rfind(separator, end - separator.size());
        if (at == std::string_view::npos) break;
        parts.push_back(text.slice(at + separator.size(), end));
        end = at;
    }
    parts.push_back(text.slice(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<MarkedText> split_lines(const MarkedText& text, bool keep_ends) {
    const std::string_view bytes = text.bytes();
    std::vector<MarkedText> lines;
    size_t begin = 0;
    for (size_t at = 0; at < bytes.size();) {
        const Utf8Step step = step_at(bytes, at);
        const char32_t c = step.code_point;
        const bool ends =
            (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
        const size_t line_end = at;
        at += step.length;
        if (!ends) continue;
        if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
        lines.push_back(text.slice(begin, keep_ends ? at : line_end));
        begin = at;
    }
    if (begin < bytes.size()) lines.push_back(text.slice(begin));
    return lines;
}

MarkedText replace(const MarkedText& text, std::string_view old, const MarkedText& with, int64_t most) {
    MarkedText result;
    size_t begin = 0;
    for (int64_t n = 0; most < 0 || n < most; ++n) {
        if (old.empty()) {  // before each character, and at the end
            result.append(with);
            if (begin == text.size()) return result;
            const size_t end = begin + step_at(text.bytes(), begin).length;
            result.append(text, begin, end);
            begin = end;
            continue;
        }
        const size_t at = text.bytes().find(old, begin);
        if (at == std::string_view::npos) break;
        result.append(text, begin, at);
        result.append(with);
        begin = at + old.size();
    }
    result.append(text, begin);
    return result;
}

MarkedText change_case(const MarkedText& text, Case to) {
    if (!is_ascii(text.bytes()))
        fail(Status::unsupported,
             "the chat template changes the case of text beyond ASCII, which is not supported");
    MarkedText result;
    char before = ' ';
    bool first = true;
    text.for_each_run([&](std::string_view bytes, bool is_user) {
        std::string changed;
        for (const char c : bytes) {
            const bool capital = to == Case::upper || (to == Case::capitalised && first) ||
                                 ((to == Case::title || to == Case::title_filter) && begins_word(before, to));
            changed += capital ? upper(c) : lower(c);
            before = c;
            first = false;
        }
        result.append(changed, is_user);
    });
    return result;
}

}  // namespace minim::chat::jinja
