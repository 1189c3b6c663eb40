// SPDX-License-Identifier: Apache-2.0
#include "chat/tag_name.h"

#include "chat/markup.h"

namespace minim::chat {
namespace {

// A quote that no ">" follows belongs to the name, as the template prints names unescaped.
NameMatch match_quoted_name(std::string_view text) {
    const char quote = text[0];
    for (size_t i = 1; i < text.size() && i <= k_max_name_bytes + 1; ++i) {
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
    return {text.size() <= k_max_name_bytes + 1 ? Match::partial : Match::none, {}, 0};
}

NameMatch match_bare_name(std::string_view text) {
    for (size_t i = 0; i < text.size() && i <= k_max_name_bytes; ++i) {
        if (text[i] == '>')
            return i == 0 ? NameMatch{} : NameMatch{Match::complete, text.substr(0, i), i + 1};
        if (markup::is_space(text[i]) || text[i] == '<') return {};
    }
    return {text.size() <= k_max_name_bytes ? Match::partial : Match::none, {}, 0};
}

}  // namespace

NameMatch match_name(std::string_view text) {
    if (text.empty()) return {Match::partial, {}, 0};
    return text[0] == '"' || text[0] == '\'' ? match_quoted_name(text) : match_bare_name(text);
}

}  // namespace minim::chat
