// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace minim::tokenizer {

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
    std::sort(tokens_.begin(), tokens_.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
    for (const AddedToken& token : tokens_) starts_[static_cast<uint8_t>(token.text[0])] = true;
}

std::optional<AddedTokenMatch> AddedTokenMatcher::find(std::string_view text, size_t from) const noexcept {
    for (size_t i = from; i < text.size(); ++i) {
        if (!starts_[static_cast<uint8_t>(text[i])]) continue;
        const AddedToken* token = longest_prefix_of(text.substr(i));
        if (token != nullptr) return AddedTokenMatch{i, i + token->text.size(), token->id};
    }
    return std::nullopt;
}

// The tokens that agree with the text's first `depth` bytes are neighbours in the sorted list, the one of
// exactly `depth` bytes first; each further byte narrows the range.
const AddedToken* AddedTokenMatcher::longest_prefix_of(std::string_view text) const noexcept {
    const AddedToken* longest = nullptr;
    auto first = tokens_.begin();
    auto last = tokens_.end();
    for (size_t depth = 0; depth < text.size(); ++depth) {
        const auto byte = static_cast<uint8_t>(text[depth]);
        const auto byte_of = [depth](const AddedToken& token) {
            return static_cast<uint8_t>(token.text[depth]);
        };
        first =
            std::partition_point(first, last, [&](const AddedToken& token) { return byte_of(token) < byte; });
        last = std::partition_point(first, last,
                                    [&](const AddedToken& token) { return byte_of(token) <= byte; });
        if (first == last) break;
        if (first->text.size() == depth + 1) {
            longest = &*first;
            if (++first == last) break;
        }
    }
    return longest;
}

std::optional<int32_t> AddedTokenMatcher::id_of(std::string_view text) const noexcept {
    const auto found =
        std::lower_bound(tokens_.begin(), tokens_.end(), text,
                         [](const AddedToken& token, std::string_view value) { return token.text < value; });
    if (found == tokens_.end() || found->text != text) return std::nullopt;
    return found->id;
}

std::optional<AddedTokenMatch> AddedTokenPasses::find(std::string_view text, size_t from) const noexcept {
    const auto found = first.find(text, from);
    const auto before = second.find(found ? text.substr(0, found->begin) : text, from);
    return before ? before : found;
}

std::optional<int32_t> AddedTokenPasses::id_of(std::string_view text) const noexcept {
    const auto id = first.id_of(text);
    return id ? id : second.id_of(text);
}

}  // namespace minim::tokenizer
