// SPDX-License-Identifier: Apache-2.0
#include "constraint/code_points.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/utf8.h"

namespace minim::constraint {
namespace {

constexpr char32_t k_last = 0x10FFFF;
constexpr CodePoints::Range k_surrogates = {0xD800, 0xDFFF};

// Accepts the byte sequences whose byte i is from first[i] to last[i]. `first` and `last` have the same length.
Part byte_ranges(Grammar& grammar, std::string_view first, std::string_view last) {
    std::vector<Part> parts;
    for (size_t i = 0; i < first.size(); ++i) {
        parts.push_back(
            grammar.byte_in(byte_range(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i]))));
    }
    return grammar.sequence(std::move(parts));
}

// Cuts [first, last], whose encodings have `length` bytes, until each piece is a product of byte ranges: a
// piece that differs in a byte must span all values of the bytes after it.
void add_pieces(Grammar& grammar, char32_t first, char32_t last, int length, std::vector<Part>& pieces) {
    for (int i = 1; i < length; ++i) {
        const char32_t below = (char32_t{1} << (6 * i)) - 1;  // the bits of the last i bytes
        if ((first & ~below) == (last & ~below)) continue;
        if ((first & below) != 0) {
            add_pieces(grammar, first, first | below, length, pieces);
            return add_pieces(grammar, (first | below) + 1, last, length, pieces);
        }
        if ((last & below) != below) {
            add_pieces(grammar, first, (last & ~below) - 1, length, pieces);
            return add_pieces(grammar, last & ~below, last, length, pieces);
        }
    }
    std::string first_bytes;
    std::string last_bytes;
    append_utf8(first, first_bytes);
    append_utf8(last, last_bytes);
    pieces.push_back(byte_ranges(grammar, first_bytes, last_bytes));
}

}  // namespace

CodePoints& CodePoints::add(char32_t first, char32_t last) {
    if (first > last) return *this;
    // Ranges that touch the new one become part of it.
    const auto begin =
        std::ranges::partition_point(ranges_, [&](const Range& range) { return range.last + 1 < first; });
    auto end = begin;
    Range merged = {first, last};
    while (end != ranges_.end() && end->first <= last + 1) {
        merged = {std::min(merged.first, end->first), std::max(merged.last, end->last)};
        ++end;
    }
    ranges_.insert(ranges_.erase(begin, end), merged);
    return *this;
}

CodePoints& CodePoints::add(const CodePoints& other) {
    for (const Range& range : other.ranges_) add(range.first, range.last);
    return *this;
}

CodePoints CodePoints::complement() const {
    CodePoints taken = *this;
    taken.add(k_surrogates.first, k_surrogates.last);
    CodePoints rest;
    char32_t next = 0;
    for (const Range& range : taken.ranges_) {
        if (range.first > next) rest.ranges_.push_back({next, range.first - 1});
        next = range.last + 1;
    }
    if (next <= k_last) rest.ranges_.push_back({next, k_last});
    return rest;
}

CodePoints CodePoints::without(const CodePoints& other) const {
    return complement().add(other).complement();
}

CodePoints CodePoints::both(const CodePoints& other) const {
    CodePoints common;
    auto theirs = other.ranges_.begin();
    for (const Range& range : ranges_) {
        while (theirs != other.ranges_.end() && theirs->last < range.first) ++theirs;
        for (auto it = theirs; it != other.ranges_.end() && it->first <= range.last; ++it)
            common.ranges_.push_back({std::max(range.first, it->first), std::min(range.last, it->last)});
    }
    return common;
}

bool CodePoints::contains(char32_t code_point) const noexcept {
    const auto range = std::ranges::partition_point(
        ranges_, [&](const Range& candidate) { return candidate.last < code_point; });
    return range != ranges_.end() && range->first <= code_point;
}

Part utf8(Grammar& grammar, const CodePoints& set) {
    struct Length {
        int bytes;
        char32_t first;
        char32_t last;
    };
    constexpr std::array<Length, 4> k_lengths = {
        Length{1, 0, 0x7F}, {2, 0x80, 0x7FF}, {3, 0x800, 0xFFFF}, {4, 0x10000, k_last}};
    const CodePoints characters = set.without(CodePoints().add(k_surrogates.first, k_surrogates.last));
    std::vector<Part> pieces;
    ByteSet ascii;
    for (const CodePoints::Range& range : characters.ranges()) {
        for (char32_t c = range.first; c <= std::min<char32_t>(range.last, 0x7F); ++c) ascii.set(c);
        for (const Length& length : k_lengths) {
            const char32_t first = std::max(range.first, length.first);
            const char32_t last = std::min(range.last, length.last);
            if (length.bytes > 1 && first <= last) add_pieces(grammar, first, last, length.bytes, pieces);
        }
    }
    if (ascii.any()) pieces.push_back(grammar.byte_in(ascii));
    return grammar.choice(std::move(pieces));
}

}  // namespace minim::constraint
