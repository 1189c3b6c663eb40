// SPDX-License-Identifier: Apache-2.0
#include "constraint/character_sets.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "tokenizer/unicode_tables.h"

namespace minim::constraint {
namespace {

using namespace tokenizer::unicode_tables;

struct LongName {
    std::string_view name;
    std::string_view categories;  // one letter: all categories that begin with it
};

constexpr auto k_long_names = std::to_array<LongName>({
    {"Letter", "L"},
    {"Cased_Letter", "LC"},
    {"L&", "LC"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Combining_Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Format", "Cf"},
    {"Surrogate", "Cs"},
    {"Private_Use", "Co"},
    {"Unassigned", "Cn"},
});

bool is_of(std::string_view category, std::string_view wanted) {
    if (wanted == "LC") return category == "Lu" || category == "Ll" || category == "Lt";
    return category.starts_with(wanted);
}

}  // namespace

CodePoints decimal_digits() {
    return CodePoints().add('0', '9');
}

CodePoints word_characters() {
    return decimal_digits().add('A', 'Z').add('a', 'z').add('_');
}

CodePoints white_space() {
    return CodePoints()
        .add('\t', '\r')
        .add(' ')
        .add(0xA0)
        .add(0x1680)
        .add(0x2000, 0x200A)
        .add(0x2028, 0x2029)
        .add(0x202F)
        .add(0x205F)
        .add(0x3000)
        .add(0xFEFF);
}

CodePoints line_ends() {
    return CodePoints().add('\n').add('\r').add(0x2028, 0x2029);
}

std::optional<CodePoints> characters_of_property(std::string_view name) {
    for (const std::string_view prefix : {"gc=", "General_Category="})
        if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    if (name == "Any") return CodePoints::all();
    if (name == "ASCII") return CodePoints().add(0, 0x7F);
    if (name == "White_Space" || name == "space")
        return white_space().without(CodePoints().add(0xFEFF)).add(0x85);
    for (const LongName& known : k_long_names)
        if (known.name == name) name = known.categories;
    const bool is_known = name == "LC" || std::ranges::any_of(k_names, [&](std::string_view category) {
                              return category == name || (name.size() == 1 && category[0] == name[0]);
                          });
    if (!is_known) return std::nullopt;
    CodePoints set;
    for (size_t i = 0; i < std::size(k_boundaries); ++i) {
        const bool is_last = i + 1 == std::size(k_boundaries);
        const char32_t end = is_last ? 0x110000 : k_boundaries[i + 1].first;
        if (is_of(k_names[k_boundaries[i].category], name)) set.add(k_boundaries[i].first, end - 1);
    }
    return set.both(CodePoints::all());
}

CodePoints with_both_cases(const CodePoints& set) {
    CodePoints both = set;
    const bool is_ascii = set.ranges().empty() || set.ranges().back().last < 0x80;
    for (const CaseRange& range : k_case_ranges) {
        if (is_ascii && range.first >= 0x80) break;
        for (char32_t lower = range.first; lower <= range.last; lower += range.step) {
            const auto upper = static_cast<char32_t>(static_cast<int32_t>(lower) + range.to_upper);
            if (set.contains(lower)) both.add(upper);
            if (set.contains(upper)) both.add(lower);
        }
    }
    return both;
}

}  // namespace minim::constraint
