// SPDX-License-Identifier: Apache-2.0
// Encoders of blocks of 32 elements with a scale of their own: Q4_0, Q5_0, Q6_0, IQ4_NL.
#pragma once

#include <cstring>

#include "format/encode/quantiser.h"
#include "format/encode/scale_search.h"
#include "format/encode/store_codes.h"
#include "format/iq4_nl.h"
#include "format/q4_0.h"
#include "format/q5_0.h"
#include "format/q6_0.h"

namespace minim::encoding {

MINIM_HOST_DEVICE void store_block(Q4_0, const uint8_t* code, uint8_t* block) {
    put_code4_of_32(code, 32, block + Q4_0::codes_at);
}

MINIM_HOST_DEVICE void store_block(IQ4_NL, const uint8_t* code, uint8_t* block) {
    put_code4_of_32(code, 32, block + IQ4_NL::codes_at);
}

MINIM_HOST_DEVICE void store_block(Q5_0, const uint8_t* code, uint8_t* block) {
    put_code4_of_32(code, 32, block + Q5_0::codes_at);
    for (int e = 0; e < 32; ++e) put_bits(block + Q5_0::high_at + e / 8, code[e] >> 4, e % 8);
}

MINIM_HOST_DEVICE void store_block(Q6_0, const uint8_t* code, uint8_t* block) {
    put_code4_of_32(code, 32, block + Q6_0::codes_at);
    for (int e = 0; e < 32; ++e)
        put_bits(block + Q6_0::high_at + e % 8, code[e] >> 4, e % 16 / 8 * 4 + e / 16 * 2);
}

template <class V, class Block, class Q>
int64_t encode_blocks_of_32(const RowTask& row) {
    uint8_t* block = row.out;
    for (int64_t at = 0; at < row.n_columns; at += 32, block += Block::block_bytes) {
        float ux[32];
        multiply(row.u + at, row.x + at, 32, ux);
        const Elements elements{row.x + at, row.u + at, ux, 32};
        if (__builtin_fabsf(signed_peak_of(elements.x, 32)) > 65504.0F * -Q::low) return at;
        const float d = f16_to_float(float_to_f16(search_scale<V, Q>(elements, row.fast).s));
        if (!(__builtin_fabsf(d) <= 65504.0F)) return at;
        const float inverse = inverse_of(d);
        uint8_t code[32];
        for (int e = 0; e < 32; ++e) code[e] = d == 0.0F ? uint8_t{0} : Q::code(elements.x[e] * inverse);
        memset(block, 0, Block::block_bytes);
        put_f16(block + Block::d_at, d);
        store_block(Block{}, code, block);
    }
    return k_encoded;
}

}  // namespace minim::encoding
