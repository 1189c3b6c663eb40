// SPDX-License-Identifier: Apache-2.0
#include "chat/tag_lexer.h"

#include <algorithm>

#include "chat/markup.h"

namespace minim::chat {
namespace {

using namespace markup;

struct FixedTag {
    TokenKind kind;
    std::string_view text;
};

constexpr FixedTag k_fixed_tags[] = {
    {TokenKind::think_open, k_think_open},     {TokenKind::think_close, k_think_close},
    {TokenKind::block_open, k_block_open},     {TokenKind::block_close, k_block_close},
    {TokenKind::invoke_close, k_invoke_close}, {TokenKind::parameter_close, k_parameter_close},
};

enum class Match : uint8_t { none, partial, complete };

struct Name {
    Match match = Match::none;
    std::string_view name;
    size_t bytes = 0;  // with its quotes and the ">"
};

// A quote that no ">" follows belongs to the name, as the template prints names unescaped.
Name match_quoted_name(std::string_view text) {
    const char quote = text[0];
    for (size_t i = 1; i < text.size() && i <= TagLexer::k_max_name_bytes + 1; ++i) {
        if (text[i] == '\n' || text[i] == '\r') return {};
        if (text[i] != quote) continue;
        if (i + 1 == text.size()) return {Match::partial, {}, 0};
        if (text[i + 1] != '>') continue;
        const std::string_view name = text.substr(1, i - 1);
        const bool holds_tag = name.find("<invoke ") != std::string_view::npos ||
                               name.find("<parameter ") != std::string_view::npos;
        if (name.empty() || holds_tag) return {};
        return {Match::complete, name, i + 2};
    }
    return {text.size() <= TagLexer::k_max_name_bytes + 1 ? Match::partial : Match::none, {}, 0};
}

Name match_bare_name(std::string_view text) {
    for (size_t i = 0; i < text.size() && i <= TagLexer::k_max_name_bytes; ++i) {
        if (text[i] == '>') return i == 0 ? Name{} : Name{Match::complete, text.substr(0, i), i + 1};
        if (is_space(text[i]) || text[i] == '<') return {};
    }
    return {text.size() <= TagLexer::k_max_name_bytes ? Match::partial : Match::none, {}, 0};
}

Name match_name(std::string_view text) {
    if (text.empty()) return {Match::partial, {}, 0};
    return text[0] == '"' || text[0] == '\'' ? match_quoted_name(text) : match_bare_name(text);
}

struct TagMatch {
    Match match = Match::none;
    Token token;
};

TagMatch match_named(std::string_view text, std::string_view opening, TokenKind kind) {
    if (text.size() < opening.size()) return {opening.starts_with(text) ? Match::partial : Match::none, {}};
    if (!text.starts_with(opening)) return {};
    const Name name = match_name(text.substr(opening.size()));
    if (name.match == Match::complete) {
        return {Match::complete, {kind, text.substr(0, opening.size() + name.bytes), name.name}};
    }
    if (name.match == Match::none && kind == TokenKind::parameter_open) {
        return {Match::complete, {TokenKind::bad_parameter, text.substr(0, opening.size()), {}}};
    }
    return {name.match, {}};
}

// Returns the wanted tag that `text` begins with. No wanted tag is the beginning of another one.
TagMatch match_tag(std::string_view text, TagSet wanted) {
    TagMatch best;
    const auto consider = [&](const TagMatch& match) {
        if (best.match != Match::complete && match.match != Match::none) best = match;
    };
    if (text[0] == 'i') {
        if (wanted.has_bare_invoke())
            consider(match_named(text, k_invoke_open.substr(1), TokenKind::invoke_open));
        return best;
    }
    for (const FixedTag& tag : k_fixed_tags) {
        if (!wanted.has(tag.kind)) continue;
        if (text.starts_with(tag.text))
            return {Match::complete, {tag.kind, text.substr(0, tag.text.size()), {}}};
        if (tag.text.starts_with(text)) best.match = Match::partial;
    }
    if (wanted.has(TokenKind::invoke_open))
        consider(match_named(text, k_invoke_open, TokenKind::invoke_open));
    if (wanted.has(TokenKind::parameter_open))
        consider(match_named(text, k_parameter_open, TokenKind::parameter_open));
    return best;
}

}  // namespace

void TagLexer::push(std::string_view text) {
    buffer_.erase(0, at_);
    at_ = 0;
    buffer_ += text;
}

std::optional<Token> TagLexer::next(TagSet wanted) {
    const std::string_view rest = pending();
    if (rest.empty()) return std::nullopt;
    if (rest[0] == '<' || (rest[0] == 'i' && wanted.has_bare_invoke())) {
        const TagMatch found = match_tag(rest, wanted);
        if (found.match == Match::partial) return std::nullopt;
        if (found.match == Match::complete) {
            at_ += found.token.raw.size();
            return found.token;
        }
    }
    const bool space = is_space(rest[0]);
    const auto* const end =
        std::find_if(rest.begin() + 1, rest.end(), [&](char c) { return c == '<' || is_space(c) != space; });
    const std::string_view run = rest.substr(0, end - rest.begin());
    at_ += run.size();
    return Token{space ? TokenKind::space : TokenKind::text, run, {}};
}

}  // namespace minim::chat
