// SPDX-License-Identifier: Apache-2.0
// TQ1_0: 256 ternary weights, five to a byte. A byte b stands for the fraction b/256, whose ternary digits
// are the codes: digit n is the integer part of 3 * frac(b/256 * 3^n).
//
//    0  codes  48 bytes of five digits n: byte i < 32 holds elements i + 32n, byte 32 + i holds 160 + i + 16n
//   48  tail   4 bytes of four digits: byte 48 + i holds elements 240 + i + 4n
//   52  d      f16
//   W = d * (digit - 1)
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/TQ1_0.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct TQ1_0 {
    static constexpr Format format = Format::tq1_0;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 54;
    static constexpr int row_header_bytes = 0;
    static constexpr int codes_at = 0;
    static constexpr int tail_at = 48;
    static constexpr int d_at = 52;

    // Returns digit n of a byte, 0 … 2. 3^n is read from a packed word, eight bits for each n.
    MINIM_HOST_DEVICE static int ternary_digit(uint8_t byte, int n) {
        const uint64_t powers = 0x511B090301ULL;
        const auto power = static_cast<uint32_t>((powers >> (8 * n)) & 0xFFU);
        return static_cast<int>((3U * ((byte * power) & 0xFFU)) >> 8);
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 160; ++e) {
            out[e] = d * static_cast<float>(ternary_digit(block[codes_at + (e & 31)], e >> 5) - 1);
        }
        for (int e = 0; e < 80; ++e) {
            out[160 + e] = d * static_cast<float>(ternary_digit(block[codes_at + 32 + (e & 15)], e >> 4) - 1);
        }
        for (int e = 0; e < 16; ++e) {
            out[240 + e] = d * static_cast<float>(ternary_digit(block[tail_at + (e & 3)], e >> 2) - 1);
        }
    }
};
static_assert(TQ1_0::block_bytes == 48 + 4 + 2);

}  // namespace minim
