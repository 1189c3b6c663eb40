// SPDX-License-Identifier: Apache-2.0
// The trellis formats (ik): a small generator, started at a stored index, computes a group of outputs. All have the scale d as an
// f32 row header and blocks of 256 elements, 8 groups of 32 with a scale each.
//
//   generator   x0 = index + 4096; each output first steps x = x * 0xCBAC1FED (mod 2^32), then
//               t = (sum of the four bytes of x & 0x3F3F3F3F) - 126
//
//   IQ1_KT    0  groups  8 bytes, j each: bits 0-3 a code of iq4k, bit 4 + c is bit 12 of index 4j + c
//             8  low     32 bytes: bits 0-7 of index G
//            40  high    16 bytes: bits 8-11 of index G = 4j + c are nibble j/4 of byte 4*(j%4) + c
//   eight outputs an index G = e/8;   W = d * iq4k[code] * t
//
//   IQ2_KT    0  scales  4 bytes: code j of iq4k is nibble j/4 of byte j%4
//             4  index   32 x u16
//   eight outputs an index e/8;       W = d * iq4k[code] * t
//
//   IQ3_KT    0  scales  4 bytes: scale j is nibble j/4 of byte j%4
//             4  index   32 x u16
//            68  signs   32 bytes: bit e/32 of byte e%32 set: negative
//   eight outputs an index e/8;       W = +-d * scale * abs(t)
//
//   IQ4_KT    0  groups  8 x u32, j each: bit 0 is bit 15 of the group's indices, bits 1-7 scale + 64,
//                        bits 8 + 3i … 10 + 3i are bits 12-14 of index 8j + i
//            32  low     64 bytes: bits 0-7 of index k
//            96  high    32 bytes: bits 8-11 of index k are nibble k/32 of byte k%32
//   four outputs an index k = e/4;    W = d * scale * t
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ1_KT.bin, IQ2_KT.bin, IQ3_KT.bin,
// IQ4_KT.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

MINIM_HOST_DEVICE uint32_t trellis_start(int index) {
    return static_cast<uint32_t>(index) + 4096U;
}

MINIM_HOST_DEVICE uint32_t trellis_step(uint32_t x) {
    return x * 0xCBAC1FEDU;
}

// Returns the output of state x, -126 … 126.
MINIM_HOST_DEVICE int trellis_output(uint32_t x) {
    const uint32_t bytes = x & 0x3F3F3F3FU;
    const uint32_t sum = (bytes & 0xFFU) + ((bytes >> 8) & 0xFFU) + ((bytes >> 16) & 0xFFU) + (bytes >> 24);
    return static_cast<int>(sum) - 126;
}

struct IQ1_KT {
    static constexpr Format format = Format::iq1_kt;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 56;
    static constexpr int row_header_bytes = 4;
    static constexpr int groups_at = 0;
    static constexpr int low_at = 8;
    static constexpr int high_at = 40;

    // Returns the index of elements 8k … 8k+7, 13 bits.
    MINIM_HOST_DEVICE static int start_index(const uint8_t* block, int k) {
        const int j = k >> 2;
        const int c = k & 3;
        return block[low_at + k] + 256 * nibble(block[high_at + 4 * (j & 3) + c], j >> 2) +
               4096 * bit_field(block[groups_at + j], 4 + c, 1);
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int k = 0; k < 32; ++k) {
            const int code = nibble(block[groups_at + (k >> 2)], 0);
            const float scale = row_scale * static_cast<float>(iq4k_values()[code]);
            uint32_t x = trellis_start(start_index(block, k));
            for (int i = 0; i < 8; ++i) {
                x = trellis_step(x);
                out[8 * k + i] = scale * static_cast<float>(trellis_output(x));
            }
        }
    }
};
static_assert(IQ1_KT::block_bytes == 8 + 32 + 16);

struct IQ2_KT {
    static constexpr Format format = Format::iq2_kt;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 68;
    static constexpr int row_header_bytes = 4;
    static constexpr int scales_at = 0;
    static constexpr int indices_at = 4;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int k = 0; k < 32; ++k) {
            const int j = k >> 2;
            const int code = nibble(block[scales_at + (j & 3)], j >> 2);
            const float scale = row_scale * static_cast<float>(iq4k_values()[code]);
            uint32_t x = trellis_start(load_u16(block + indices_at + 2 * k));
            for (int i = 0; i < 8; ++i) {
                x = trellis_step(x);
                out[8 * k + i] = scale * static_cast<float>(trellis_output(x));
            }
        }
    }
};
static_assert(IQ2_KT::block_bytes == 4 + 32 * 2);

struct IQ3_KT {
    static constexpr Format format = Format::iq3_kt;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 100;
    static constexpr int row_header_bytes = 4;
    static constexpr int scales_at = 0;
    static constexpr int indices_at = 4;
    static constexpr int signs_at = 68;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int k = 0; k < 32; ++k) {
            const int j = k >> 2;
            const float scale = row_scale * static_cast<float>(nibble(block[scales_at + (j & 3)], j >> 2));
            uint32_t x = trellis_start(load_u16(block + indices_at + 2 * k));
            for (int e = 8 * k; e < 8 * k + 8; ++e) {
                x = trellis_step(x);
                const int t = trellis_output(x);
                const int magnitude = t < 0 ? -t : t;
                const bool negative = code1_of_256(block + signs_at, e) != 0;
                out[e] = scale * static_cast<float>(negative ? -magnitude : magnitude);
            }
        }
    }
};
static_assert(IQ3_KT::block_bytes == 4 + 32 * 2 + 32);

struct IQ4_KT {
    static constexpr Format format = Format::iq4_kt;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 128;
    static constexpr int row_header_bytes = 4;
    static constexpr int groups_at = 0;
    static constexpr int low_at = 32;
    static constexpr int high_at = 96;

    // Returns the index of elements 4k … 4k+3, 16 bits; `group` is the word of their 32 elements.
    MINIM_HOST_DEVICE static int start_index(const uint8_t* block, uint32_t group, int k) {
        return block[low_at + k] + 256 * nibble(block[high_at + (k & 31)], k >> 5) +
               4096 * bit_field(group, 8 + 3 * (k & 7), 3) + 32768 * bit_field(group, 0, 1);
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int k = 0; k < 64; ++k) {
            const uint32_t group = load_u32(block + groups_at + 4 * (k >> 3));
            const float scale = row_scale * static_cast<float>(bit_field(group, 1, 7) - 64);
            uint32_t x = trellis_start(start_index(block, group, k));
            for (int i = 0; i < 4; ++i) {
                x = trellis_step(x);
                out[4 * k + i] = scale * static_cast<float>(trellis_output(x));
            }
        }
    }
};
static_assert(IQ4_KT::block_bytes == 8 * 4 + 64 + 32);

}  // namespace minim
