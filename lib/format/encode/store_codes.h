// SPDX-License-Identifier: Apache-2.0
// Writes codes where block_reader.h reads them. Memory is zero before.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "base/platform.h"

namespace minim::encoding {

MINIM_HOST_DEVICE void put_u16(uint8_t* to, uint32_t value) {
    const auto narrow = static_cast<uint16_t>(value);
    memcpy(to, &narrow, sizeof(narrow));
}

MINIM_HOST_DEVICE void put_f16(uint8_t* to, float value) {
    put_u16(to, float_to_f16(value));
}

MINIM_HOST_DEVICE void put_bits(uint8_t* to, int value, int position) {
    *to = static_cast<uint8_t>(*to | value << position);
}

// Bits 0-3 of n codes as code4_of_32 reads them.
MINIM_HOST_DEVICE void put_code4_of_32(const uint8_t* code, int n, uint8_t* to) {
    for (int e = 0; e < n; e += 32) {
        for (int i = 0; i < 16; ++i)
            to[e / 2 + i] = static_cast<uint8_t>((code[e + i] & 15) | (code[e + 16 + i] & 15) << 4);
    }
}

// Bits 0-3 of 256 codes as code4_of_64 reads them.
MINIM_HOST_DEVICE void put_code4_of_64(const uint8_t* code, uint8_t* to) {
    for (int e = 0; e < 256; e += 64) {
        for (int i = 0; i < 32; ++i)
            to[e / 2 + i] = static_cast<uint8_t>((code[e + i] & 15) | (code[e + 32 + i] & 15) << 4);
    }
}

// Bits `from` and from + 1 of 256 codes as code2_of_128 reads them.
MINIM_HOST_DEVICE void put_code2_of_128(const uint8_t* code, int from, uint8_t* to) {
    for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < 32; ++i) {
            int byte = 0;
            for (int k = 0; k < 4; ++k) byte |= (code[128 * half + 32 * k + i] >> from & 3) << (2 * k);
            to[32 * half + i] = static_cast<uint8_t>(byte);
        }
    }
}

// Bit `from` of 256 codes as code1_of_256 reads it.
MINIM_HOST_DEVICE void put_code1_of_256(const uint8_t* code, int from, uint8_t* to) {
    for (int i = 0; i < 32; ++i) {
        int byte = 0;
        for (int k = 0; k < 8; ++k) byte |= (code[32 * k + i] >> from & 1) << k;
        to[i] = static_cast<uint8_t>(byte);
    }
}

}  // namespace minim::encoding
