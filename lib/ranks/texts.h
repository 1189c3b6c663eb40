// SPDX-License-Identifier: Apache-2.0
// A list of texts as bytes: their number, and each text behind its number of bytes. All numbers have 4 bytes, little endian.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minim::ranks {

std::vector<std::byte> encode_texts(std::span<const std::string> texts);

// Throws format, naming `what`.
std::vector<std::string> parse_texts(std::span<const std::byte> bytes, std::string_view what);

}  // namespace minim::ranks
