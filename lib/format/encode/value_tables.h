// SPDX-License-Identifier: Apache-2.0
// Encoders of formats whose sub-blocks have whole numbers as scales and codes for a table of values, or for one of two tables:
// Q3_K, Q6_K, IQ4_XS; IQ2_K … IQ6_K; IQ2_KS, IQ3_KS, IQ4_KS, IQ5_KS, whose rows share one d.
#pragma once

#include <cstring>

#include "format/encode/block_scales.h"
#include "format/encode/quantiser.h"
#include "format/encode/scale_search.h"
#include "format/encode/store_codes.h"
#include "format/iq2_k.h"
#include "format/iq3_k.h"
#include "format/iq4_k.h"
#include "format/iq4_ks.h"
#include "format/iq4_xs.h"
#include "format/iq5_k.h"
#include "format/iq6_k.h"
#include "format/q3_k.h"
#include "format/q6_k.h"

namespace minim::encoding {

template <class Q>
struct OneTable {
    using First = Q;
    using Second = Q;
    static constexpr int n = 1;
};

template <class A, class B>
struct TwoTables {
    using First = A;
    using Second = B;
    static constexpr int n = 2;
};

using Iq2kTables = TwoTables<TableValues<k_nearest_iq2k>, TableValues<k_nearest_iq2k_shifted>>;
using Iq3kTables = TwoTables<TableValues<k_nearest_iq3k>, TableValues<k_nearest_iq3k_shifted>>;
using Iq4kTables = TwoTables<TableValues<k_nearest_iq4k>, TableValues<k_nearest_iq4k_shifted>>;
using Iq5kTables = TwoTables<TableValues<k_nearest_iq5k>, TableValues<k_nearest_iq5k_shifted>>;
using Iq6kTables = TwoTables<TableValues<k_nearest_iq6k>, TableValues<k_nearest_iq6k_shifted>>;

// The sub-blocks of a row or block, `size` elements each.
template <class V, class Tables>
struct TableEvaluator {
    static constexpr int k_variants = Tables::n;
    const float* x;
    const float* u;
    const float* ux;
    int size;

    Elements elements(int64_t j) const { return {x + j * size, u + j * size, ux + j * size, size}; }
    Sums<V> at(int64_t j, int variant, typename V::F32 s) const {
        const auto inverse = inverse_or_zero<V>(s);
        if (variant == 0) return sums_of_nearest<V, typename Tables::First>(elements(j), inverse);
        return sums_of_nearest<V, typename Tables::Second>(elements(j), inverse);
    }
};

// Searches the scale of each of n sub-blocks alone, and which table suits it.
template <class V, class Tables>
void search_sub_blocks(const TableEvaluator<V, Tables>& evaluator, int64_t n, bool fast, float* s,
                       float* variant) {
    for (int64_t j = 0; j < n; ++j) {
        const ScaleFit first = search_scale<V, typename Tables::First>(evaluator.elements(j), fast);
        s[j] = first.s;
        variant[j] = 0.0F;
        if constexpr (Tables::n == 2) {
            const ScaleFit second = search_scale<V, typename Tables::Second>(evaluator.elements(j), fast);
            if (second.gain > first.gain) {
                s[j] = second.s;
                variant[j] = 1.0F;
            }
        }
    }
}

template <class V, class Tables>
void code_sub_blocks(const TableEvaluator<V, Tables>& evaluator, int64_t n, const BlockScales& scales,
                     uint8_t* code) {
    for (int64_t j = 0; j < n; ++j) {
        const Elements block = evaluator.elements(j);
        const float s = scales.d * scales.l[j];
        const float inverse = inverse_of(s);
        for (int64_t e = 0; e < block.count; ++e) {
            const float t = block.x[e] * inverse;
            uint8_t one = 0;
            if (s != 0.0F) one = scales.variant[j] == 0.0F ? Tables::First::code(t) : Tables::Second::code(t);
            code[j * block.count + e] = one;
        }
    }
}

// ---- the layouts: l as numbers, variants as bits ----

struct BlockCodes {
    const float* l;
    const float* variant;
    const uint8_t* code;

