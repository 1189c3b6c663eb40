// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "tokenizer/unicode_tables.h"

namespace minim::tokenizer {
namespace {

using unicode_tables::k_boundaries;
using unicode_tables::k_names;

constexpr size_t k_page_bits = 8;
constexpr size_t k_page_count = 0x110000 >> k_page_bits;

// For each page of 256 code points, the boundary before its first code point, and one entry past the end. So a search
// covers only a few boundaries.
constexpr std::array<uint16_t, k_page_count + 1> make_pages() {
    std::array<uint16_t, k_page_count + 1> pages{};
    size_t boundary = 0;
    for (size_t page = 0; page <= k_page_count; ++page) {
        const size_t first = page << k_page_bits;
        while (boundary + 1 < std::size(k_boundaries) && k_boundaries[boundary + 1].first <= first)
            ++boundary;
        pages[page] = static_cast<uint16_t>(boundary);
    }
    return pages;
}

constexpr auto k_pages = make_pages();
static_assert(std::size(k_boundaries) < 65536);

constexpr UnicodeClass class_of(std::string_view category) {
    if (category == "Lu" || category == "Lt") return UnicodeClass::upper_letter;
    if (category == "Ll") return UnicodeClass::lower_letter;
    if (category[0] == 'L') return UnicodeClass::caseless_letter;
    if (category[0] == 'M') return UnicodeClass::mark;
    if (category[0] == 'N') return UnicodeClass::number;
    if (category[0] == 'Z') return UnicodeClass::white_space;
    return UnicodeClass::other;
}

// The class of each category of k_names.
constexpr auto k_classes = [] {
    std::array<UnicodeClass, k_names.size()> classes{};
    std::ranges::transform(k_names, classes.begin(), class_of);
    return classes;
}();

// Returns an index into k_names.
uint8_t category_of(char32_t code_point) noexcept {
    const size_t page = code_point >> k_page_bits;
    const auto* first = k_boundaries + k_pages[page];
    const auto* last = k_boundaries + k_pages[page + 1] + 1;
    const auto* after = std::upper_bound(
        first, last, code_point, [](char32_t value, const auto& boundary) { return value < boundary.first; });
    return (after - 1)->category;
}

}  // namespace

UnicodeClass unicode_class(char32_t code_point) noexcept {
    // The controls with the property White_Space.
    if ((code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x85) return UnicodeClass::white_space;
    return k_classes[category_of(code_point)];
}

std::string_view general_category(char32_t code_point) noexcept {
    return k_names[category_of(code_point)];
}

}  // namespace minim::tokenizer
