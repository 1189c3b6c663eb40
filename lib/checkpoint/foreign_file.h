// SPDX-License-Identifier: Apache-2.0
// Recognises files that are not checkpoints: left by a failed download, or of another format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/byte_source.h"

namespace minim::checkpoint {

// The number of bytes at the start of a file that identify it.
inline constexpr uint64_t k_foreign_bytes = 256;

// Returns the kind of a file whose first bytes are `start`, and what to do: "it is a Git LFS pointer, ... run git lfs
// pull". Returns an empty text if the kind is not known.
std::string describe_foreign(std::string_view start);

// Returns the same for a whole file. Describes a text file of an unknown kind as a text.
std::string describe_foreign(const ByteSource& source);

}  // namespace minim::checkpoint
