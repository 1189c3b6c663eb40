// SPDX-License-Identifier: Apache-2.0
// Finds added tokens (`]~b]`, `<think>`, ...) in text: the leftmost match, the longest of those that start
// there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace minim::tokenizer {

struct AddedToken {
    std::string text;
    int32_t id;
};

struct AddedTokenMatch {
    size_t begin;
    size_t end;
    int32_t id;
};

// Immutable; any thread. A search reads at most the longest token's length at each position.
class AddedTokenMatcher {
  public:
    // Texts are distinct and not empty.
    explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

    std::optional<AddedTokenMatch> find(std::string_view text, size_t from) const noexcept;

    // Returns the token whose whole text this is.
    std::optional<int32_t> id_of(std::string_view text) const noexcept;

  private:
    const AddedToken* longest_prefix_of(std::string_view text) const noexcept;

    std::vector<AddedToken> tokens_;  // by text, as bytes
    std::array<bool, 256> starts_{};
};

// Added tokens are found in two passes: the second looks only in what the first leaves between its tokens, as the tokenizers
// library does for those that are `normalized`.
struct AddedTokenPasses {
    AddedTokenMatcher first;
    AddedTokenMatcher second;

    // Returns the first token of either pass at or after `from`. Searches the rest of the text each time.
    std::optional<AddedTokenMatch> find(std::string_view text, size_t from) const noexcept;

    // Returns the token whose whole text this is.
    std::optional<int32_t> id_of(std::string_view text) const noexcept;
};

}  // namespace minim::tokenizer
