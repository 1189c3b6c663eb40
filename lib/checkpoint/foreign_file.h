// Files that lie where a checkpoint's file should be, and are something else: what a download left there, or another format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/byte_source.h"

namespace minim::checkpoint {

// As many bytes of a file tell what it is.
inline constexpr uint64_t k_foreign_bytes = 256;

// What a file is whose first bytes are `start`, and what to do: "it is a Git LFS pointer, ... run git lfs pull". Empty if that is
// not known.
std::string describe_foreign(std::string_view start);

// The same of a whole file; one that begins with any other text is said to be a text.
std::string describe_foreign(const ByteSource& source);

}  // namespace minim::checkpoint
