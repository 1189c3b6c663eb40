// SPDX-License-Identifier: Apache-2.0
#include "constraint/json_text.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/format_text.h"
#include "base/utf8.h"
#include "constraint/schema_values.h"

namespace minim::constraint {
namespace {

constexpr int64_t k_max_newlines = 2;
constexpr int64_t k_max_indentation = 64;
constexpr int64_t k_max_whole_digits = 30;  // of a value that is also written without its point

ByteSet digit_set() {
    return byte_range('0', '9');
}

// Accepts a character as \uXXXX, or beyond U+FFFF as a surrogate pair of two such escapes.
Part unicode_escape(Grammar& grammar) {
    const ByteSet hex = byte_range('0', '9') | byte_range('a', 'f') | byte_range('A', 'F');
    const Part any = grammar.byte_in(hex);
    const Part d = grammar.byte_in(ByteSet().set('d').set('D'));
    const auto of = [&](const ByteSet& bytes) { return grammar.byte_in(bytes & hex); };
    const ByteSet low_half = byte_range('c', 'f') | byte_range('C', 'F');
    const ByteSet high_half = byte_range('8', '9') | byte_range('a', 'b') | byte_range('A', 'B');
    ByteSet not_d = hex;
    not_d.reset('d').reset('D');
    const Part plain = grammar.sequence({of(not_d), any, any, any});
    const Part below_surrogates = grammar.sequence({d, of(byte_range('0', '7')), any, any});
    const Part pair =
        grammar.sequence({d, of(high_half), any, any, grammar.text("\\u"), d, of(low_half), any, any});
    return grammar.sequence({grammar.text("\\u"), grammar.choice({plain, below_surrogates, pair})});
}

std::string escaped(char32_t c) {
    std::string character;
    append_utf8(c, character);
    std::string quoted;
    json::append_quoted(quoted, character);
    return quoted.substr(1, quoted.size() - 2);
}

Part separated(JsonText& json, Part item, int64_t least, int64_t most) {
    Grammar& grammar = json.grammar();
    if (most == 0) return grammar.empty();
    const Part more = grammar.counted(grammar.sequence({json.comma(), item}), std::max<int64_t>(least - 1, 0),
                                      most < 0 ? -1 : most - 1, "items");
    const Part items = grammar.sequence({item, more});
    return least > 0 ? items : grammar.optional(items);
}

}  // namespace

JsonText::JsonText(Grammar& grammar) : grammar_(grammar), beyond_ascii_(utf8_spelling(grammar)) {
    const Part newline = grammar.byte_in(ByteSet().set('\n'));
    const Part indentation = grammar.byte_in(ByteSet().set(' ').set('\t'));
    space_ = grammar.add_rule(
        "space", grammar.choice({grammar.empty(), grammar.text(" "),
                                 grammar.sequence({grammar.repeat(newline, 1, k_max_newlines),
                                                   grammar.repeat(indentation, 0, k_max_indentation)})}));

    ByteSet escapes;
    for (const char c : std::string_view("\"\\/bfnrt")) escapes.set(static_cast<uint8_t>(c));
    rare_character_ = grammar.add_rule(
        "character",
        grammar.choice({grammar.sequence({grammar.text("\\"), grammar.byte_in(escapes)}),
                        unicode_escape(grammar), utf8(grammar, CodePoints().add(0x80, 0x10FFFF))}));
    string_ = grammar.add_rule("string", quoted(grammar.repeat(any_character(), 0, -1)));

    const Part digit = grammar.byte_in(digit_set());
    const Part whole = grammar.choice(
        {grammar.text("0"),
         grammar.sequence({grammar.byte_in(byte_range('1', '9')), grammar.repeat(digit, 0, -1)})});
    const Part sign = grammar.optional(grammar.text("-"));
    integer_ = grammar.add_rule("integer", grammar.sequence({sign, whole}));
    const Part fraction = grammar.sequence({grammar.text("."), grammar.repeat(digit, 1, -1)});
    const Part exponent = grammar.sequence({grammar.byte_in(ByteSet().set('e').set('E')),
                                            grammar.optional(grammar.byte_in(ByteSet().set('+').set('-'))),
                                            grammar.repeat(digit, 1, -1)});
    number_ = grammar.add_rule(
        "number", grammar.sequence({sign, whole, grammar.optional(fraction), grammar.optional(exponent)}));
}

Part JsonText::any_character() {
    ByteSet common = byte_range(0x20, 0x7F);
    common.reset('"').reset('\\');
    return grammar_.choice({grammar_.byte_in(common), grammar_.call(rare_character_)});
}

Part JsonText::quoted(Part inside) {
    return grammar_.sequence({grammar_.text("\""), inside, grammar_.text("\"")});
}

Spelling JsonText::spelling() {
    return [this](const CodePoints& set) {
        if (set == CodePoints::all()) return any_character();
        const CodePoints to_escape = CodePoints().add(0, 0x1F).add('"').add('\\');
        std::vector<Part> parts = {beyond_ascii_(set.without(to_escape))};
        const CodePoints escapes = set.both(to_escape);
        for (const CodePoints::Range& range : escapes.ranges())
            for (char32_t c = range.first; c <= range.last; ++c) parts.push_back(grammar_.text(escaped(c)));
        return grammar_.choice(std::move(parts));
    };
}

Part JsonText::boolean() {
    return grammar_.choice({grammar_.text("true"), grammar_.text("false")});
}

Part JsonText::literal(const json::Value& value) {
    if (!value.is_array() && !value.is_object()) {
        const Part written = grammar_.text(json::to_text(value));
        if (!is_whole(value) || value.is_integer()) return written;
        const std::string digits = canonical_text(value);
        if (digits.size() > k_max_whole_digits) return written;
        return grammar_.choice({written, grammar_.text(digits)});
    }
    std::vector<Part> items;
    for (size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) items.push_back(comma());
        const Part item = literal(value.items[i]);
        items.push_back(value.is_object() ? member(literal(value.keys[i]), item) : item);
    }
    const Part all = grammar_.sequence(std::move(items));
    const char open = value.is_object() ? '{' : '[';
    const char close = value.is_object() ? '}' : ']';
    return list(open, all, close);
}

Part JsonText::literal(std::string_view string) {
    std::string text;
    json::append_quoted(text, string);
    return grammar_.text(text);
}

Part JsonText::comma() {
    return grammar_.sequence({space(), grammar_.text(","), space()});
}

Part JsonText::member(Part key, Part value) {
    return grammar_.sequence({key, space(), grammar_.text(":"), space(), value});
}

Part JsonText::list(char open, Part items, char close) {
    return grammar_.sequence(
        {grammar_.text({&open, 1}), space(), items, space(), grammar_.text({&close, 1})});
}

Part JsonText::array(Part item, int64_t least, int64_t most) {
    return list('[', separated(*this, item, least, most), ']');
}

Part JsonText::object(Part member, int64_t least, int64_t most) {
    return list('{', separated(*this, member, least, most), '}');
}

Part JsonText::value() {
    if (!value_) define_any_value();
    return grammar_.call(*value_);
}

void JsonText::define_any_value() {
    value_ = grammar_.declare("value");
    const Part any = grammar_.call(*value_);
    grammar_.define(*value_, grammar_.choice({object(member(string(), any), 0, -1), array(any, 0, -1),
                                              string(), number(), boolean(), null()}));
}

}  // namespace minim::constraint
