// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <array>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace minim::tokenizer {

constexpr std::string_view k_piece_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// The pattern's sets; a character can be in several.
constexpr uint8_t k_upper = 1;     // Lu Lt Lm Lo M
constexpr uint8_t k_lower = 2;     // Ll Lm Lo M
constexpr uint8_t k_letter = 4;    // L
constexpr uint8_t k_number = 8;    // N
constexpr uint8_t k_space = 16;    // \s
constexpr uint8_t k_newline = 32;  // CR LF
constexpr uint8_t k_outside =
    64;  // the end of the text, or a byte that is not UTF-8: in no set, nor in its complement

constexpr uint8_t k_not_prefix = k_letter | k_number | k_newline | k_outside;
constexpr uint8_t k_not_punctuation = k_letter | k_number | k_space | k_outside;

constexpr std::array<uint8_t, 128> make_ascii_classes() {
    std::array<uint8_t, 128> classes{};
    for (size_t c = 'A'; c <= 'Z'; ++c) classes[c] = k_upper | k_letter;
    for (size_t c = 'a'; c <= 'z'; ++c) classes[c] = k_lower | k_letter;
    for (size_t c = '0'; c <= '9'; ++c) classes[c] = k_number;
    for (size_t c = '\t'; c <= '\r'; ++c) classes[c] = k_space;
    classes[' '] = k_space;
    classes['\n'] |= k_newline;
    classes['\r'] |= k_newline;
    return classes;
}

constexpr auto k_ascii_classes = make_ascii_classes();

uint8_t classes_of(char32_t code_point, PieceRules rules) noexcept {
    const bool engine = rules == PieceRules::gguf_engine;
    constexpr uint8_t caseless = k_upper | k_lower | k_letter;
    switch (unicode_class(code_point)) {
        case UnicodeClass::upper_letter:
            return engine ? caseless : k_upper | k_letter;
        case UnicodeClass::lower_letter:
            return engine ? caseless : k_lower | k_letter;
        case UnicodeClass::caseless_letter:
            return caseless;
        case UnicodeClass::mark:
            return engine ? 0 : k_upper | k_lower;
        case UnicodeClass::number:
            return k_number;
        case UnicodeClass::white_space:
            return k_space;
        case UnicodeClass::other:
            return 0;
    }
    return 0;
}

}  // namespace

PieceScanner::Character PieceScanner::at(size_t position) const noexcept {
    if (position == text_.size()) return {k_outside, 0};
    const auto byte = static_cast<uint8_t>(text_[position]);
    if (byte < 0x80) return {k_ascii_classes[byte], 1};
    const Utf8Step step = next_utf8(text_.substr(position));
    if (step.state != Utf8State::complete) return {k_outside, 1};
    return {classes_of(step.code_point, rules_), step.length};
}

size_t PieceScanner::run_end(size_t begin, uint8_t classes) const noexcept {
    size_t end = begin;
    for (Character c = at(end); (c.classes & classes) != 0; c = at(end)) end += c.length;
    return end;
}

size_t PieceScanner::piece_end(size_t begin) const noexcept {
    const Character first = at(begin);
    if ((first.classes & k_outside) != 0) return begin + 1;
    if (const size_t end = word_end(begin, first); end != k_no_match) return contraction_end(end);
    if ((first.classes & k_number) != 0) return number_end(begin);
    if (const size_t end = punctuation_end(begin); end != k_no_match) return end;
    return white_space_end(begin);
}

size_t PieceScanner::word_end(size_t begin, Character first) const noexcept {
    const bool prefix = (first.classes & k_not_prefix) == 0;
    const size_t after_prefix = begin + first.length;
    size_t end = prefix ? word_ending_lower(after_prefix) : k_no_match;
    if (end == k_no_match) end = word_ending_lower(begin);
    if (end == k_no_match && prefix) end = word_starting_upper(after_prefix);
    if (end == k_no_match) end = word_starting_upper(begin);
    return end;
}

// [upper]*[lower]+ : both sets contain caseless letters and marks. So if nothing lower follows the upper run, the run gives
// back characters until its last one is lower.
size_t PieceScanner::word_ending_lower(size_t begin) const noexcept {
    size_t end = begin;
    size_t last_lower_end = k_no_match;
    Character c = at(end);
    for (; (c.classes & k_upper) != 0; c = at(end)) {
        end += c.length;
        if ((c.classes & k_lower) != 0) last_lower_end = end;
    }
    return (c.classes & k_lower) != 0 ? run_end(end, k_lower) : last_lower_end;
}

// [upper]+[lower]*
size_t PieceScanner::word_starting_upper(size_t begin) const noexcept {
    const size_t upper_end = run_end(begin, k_upper);
    return upper_end == begin ? k_no_match : run_end(upper_end, k_lower);
}

// Returns the end of a contraction at `begin`, or `begin`. Without case, U+017F (long s) is an s.
size_t PieceScanner::contraction_end(size_t begin) const noexcept {
    const std::string_view rest = text_.substr(begin, 3);
    if (rest.size() < 2 || rest[0] != '\'') return begin;
    if (rest.substr(1) == "\u017F" && rules_ == PieceRules::model) return begin + 3;

    const auto lower = [&](size_t i) {
        const char c = i < rest.size() ? rest[i] : '\0';
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = lower(1);
    const char second = lower(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
    const bool pair = (second == 'e' && (first == 'r' || first == 'v')) || (second == 'l' && first == 'l');
    return pair ? begin + 3 : begin;
}

size_t PieceScanner::number_end(size_t begin) const noexcept {
    size_t end = begin;
    for (int count = 0; count < 3; ++count) {
        const Character c = at(end);
        if ((c.classes & k_number) == 0) break;
        end += c.length;
    }
    return end;
}

size_t PieceScanner::punctuation_end(size_t begin) const noexcept {
    const size_t start = text_[begin] == ' ' ? begin + 1 : begin;
    size_t end = start;
    for (Character c = at(end); (c.classes & k_not_punctuation) == 0; c = at(end)) end += c.length;
    if (end == start) return k_no_match;
    while (end < text_.size() && (text_[end] == '\r' || text_[end] == '\n' || text_[end] == '/')) ++end;
    return end;
}

// Matches the last three alternatives: up to the last line break of the run; else the whole run if the text ends with
// it; else all but its last character, which belongs to the next piece, unless the run has only one.
size_t PieceScanner::white_space_end(size_t begin) const noexcept {
    size_t end = begin;
    size_t last_start = begin;
    size_t newline_end = k_no_match;
    for (Character c = at(end); (c.classes & k_space) != 0; c = at(end)) {
        last_start = end;
        end += c.length;
        if ((c.classes & k_newline) != 0) newline_end = end;
    }
    if (newline_end != k_no_match) return newline_end;
    if (end == text_.size()) return end;
    return last_start > begin ? last_start : end;
}

}  // namespace minim::tokenizer
