// SPDX-License-Identifier: Apache-2.0
// Encoders of the ik formats whose codes are not free for each element: IQ4_KSS, where each four codes have an even number of set bits,
// and IQ2_KL, where codes stand for pairs. Their rows share one d, as in value_tables.h.
#pragma once

#include <cstring>

#include "format/encode/block_scales.h"
#include "format/encode/quantiser.h"
#include "format/encode/store_codes.h"
#include "format/encode/value_tables.h"
#include "format/iq2_kl.h"
#include "format/iq4_ks.h"

namespace minim::encoding {

// ---- IQ4_KSS ----

// For each half unit from -128 up (quantiser.h): the nearest table value, and the nearest of those whose codes have an odd number of set
// bits where that has an even one, or the reverse.
struct ParityValues {
    float value[512];
    float other[512];
    float sign[512];  // -1: the code of the nearest value has an odd number of set bits; else 1
    uint8_t code[512];
    uint8_t other_code[512];
};

constexpr bool has_odd_bits(int code) {
    return ((code ^ code >> 1 ^ code >> 2 ^ code >> 3) & 1) != 0;
}

constexpr ParityValues parity_values(const int8_t* values) {
    ParityValues table{};
    for (int i = 0; i < 512; ++i) {
        const int twice = 2 * (i - 256) + 1;  // four times the middle of the half unit
        int best[2] = {-1, -1};
        for (int code = 0; code < 16; ++code) {
            int& one = best[has_odd_bits(code) ? 1 : 0];
            const int distance = 4 * values[code] - twice;
            const int least = one < 0 ? 1 << 14 : 4 * values[one] - twice;
            if (distance * distance < least * least || one < 0) one = code;
        }
        const int even = 4 * values[best[0]] - twice;
        const int odd = 4 * values[best[1]] - twice;
        const bool is_odd = odd * odd < even * even;
        const int nearest = best[is_odd ? 1 : 0];
        const int other = best[is_odd ? 0 : 1];
        table.value[i] = values[nearest];
        table.other[i] = values[other];
        table.sign[i] = is_odd ? -1.0F : 1.0F;
        table.code[i] = static_cast<uint8_t>(nearest);
        table.other_code[i] = static_cast<uint8_t>(other);
    }
    return table;
}

inline constexpr ParityValues k_parity_iq4k[2] = {parity_values(codebooks::k_iq4k.data),
                                                  parity_values(codebooks::k_iq4k.data + 16)};

// Element i (0 … 3) of word k of a group of 32.
MINIM_HOST_DEVICE int element_of_word(int k, int i) {
    return 2 * k + i % 2 + i / 2 * 16;
}

template <class V>
struct ParityEvaluator {
    static constexpr int k_variants = 2;
    const float* x;
    const float* u;
    const float* ux;

