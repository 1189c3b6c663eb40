// SPDX-License-Identifier: Apache-2.0
// IQ4_NL: the layout of Q4_0 with codes that index a table of 16 unevenly spaced values.
//
//   0  d      f16
//   2  codes  16 bytes: low nibbles elements 0-15, high nibbles elements 16-31
//   W = d * iq4nl[code]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ4_NL.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ4_NL {
    static constexpr Format format = Format::iq4_nl;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 18;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int codes_at = 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 32; ++e) {
            out[e] = d * static_cast<float>(iq4nl_values()[code4_of_32(block + codes_at, e)]);
        }
    }
};
static_assert(IQ4_NL::block_bytes == 2 + 16);

}  // namespace minim
