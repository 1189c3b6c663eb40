// SPDX-License-Identifier: Apache-2.0
#include "chat/element_lexer.h"

#include <algorithm>

#include "chat/markup.h"
#include "chat/tag_name.h"

namespace minim::chat {
namespace {

using Kind = ElementToken::Kind;
using Tags = ElementTags;

// More whitespace within a tag, or between a mark and its tag, makes it malformed, which limits the text held back.
constexpr size_t k_max_space_bytes = 1024;

struct ElementMatch {
    Match match = Match::none;
    Kind kind = Kind::text;
    size_t bytes = 0;  // of the tag
    std::string_view name = {};
};

struct FixedElementTag {
    Tags marked;
    Tags bare;
    Kind kind;
    std::string_view text;
};

constexpr FixedElementTag k_fixed_element_tags[] = {
    {Tags(), Tags::think_open(), Kind::think_open, k_m3.think_open},
    {Tags(), Tags::think_close(), Kind::think_close, k_m3.think_close},
    {Tags::block_open(), Tags::bare_block_open(), Kind::block_open, k_m3.block_open},
    {Tags::block_close(), Tags::bare_block_close(), Kind::block_close, k_m3.block_close},
    {Tags::invoke_close(), Tags::bare_invoke_close(), Kind::invoke_close, k_m3.invoke_close},
};

// Reads a tag step by step, and notes whether the text ends within it.
class TagReader {
  public:
    explicit TagReader(std::string_view text) : text_(text) {}

    bool is_at_end() const { return at_ == text_.size(); }
    size_t at() const { return at_; }
    // Returns false if the literal does not follow, or the text ends within it.
    bool skip(std::string_view literal) {
        const std::string_view rest = text_.substr(at_);
        if (rest.size() < literal.size()) {
            if (literal.starts_with(rest)) at_ = text_.size();
            return false;
        }
        if (!rest.starts_with(literal)) return false;
        at_ += literal.size();
        return true;
    }
    void skip_space() {
        const size_t end = std::min(text_.size(), at_ + k_max_space_bytes);
        while (at_ < end && markup::is_space(text_[at_])) ++at_;
    }
    Match failed() const { return is_at_end() ? Match::partial : Match::none; }

  private:
    std::string_view text_;
    size_t at_ = 0;
};

ElementMatch match_invoke(std::string_view text, std::string_view opening) {
    TagReader reader(text);
    if (!reader.skip(opening)) return {.match = reader.failed()};
    const NameMatch name = match_name(text.substr(opening.size()));
    if (name.name.find(k_m3.mark) != std::string_view::npos) return {};
    return {name.match, Kind::invoke_open, opening.size() + name.bytes, name.name};
}

std::string_view trimmed_name(std::string_view text) {
    while (!text.empty() && markup::is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && markup::is_space(text.back())) text.remove_suffix(1);
    return text;
}

// Matches <NAME> or </NAME>.
ElementMatch match_element(std::string_view text) {
    if (text[0] != '<') return {};
    const size_t end = text.find_first_of("<>]", 1);
    const bool is_cut = end == std::string_view::npos;
    if ((is_cut ? text.size() : end) > k_max_name_bytes) return {};
    if (is_cut) return {.match = Match::partial};
    const bool closes = text[1] == '/';
    const std::string_view name = trimmed_name(text.substr(1, end - 1).substr(closes ? 1 : 0));
    // An invoke tag without a good name is none of an element either.
    if (text[end] != '>' || name.empty() || text.starts_with(k_m3.invoke_open)) return {};
    return {Match::complete, closes ? Kind::element_close : Kind::element_open, end + 1, name};
}

ElementMatch match_closer(std::string_view text, std::string_view name) {
    TagReader reader(text);
    if (!reader.skip("</")) return {.match = reader.failed()};
    reader.skip_space();
    if (!reader.skip(name)) return {.match = reader.failed()};
    reader.skip_space();
    if (!reader.skip(">")) return {.match = reader.failed()};
    return {Match::complete, Kind::element_close, reader.at(), name};
}

// Matches a wanted tag, which stands after a mark or without one.
ElementMatch match_tag_text(std::string_view text, Tags wanted, bool has_mark, std::string_view value_name) {
    ElementMatch best;
    const auto consider = [&](const ElementMatch& match) {
        if (best.match != Match::complete && match.match != Match::none) best = match;
    };
    for (const FixedElementTag& tag : k_fixed_element_tags) {
        if (!wanted.has(has_mark ? tag.marked : tag.bare)) continue;
        if (text.starts_with(tag.text)) return {Match::complete, tag.kind, tag.text.size(), {}};
        if (tag.text.starts_with(text)) best.match = Match::partial;
    }
    if (wanted.has(has_mark ? Tags::invoke_open() : Tags::bare_invoke_open()))
        consider(match_invoke(text, k_m3.invoke_open));
    if (!has_mark) return best;
    if (wanted.has(Tags::invoke_without_bracket())) consider(match_invoke(text, k_m3.invoke_open.substr(1)));
    if (wanted.has(Tags::elements())) consider(match_element(text));
    if (wanted.has(Tags::value_close())) consider(match_closer(text, value_name));
    return best;
}

constexpr Tags k_after_mark = Tags::block_open() | Tags::block_close() | Tags::invoke_open() |
                              Tags::invoke_close() | Tags::invoke_without_bracket() | Tags::elements() |
                              Tags::value_close();

// Matches the mark that `text` begins with, and its tag.
ElementMatch match_marked(std::string_view text, Tags wanted, std::string_view value_name) {
    if (!wanted.has(k_after_mark)) return {};
    TagReader reader(text);
    if (!reader.skip(k_m3.mark)) return {.match = reader.failed()};
    reader.skip_space();
    if (reader.is_at_end()) return {.match = Match::partial};
    ElementMatch tag = match_tag_text(text.substr(reader.at()), wanted, true, value_name);
    if (tag.match == Match::none && wanted.has(Tags::elements()))
        return {Match::complete, Kind::mark, k_m3.mark.size(), {}};
    tag.bytes += reader.at();
    return tag;
}

}  // namespace

void ElementLexer::push(std::string_view text) {
    buffer_.erase(0, at_);
    at_ = 0;
    buffer_ += text;
}

std::optional<ElementToken> ElementLexer::next(ElementTags wanted, std::string_view value_name) {
    const std::string_view rest = pending();
    if (rest.empty()) return std::nullopt;
    const bool has_mark = rest[0] == k_m3.mark[0];
    if (has_mark || rest[0] == '<') {
        const ElementMatch found = has_mark ? match_marked(rest, wanted, value_name)
                                            : match_tag_text(rest, wanted, false, value_name);
        if (found.match == Match::partial) return std::nullopt;
        if (found.match == Match::complete) {
            at_ += found.bytes;
            return ElementToken{found.kind, has_mark, rest.substr(0, found.bytes), found.name};
        }
    }
    const bool space = markup::is_space(rest[0]);
    const auto* const end = std::find_if(rest.begin() + 1, rest.end(), [&](char c) {
        return c == '<' || c == k_m3.mark[0] || markup::is_space(c) != space;
    });
    const std::string_view run = rest.substr(0, end - rest.begin());
    at_ += run.size();
    return ElementToken{space ? Kind::space : Kind::text, false, run, {}};
}

}  // namespace minim::chat
