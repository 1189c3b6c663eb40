// SPDX-License-Identifier: Apache-2.0
// File names as sites, tools and systems give them.
#pragma once

#include <string>
#include <string_view>

namespace minim::checkpoint {

// Returns a text with its capital letters of ASCII as small ones.
std::string in_small_letters(std::string_view text);

// Returns whether a name ends in a text of small letters, in small or capital letters.
bool ends_in(std::string_view name, std::string_view ending);

// Returns what the name says about a file that cannot be read, and what to do: that it is one part of a file that was cut into
// pieces, or an unfinished download. Returns an empty text if the name says neither. `file` is a name without folder.
std::string describe_name(std::string_view file);

}  // namespace minim::checkpoint
