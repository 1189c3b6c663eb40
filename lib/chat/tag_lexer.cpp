// SPDX-License-Identifier: Apache-2.0
#include "chat/tag_lexer.h"

#include <algorithm>

#include "chat/markup.h"
#include "chat/tag_name.h"

namespace minim::chat {
namespace {

using namespace markup;

struct FixedTag {
    TokenKind kind;
    std::string_view text;
};

constexpr FixedTag k_fixed_tags[] = {
    {TokenKind::think_open, k_m2.think_open},     {TokenKind::think_close, k_m2.think_close},
    {TokenKind::block_open, k_m2.block_open},     {TokenKind::block_close, k_m2.block_close},
    {TokenKind::invoke_close, k_m2.invoke_close}, {TokenKind::parameter_close, k_m2.parameter_close},
};

struct TagMatch {
    Match match = Match::none;
    Token token;
};

TagMatch match_named(std::string_view text, std::string_view opening, TokenKind kind) {
    if (text.size() < opening.size()) return {opening.starts_with(text) ? Match::partial : Match::none, {}};
    if (!text.starts_with(opening)) return {};
    const NameMatch name = match_name(text.substr(opening.size()));
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
            consider(match_named(text, k_m2.invoke_open.substr(1), TokenKind::invoke_open));
        return best;
    }
    for (const FixedTag& tag : k_fixed_tags) {
        if (!wanted.has(tag.kind)) continue;
        if (text.starts_with(tag.text))
            return {Match::complete, {tag.kind, text.substr(0, tag.text.size()), {}}};
        if (tag.text.starts_with(text)) best.match = Match::partial;
    }
    if (wanted.has(TokenKind::invoke_open))
        consider(match_named(text, k_m2.invoke_open, TokenKind::invoke_open));
    if (wanted.has(TokenKind::parameter_open))
        consider(match_named(text, k_m2.parameter_open, TokenKind::parameter_open));
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
