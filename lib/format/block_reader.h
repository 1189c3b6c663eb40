// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a block: little-endian, byte by byte, because blocks may have any address. Each plane helper is named
// for one way of spreading codes over bytes and returns the code of element e.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "base/platform.h"

namespace minim {

static_assert(std::endian::native == std::endian::little,
              "block fields are read in the machine's byte order");

MINIM_HOST_DEVICE uint16_t load_u16(const uint8_t* from) {
    uint16_t value;
    memcpy(&value, from, sizeof(value));
    return value;
}

MINIM_HOST_DEVICE uint32_t load_u32(const uint8_t* from) {
    uint32_t value;
    memcpy(&value, from, sizeof(value));
    return value;
}

MINIM_HOST_DEVICE float load_f32(const uint8_t* from) {
    return bits_to_float(load_u32(from));
}

MINIM_HOST_DEVICE float load_f16(const uint8_t* from) {
    return f16_to_float(load_u16(from));
}

// Returns the `count` bits of `value` from bit `position` up; count is at most 16.
MINIM_HOST_DEVICE int bit_field(uint32_t value, int position, int count) {
    return static_cast<int>((value >> position) & ((1U << count) - 1U));
}

// Returns the low (k = 0) or high (k = 1) half of a byte.
MINIM_HOST_DEVICE int nibble(uint8_t byte, int k) {
    return (byte >> (4 * k)) & 15;
}

// 4-bit codes: 16 bytes hold 32 elements, the low nibbles the first 16 of them.
MINIM_HOST_DEVICE int code4_of_32(const uint8_t* codes, int e) {
    return nibble(codes[(e >> 5) * 16 + (e & 15)], (e >> 4) & 1);
}

// 4-bit codes: 32 bytes hold 64 elements, the low nibbles the first 32 of them.
MINIM_HOST_DEVICE int code4_of_64(const uint8_t* codes, int e) {
    return nibble(codes[(e >> 6) * 32 + (e & 31)], (e >> 5) & 1);
}

// 2-bit codes: 32 bytes hold 128 elements, the lowest bits of each byte the first 32 of them.
MINIM_HOST_DEVICE int code2_of_128(const uint8_t* codes, int e) {
    return bit_field(codes[(e >> 7) * 32 + (e & 31)], 2 * ((e >> 5) & 3), 2);
}

// 1-bit codes: 32 bytes hold 256 elements, bit 0 of each byte the first 32 of them.
MINIM_HOST_DEVICE int code1_of_256(const uint8_t* codes, int e) {
    return bit_field(codes[e & 31], e >> 5, 1);
}

// 1-bit codes in order of the elements, eight per byte from bit 0 up.
MINIM_HOST_DEVICE int code1_in_order(const uint8_t* codes, int e) {
    return bit_field(codes[e >> 3], e & 7, 1);
}

// Returns the scale in front of the first block of a row: f32, f16, or 1 if the format has none.
template <typename Block>
MINIM_HOST_DEVICE float load_row_scale(const uint8_t* row) {
    static_assert(Block::row_header_bytes == 0 || Block::row_header_bytes == 2 ||
                  Block::row_header_bytes == 4);
    if constexpr (Block::row_header_bytes == 4) {
        return load_f32(row);
    } else if constexpr (Block::row_header_bytes == 2) {
        return load_f16(row);
    } else {
        return 1.0F;
    }
}

}  // namespace minim
