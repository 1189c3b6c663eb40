// SPDX-License-Identifier: Apache-2.0
// Bytes of a file in memory, with little-endian fields appended to them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace minim::checkpoint {

static_assert(std::endian::native == std::endian::little, "fields are copied as they stand in memory");

class ByteWriter {
  public:
    template <typename T>
    requires std::is_arithmetic_v<T>
    void number(T value) { raw(std::as_bytes(std::span(&value, 1))); }
    // Appends the u64 length of a text, then the text.
    void string(std::string_view text) {
        number<uint64_t>(text.size());
        raw(std::as_bytes(std::span(text)));
    }
    void raw(std::span<const std::byte> more) {
        if (more.empty()) return;
        const size_t before = bytes.size();
        bytes.resize(before + more.size());
        std::memcpy(bytes.data() + before, more.data(), more.size());
    }
    // Appends zeros up to a multiple of `alignment`.
    void pad_to(size_t alignment) { bytes.resize((bytes.size() + alignment - 1) / alignment * alignment); }

    std::vector<std::byte> bytes;
};

}  // namespace minim::checkpoint