    // Takes the nearest value of each element, and in a word with an odd number of set bits the other value where that costs least.
    Sums<V> at(int64_t j, int variant, typename V::F32 s) const {
        const ParityValues& table = k_parity_iq4k[variant];
        const auto inverse = inverse_or_zero<V>(s);
        const auto zero = V::all(0.0F);
        const auto two_s = V::add(s, s);
        const auto ss = V::mul(s, s);
        Sums<V> sums{zero, zero};
        for (int k = 0; k < 8; ++k) {
            auto sign = V::all(1.0F);
            auto least = V::all(3e38F);
            auto cross = zero;
            auto square = zero;
            for (int i = 0; i < 4; ++i) {
                const int64_t e = 32 * j + element_of_word(k, i);
                const auto t = V::mul(V::all(x[e]), inverse);
                const auto inside = V::min(V::max(t, V::all(-128.0F)), V::all(127.5F));
                const auto index = V::mul(V::add(inside, V::all(128.0F)), V::all(2.0F));
                const auto q = V::lookup(table.value, index);
                const auto other = V::lookup(table.other, index);
                sign = V::mul(sign, V::lookup(table.sign, index));
                sums.cross = V::add(sums.cross, V::mul(V::all(ux[e]), q));
                sums.square = V::add(sums.square, V::mul(V::mul(V::all(u[e]), q), q));
                const auto more_cross = V::mul(V::all(ux[e]), V::sub(other, q));
                const auto more_square = V::mul(V::all(u[e]), V::sub(V::mul(other, other), V::mul(q, q)));
                const auto cost = V::sub(V::mul(ss, more_square), V::mul(two_s, more_cross));
                cross = V::if_less(cost, least, more_cross, cross);
                square = V::if_less(cost, least, more_square, square);
                least = V::min(cost, least);
            }
            sums.cross = V::add(sums.cross, V::if_less(sign, zero, cross, zero));
            sums.square = V::add(sums.square, V::if_less(sign, zero, square, zero));
        }
        return sums;
    }
};

// Writes the codes of a group of 32 elements for a scale.
template <class V>
void code_with_parity(const float* x, const float* u, float s, int variant, uint8_t* code) {
    const ParityValues& table = k_parity_iq4k[variant];
    const float inverse = inverse_of(s);
    for (int k = 0; k < 8; ++k) {
        bool is_odd = false;
        float least = 3e38F;
        int flipped = 0;
        for (int i = 0; i < 4; ++i) {
            const int e = element_of_word(k, i);
            const int index = half_unit(x[e] * inverse);
            code[e] = table.code[index];
            if (table.sign[index] < 0.0F) is_odd = !is_odd;
            const float nearest = x[e] - s * table.value[index];
            const float other = x[e] - s * table.other[index];
            const float cost = u[e] * (other * other - nearest * nearest);
            if (cost < least) {
                least = cost;
                flipped = e;
            }
        }
        if (is_odd) code[flipped] = table.other_code[half_unit(x[flipped] * inverse)];
    }
}

// Writes a group: each word is such that w xor (w >> 1) is four codes, and its bit 0, which is free, one bit of the scale byte.
template <class V>
void store_kss_group(const uint8_t* code, int scale_byte, uint8_t* words) {
    for (int k = 0; k < 8; ++k) {
        uint32_t pair = 0;
        for (int i = 0; i < 4; ++i) {
            const int place = 8 * (i % 2) + 4 * (i / 2);
            pair |= static_cast<uint32_t>(code[element_of_word(k, i)]) << place;
        }
        // The inverse of w xor (w >> 1): each bit is the parity of the bits from it up.
        uint32_t word = pair ^ pair >> 1;
        word ^= word >> 2;
        word ^= word >> 4;
        word ^= word >> 8;
        put_u16(words + 2 * k, (word & 0xFFFEU) | static_cast<uint32_t>(scale_byte >> k & 1));
    }
}

template <class V>
int64_t encode_iq4_kss(const RowTask& row) {
    const int64_t n = row.n_columns / 32;
    const RowScratch scratch = scratch_of(row);
    const float power = power_to_normalise(row.x, row.n_columns);
    for (int64_t i = 0; i < row.n_columns; ++i) scratch.x[i] = row.x[i] * power;
    multiply(row.u, scratch.x, row.n_columns, scratch.ux);
    const TableEvaluator<V, Iq4kTables> free_codes{scratch.x, row.u, scratch.ux, 32};
    search_sub_blocks(free_codes, n, row.fast, scratch.s, scratch.first_variant);
    const ParityEvaluator<V> evaluator{scratch.x, row.u, scratch.ux};
    BlockScales scales{0.0F, scratch.l, scratch.variant};
    choose_block_scales<V, OddScales<-127, 127>>(evaluator, n, scratch.s, scratch.first_variant,
                                                 StoredAsF32{}, row.fast, scratch.spare, scales);
    store_row_scale(scales.d, power, row.out);
    for (int64_t j = 0; j < n; ++j) {
        const int variant = static_cast<int>(scales.variant[j]);
        uint8_t code[32];
        code_with_parity<V>(scratch.x + 32 * j, row.u + 32 * j, scales.d * scales.l[j], variant, code);
        const int scale_byte = (static_cast<int>(scales.l[j]) + 127) | variant;
        store_kss_group<V>(code, scale_byte, row.out + IQ4_KSS::row_header_bytes + 16 * j);
    }
    return k_encoded;
}

// ---- IQ2_KL ----

inline constexpr int k_pairs = 32;

// The cross and square sums of each pair of a group with each entry.
struct PairSums {
    float cross[16][k_pairs];
    float square[16][k_pairs];
};

template <class V>
void sums_of_pairs(const float* u, const float* ux, PairSums& sums) {
    for (int p = 0; p < 16; ++p) {
        for (int entry = 0; entry < k_pairs; ++entry) {
            const auto a = static_cast<float>(iq2kl_values()[2 * entry]);
            const auto b = static_cast<float>(iq2kl_values()[2 * entry + 1]);
            sums.cross[p][entry] = ux[2 * p] * a + ux[2 * p + 1] * b;
            sums.square[p][entry] = u[2 * p] * a * a + u[2 * p + 1] * b * b;
        }
    }
}

template <class V>
Sums<V> best_pairs(const PairSums& pairs, typename V::F32 s) {
    const auto zero = V::all(0.0F);
    const auto two_s = V::add(s, s);
    const auto ss = V::mul(s, s);
    Sums<V> sums{zero, zero};
    for (int p = 0; p < 16; ++p) {
        auto least = V::all(3e38F);
        auto cross = zero;
        auto square = zero;
        for (int entry = 0; entry < k_pairs; ++entry) {
            const auto entry_cross = V::all(pairs.cross[p][entry]);
            const auto entry_square = V::all(pairs.square[p][entry]);
            const auto cost = V::sub(V::mul(ss, entry_square), V::mul(two_s, entry_cross));
            cross = V::if_less(cost, least, entry_cross, cross);
            square = V::if_less(cost, least, entry_square, square);
            least = V::min(cost, least);
        }
        sums.cross = V::add(sums.cross, cross);
        sums.square = V::add(sums.square, square);
    }
    return sums;
}

template <class V>
struct PairEvaluator {
    static constexpr int k_variants = 1;
    const float* u;
    const float* ux;

