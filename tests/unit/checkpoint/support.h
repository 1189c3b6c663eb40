// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "support/gguf_writer.h"
#include "support/helpers.h"

namespace minim::checkpoint::testing {

using test::error_of;
using test::Lines;
using test::name_of;
using test::reason_of;
using test::TemporaryFolder;

inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

// Returns a safetensors file: length, header, data of `data_bytes` bytes 0, 1, 2, ...
inline std::vector<std::byte> safetensors(std::string_view json, size_t data_bytes) {
    test::ByteWriter out;
    out.string(json);
    for (size_t i = 0; i < data_bytes; ++i) out.number(static_cast<uint8_t>(i));
    return out.bytes;
}

}  // namespace minim::checkpoint::testing
