// SPDX-License-Identifier: Apache-2.0
// TQ2_0: 256 ternary weights, 2 bits each.
//
//    0  codes  64 bytes: 32 bytes hold 128 elements, the lowest bits of each byte the first 32 of them
//   64  d      f16
//   W = d * (code - 1)
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/TQ2_0.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct TQ2_0 {
    static constexpr Format format = Format::tq2_0;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 66;
    static constexpr int row_header_bytes = 0;
    static constexpr int codes_at = 0;
    static constexpr int d_at = 64;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 256; ++e) out[e] = d * static_cast<float>(code2_of_128(block + codes_at, e) - 1);
    }
};
static_assert(TQ2_0::block_bytes == 64 + 2);

}  // namespace minim
