// SPDX-License-Identifier: Apache-2.0
// The metadata entries of a GGUF file.
#pragma once

#include <cstdint>

#include "checkpoint/byte_source.h"
#include "checkpoint/metadata.h"

namespace minim::checkpoint {

// Longest key or tensor name that is accepted; the upstream reader stops at 63 bytes.
inline constexpr uint64_t k_name_cap_bytes = uint64_t{64} << 10;

// Reads a key or the name of a tensor. Throws if it is empty, has a NUL or is longer than k_name_cap_bytes.
std::string read_gguf_name(HeaderReader& in, std::string_view what);

// Reads `count` entries from the position of `in`. Throws if a key appears twice.
Metadata read_gguf_metadata(HeaderReader& in, uint64_t count);

}  // namespace minim::checkpoint
