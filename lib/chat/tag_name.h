// SPDX-License-Identifier: Apache-2.0
// Names within tags, as in <invoke name="NAME">, of output that may end anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minim::chat {

// Longer names make a tag malformed, which limits the text held back.
inline constexpr size_t k_max_name_bytes = 1024;

enum class Match : uint8_t {
    none,
    partial,  // the text may go on to a match
    complete,
};

struct NameMatch {
    Match match = Match::none;
    std::string_view name;
    size_t bytes = 0;  // with its quotes and the ">"
};

// Matches the name that `text` begins with, in ", in ' or bare, and the ">" after it.
NameMatch match_name(std::string_view text);

}  // namespace minim::chat