    Sums<V> at(int64_t j, int /*variant*/, typename V::F32 s) const {
        PairSums pairs;
        sums_of_pairs<V>(u + 32 * j, ux + 32 * j, pairs);
        return best_pairs<V>(pairs, s);
    }
};

inline constexpr float k_pair_fractions[16] = {0.60F, 0.66F, 0.71F, 0.75F, 0.79F, 0.82F, 0.85F, 0.88F,
                                               0.91F, 0.94F, 0.97F, 1.00F, 1.04F, 1.09F, 1.16F, 1.25F};

// Searches the scale of a group alone, with either sign.
template <class V>
float search_pair_scale(const float* x, const float* u, const float* ux, bool fast) {
    const float peak = __builtin_fabsf(signed_peak_of(x, 32));
    if (peak == 0.0F) return 0.0F;
    PairSums pairs;
    sums_of_pairs<V>(u, ux, pairs);
    float best = 0.0F;
    float gain = 0.0F;
    for (const float sign : {-1.0F, 1.0F}) {
        for (int k = 0; k < 16; k += 8) {
            // Fast: every other fraction.
            float fractions[8];
            for (int i = 0; i < 8; ++i) fractions[i] = k_pair_fractions[fast ? 2 * i : k + i];
            if (fast && k > 0) break;
            const auto s = V::mul(V::load(fractions), V::all(sign * peak / 63.0F));
            const Sums<V> sums = best_pairs<V>(pairs, s);
            const auto has_square = V::if_less(V::all(0.0F), sums.square, sums.square, V::all(1.0F));
            const auto fitted = V::div(sums.cross, has_square);
            float least;
            const int lane = least_lane<V>(V::sub(V::all(0.0F), V::mul(fitted, sums.cross)), least);
            if (!(-least > gain)) continue;
            gain = -least;
            best = one_lane<V>(fitted, lane);
        }
    }
    return best;
}

template <class V>
int64_t encode_iq2_kl(const RowTask& row) {
    const int64_t n = row.n_columns / 32;
    const RowScratch scratch = scratch_of(row);
    if (__builtin_fabsf(signed_peak_of(row.x, row.n_columns)) > 65504.0F * 64.0F * 64.0F) return 0;
    multiply(row.u, row.x, row.n_columns, scratch.ux);
    for (int64_t j = 0; j < n; ++j) {
        scratch.s[j] = search_pair_scale<V>(row.x + 32 * j, row.u + 32 * j, scratch.ux + 32 * j, row.fast);
        scratch.first_variant[j] = 0.0F;
    }
    const PairEvaluator<V> evaluator{row.u, scratch.ux};
    BlockScales scales{0.0F, scratch.l, scratch.variant};
    if (!choose_block_scales<V, WholeScales<-32, 31>>(evaluator, n, scratch.s, scratch.first_variant,
                                                      StoredAsF16{1.0F}, row.fast, scratch.spare, scales)) {
        return 0;
    }
    put_f16(row.out, scales.d);
    uint8_t* block = row.out + IQ2_KL::row_header_bytes;
    for (int64_t at = 0; at < row.n_columns; at += 256, block += IQ2_KL::block_bytes) {
        memset(block, 0, IQ2_KL::block_bytes);
        uint32_t high = 0;
        for (int j = 0; j < 8; ++j) {
            const int64_t first = at + 32 * j;
            const int l = static_cast<int>(scales.l[first / 32]);
            const float s = scales.d * scales.l[first / 32];
            PairSums pairs;
            sums_of_pairs<V>(row.u + first, scratch.ux + first, pairs);
            for (int p = 0; p < 16; ++p) {
                int best = 0;
                float least = 3e38F;
                for (int entry = 0; entry < k_pairs; ++entry) {
                    const float cost = s * s * pairs.square[p][entry] - 2.0F * s * pairs.cross[p][entry];
                    if (cost < least) {
                        least = cost;
                        best = entry;
                    }
                }
                put_bits(block + IQ2_KL::codes_at + j / 2 * 16 + p, best & 15, j % 2 * 4);
                put_bits(block + IQ2_KL::fifth_at + p, best >> 4, j);
            }
            put_bits(block + IQ2_KL::low_at + j % 4, (l + 32) & 15, j / 4 * 4);
            high |= static_cast<uint32_t>((l + 32) >> 4) << (2 * j);
        }
        put_u16(block + IQ2_KL::high_at, high);
    }
    return k_encoded;
}

}  // namespace minim::encoding