    MINIM_HOST_DEVICE int number(int j) const { return static_cast<int>(l[j]); }
    MINIM_HOST_DEVICE uint32_t bits_of_variants(int n) const {
        uint32_t bits = 0;
        for (int j = 0; j < n; ++j) bits |= static_cast<uint32_t>(variant[j]) << j;
        return bits;
    }
};

template <class V>
void store_block(Q3_K, const BlockCodes& b, uint8_t* block) {
    put_code2_of_128(b.code, 0, block + Q3_K::codes_at);
    put_code1_of_256(b.code, 2, block + Q3_K::high_at);
    for (int g = 0; g < 16; ++g) {
        const int scale = b.number(g) + 32;
        put_bits(block + Q3_K::scales_at + g % 8, scale & 15, g / 8 * 4);
        put_bits(block + Q3_K::scales_at + 8 + g % 4, scale >> 4, g / 4 * 2);
    }
}

template <class V>
void store_block(Q6_K, const BlockCodes& b, uint8_t* block) {
    for (int e = 0; e < 256; ++e) {
        put_bits(block + Q6_K::codes_at + e / 128 * 64 + e % 64, b.code[e] & 15, e % 128 / 64 * 4);
    }
    put_code2_of_128(b.code, 4, block + Q6_K::high_at);
    for (int g = 0; g < 16; ++g) block[Q6_K::scales_at + g] = static_cast<uint8_t>(b.number(g));
}

template <class V>
void store_block(IQ4_XS, const BlockCodes& b, uint8_t* block) {
    put_code4_of_32(b.code, 256, block + IQ4_XS::codes_at);
    uint32_t high = 0;
    for (int j = 0; j < 8; ++j) {
        const int scale = b.number(j) + 32;
        put_bits(block + IQ4_XS::low_at + j / 2, scale & 15, j % 2 * 4);
        high |= static_cast<uint32_t>(scale >> 4) << (2 * j);
    }
    put_u16(block + IQ4_XS::high_at, high);
}

template <class V>
void store_block(IQ2_K, const BlockCodes& b, uint8_t* block) {
    put_code2_of_128(b.code, 0, block + IQ2_K::codes_at);
    put_u16(block + IQ2_K::extra_at, b.bits_of_variants(16));
    for (int g = 0; g < 16; ++g) put_bits(block + IQ2_K::scales_at + g / 2, b.number(g) + 8, g % 2 * 4);
}

template <class V>
void store_block(IQ2_KS, const BlockCodes& b, uint8_t* block) {
    put_code2_of_128(b.code, 0, block + IQ2_KS::codes_at);
    uint32_t extra = b.bits_of_variants(8);
    for (int j = 0; j < 8; ++j) {
        const int scale = b.number(j) + 16;
        put_bits(block + IQ2_KS::scales_at + j / 2, scale & 15, j % 2 * 4);
        extra |= static_cast<uint32_t>(scale >> 4) << (8 + j);
    }
    put_u16(block + IQ2_KS::extra_at, extra);
}

template <class V>
void store_block(IQ3_K, const BlockCodes& b, uint8_t* block) {
    put_code2_of_128(b.code, 0, block + IQ3_K::codes_at);
    put_code1_of_256(b.code, 2, block + IQ3_K::high_at);
    put_u16(block + IQ3_K::extra_at, b.bits_of_variants(16));
    uint32_t signs = 0;
    for (int g = 0; g < 16; ++g) {
        const int scale = b.number(g);
        if (scale < 0) signs |= 1U << g;
        put_bits(block + IQ3_K::scales_at + g / 2, ((scale < 0 ? -scale : scale) - 1) / 2, g % 2 * 4);
    }
    put_u16(block + IQ3_K::signs_at, signs);
}

template <class V>
void store_block(IQ3_KS, const BlockCodes& b, uint8_t* block) {
    put_code2_of_128(b.code, 0, block + IQ3_KS::codes_at);
    put_code1_of_256(b.code, 2, block + IQ3_KS::high_at);
    uint32_t extra = b.bits_of_variants(8) << 8;
    for (int j = 0; j < 8; ++j) {
        const int scale = b.number(j) + 16;
        put_bits(block + IQ3_KS::scales_at + j % 4, scale & 15, j / 4 * 4);
        extra |= static_cast<uint32_t>(scale >> 4) << j;
    }
    put_u16(block + IQ3_KS::extra_at, extra);
}

// The scales of IQ4_K and IQ5_K.
template <class V>
void store_scales_of_6_bits(const BlockCodes& b, uint8_t* low, uint8_t* high) {
    for (int g = 0; g < 16; ++g) {
        const int scale = b.number(g) + 32;
        put_bits(low + g / 2, scale & 15, g % 2 * 4);
        put_bits(high + g / 4, scale >> 4, g % 4 * 2);
    }
}

template <class V>
void store_block(IQ4_K, const BlockCodes& b, uint8_t* block) {
    put_code4_of_32(b.code, 256, block + IQ4_K::codes_at);
    put_u16(block + IQ4_K::extra_at, b.bits_of_variants(16));
    store_scales_of_6_bits<V>(b, block + IQ4_K::low_at, block + IQ4_K::high_at);
}

template <class V>
void store_block(IQ5_K, const BlockCodes& b, uint8_t* block) {
    put_code4_of_64(b.code, block + IQ5_K::codes_at);
    put_code1_of_256(b.code, 4, block + IQ5_K::fifth_at);
    put_u16(block + IQ5_K::extra_at, b.bits_of_variants(16));
    store_scales_of_6_bits<V>(b, block + IQ5_K::low_at, block + IQ5_K::high_at);
}

template <class V>
void store_block(IQ6_K, const BlockCodes& b, uint8_t* block) {
    put_code4_of_64(b.code, block + IQ6_K::codes_at);
    put_code2_of_128(b.code, 4, block + IQ6_K::high_at);
    put_u16(block + IQ6_K::extra_at, b.bits_of_variants(16));
    for (int g = 0; g < 16; ++g) block[IQ6_K::scales_at + g] = static_cast<uint8_t>(b.number(g));
}

// The scale bytes of IQ4_KS and IQ5_KS.
template <class V>
uint8_t ks_scale_byte(const BlockCodes& b, int j) {
    return static_cast<uint8_t>((b.number(j) + 127) | static_cast<int>(b.variant[j]));
}

template <class V>
void store_block(IQ4_KS, const BlockCodes& b, uint8_t* block) {
    put_code4_of_32(b.code, 256, block + IQ4_KS::codes_at);
    for (int j = 0; j < 8; ++j) block[IQ4_KS::scales_at + j] = ks_scale_byte<V>(b, j);
}

template <class V>
void store_block(IQ5_KS, const BlockCodes& b, uint8_t* block) {
    put_code4_of_64(b.code, block + IQ5_KS::codes_at);
    put_code1_of_256(b.code, 4, block + IQ5_KS::fifth_at);
    for (int j = 0; j < 8; ++j) block[IQ5_KS::scales_at + j] = ks_scale_byte<V>(b, j);
}

// ---- blocks with a d of their own ----

template <class V, class Block, class Tables, class S, int size>
int64_t encode_table_blocks(const RowTask& row) {
    constexpr int n = 256 / size;
    uint8_t* block = row.out;
    for (int64_t at = 0; at < row.n_columns; at += 256, block += Block::block_bytes) {
        float ux[256];
        multiply(row.u + at, row.x + at, 256, ux);
        const TableEvaluator<V, Tables> evaluator{row.x + at, row.u + at, ux, size};
        // Keeps all sums finite.
        if (__builtin_fabsf(signed_peak_of(evaluator.x, 256)) > 65504.0F * 128.0F * 128.0F) return at;
        float s[n];
        float first_variant[n];
        search_sub_blocks(evaluator, n, row.fast, s, first_variant);
        float l[n];
        float variant[n];
        float spare[2 * n];
        BlockScales scales{0.0F, l, variant};
        if (!choose_block_scales<V, S>(evaluator, n, s, first_variant, StoredAsF16{1.0F}, row.fast, spare,
                                       scales))
            return at;
        uint8_t code[256];
        code_sub_blocks(evaluator, n, scales, code);
        memset(block, 0, Block::block_bytes);
        put_f16(block + Block::d_at, scales.d);
        store_block<V>(Block{}, BlockCodes{l, variant, code}, block);
    }
    return k_encoded;
}

// ---- rows with one d ----

// Returns the power of two that brings the row's peak into 1 … 2: squares of its elements neither overflow nor vanish.
MINIM_HOST_DEVICE float power_to_normalise(const float* x, int64_t count) {
    const uint32_t bits = float_to_bits(signed_peak_of(x, count));
    const uint32_t exponent = bits >> 23 & 255U;
    if (exponent == 0) return 0x1p126F;
    const uint32_t wanted = 254U - exponent;
    return bits_to_float((wanted > 0 ? wanted : 1U) << 23);
}

// Writes the d of a row of F32, which was fitted to elements times `power`. Rows with the largest numbers of F32 get a smaller one, so that
// decoded elements are finite.
MINIM_HOST_DEVICE void store_row_scale(float d, float power, uint8_t* to) {
    constexpr float k_largest = 3.4e38F / (127.0F * 127.0F);
    const float stored = clamped(d / power, -k_largest, k_largest);
    memcpy(to, &stored, sizeof(stored));
}

// The scratch memory of a row: numbers of elements, and of groups of 32.
struct RowScratch {
    float* x;
    float* ux;
    float* s;
    float* first_variant;
    float* l;
    float* variant;
    float* spare;  // two for each group
};

MINIM_HOST_DEVICE RowScratch scratch_of(const RowTask& row) {
    const int64_t n = row.n_columns / 32;
    float* groups = row.scratch + 2 * row.n_columns;
    return {row.scratch,   row.scratch + row.n_columns, groups, groups + n, groups + 2 * n, groups + 3 * n,
            groups + 4 * n};
}

template <class V, class Block, class Tables, class S>
int64_t encode_table_rows(const RowTask& row) {
    const int64_t n = row.n_columns / 32;
    const auto [x, ux, s, first_variant, l, variant, spare] = scratch_of(row);
    constexpr bool is_f32 = Block::row_header_bytes == 4;
    const float power = is_f32 ? power_to_normalise(row.x, row.n_columns) : 1.0F;
    for (int64_t i = 0; i < row.n_columns; ++i) x[i] = row.x[i] * power;
    multiply(row.u, x, row.n_columns, ux);
    const TableEvaluator<V, Tables> evaluator{x, row.u, ux, 32};
    if (__builtin_fabsf(signed_peak_of(x, row.n_columns)) > 65504.0F * 128.0F * 128.0F) return 0;
    search_sub_blocks(evaluator, n, row.fast, s, first_variant);
    BlockScales scales{0.0F, l, variant};
    if constexpr (is_f32) {
        choose_block_scales<V, S>(evaluator, n, s, first_variant, StoredAsF32{}, row.fast, spare, scales);
        store_row_scale(scales.d, power, row.out);
    } else {
        if (!choose_block_scales<V, S>(evaluator, n, s, first_variant, StoredAsF16{1.0F}, row.fast, spare,
                                       scales))
            return 0;
        put_f16(row.out, scales.d);
    }
    uint8_t* block = row.out + Block::row_header_bytes;
    for (int64_t at = 0; at < row.n_columns; at += 256, block += Block::block_bytes) {
        const int64_t j = at / 32;
        const TableEvaluator<V, Tables> part{x + at, row.u + at, ux + at, 32};
        uint8_t code[256];
        code_sub_blocks(part, 8, BlockScales{scales.d, l + j, variant + j}, code);
        memset(block, 0, Block::block_bytes);
        store_block<V>(Block{}, BlockCodes{l + j, variant + j, code}, block);
    }
    return k_encoded;
}

}  // namespace minim::encoding
