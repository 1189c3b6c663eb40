// SPDX-License-Identifier: Apache-2.0
// Decodes one step of UTF-8 that may be ill-formed or cut: input comes from users, output from a model that can stop in
// the middle of a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace minim {

enum class Utf8State : uint8_t {
    complete,    // a code point
    incomplete,  // the text ends inside a sequence that may still become a code point
    invalid,     // no continuation can make it one
};

// For `invalid`, `length` is the maximal subpart of an ill-formed sequence (Unicode, section 3.9): what one
// U+FFFD stands for.
struct Utf8Step {
    char32_t code_point;
    uint8_t length;
    Utf8State state;
};

// Returns the next step of a non-empty text. The lead byte determines the number of continuation bytes and the range of the
// first one, which excludes overlong forms, surrogates and values above U+10FFFF (Unicode, table 3-7).
inline Utf8Step next_utf8(std::string_view text) noexcept {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return {lead, 1, Utf8State::complete};
    if (lead < 0xC2 || lead > 0xF4) return {0, 1, Utf8State::invalid};

    const uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;

    char32_t code_point = lead & (0x7Fu >> length);
    for (uint8_t i = 1; i < length; ++i) {
        if (i == text.size()) return {0, i, Utf8State::incomplete};
        if (byte(i) < low || byte(i) > high) return {0, i, Utf8State::invalid};
        code_point = code_point << 6 | (byte(i) & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    return {code_point, length, Utf8State::complete};
}

// Returns the length of the well-formed sequence that `text` begins with; 0 if there is none, or only the start of one.
inline size_t utf8_sequence_length(std::string_view text) noexcept {
    if (text.empty()) return 0;
    const Utf8Step step = next_utf8(text);
    return step.state == Utf8State::complete ? step.length : 0;
}

inline void append_utf8(char32_t code_point, std::string& out) {
    const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    const auto continuation = [&](int shift) { put(0x80 | (code_point >> shift & 0x3F)); };
    if (code_point < 0x80) {
        put(code_point);
    } else if (code_point < 0x800) {
        put(0xC0 | code_point >> 6);
        continuation(0);
    } else if (code_point < 0x10000) {
        put(0xE0 | code_point >> 12);
        continuation(6);
        continuation(0);
    } else {
        put(0xF0 | code_point >> 18);
        continuation(12);
        continuation(6);
        continuation(0);
    }
}

}  // namespace minim
