// SPDX-License-Identifier: Apache-2.0
// Encoders of formats with scales and minima: Q4_1 and Q5_1; Q2_K, Q4_K and Q5_K, whose sub-blocks have whole numbers l and k under
// d and dmin of the block: y = d l q - dmin k.
#pragma once

#include <cstring>

#include "format/encode/minimum_search.h"
#include "format/encode/quantiser.h"
#include "format/encode/store_codes.h"
#include "format/q2_k.h"
#include "format/q4_0.h"
#include "format/q4_k.h"
#include "format/q5_0.h"
#include "format/q5_k.h"

namespace minim::encoding {

MINIM_HOST_DEVICE void store_block(Q4_1, const uint8_t* code, uint8_t* block) {
    put_code4_of_32(code, 32, block + Q4_1::codes_at);
}

MINIM_HOST_DEVICE void store_block(Q5_1, const uint8_t* code, uint8_t* block) {
    put_code4_of_32(code, 32, block + Q5_1::codes_at);
    for (int e = 0; e < 32; ++e) put_bits(block + Q5_1::high_at + e / 8, code[e] >> 4, e % 8);
}

template <class V, class Block, int top>
int64_t encode_blocks_with_minimum(const RowTask& row) {
    uint8_t* block = row.out;
    for (int64_t at = 0; at < row.n_columns; at += 32, block += Block::block_bytes) {
        float ux[32];
        multiply(row.u + at, row.x + at, 32, ux);
        const Elements elements{row.x + at, row.u + at, ux, 32};
        // Rounded magnitudes and twice this range must be finite F16 numbers.
        if (__builtin_fabsf(signed_peak_of(elements.x, 32)) > 32752.0F) return at;
        const MinimumFit fit = search_minimum<V, top>(elements, true, row.fast);
        const float inverse = inverse_of(fit.s);
        uint8_t code[32];
        for (int e = 0; e < 32; ++e) {
            code[e] = WholeNumbers<0, top>::code((elements.x[e] + fit.m) * inverse);
        }
        memset(block, 0, Block::block_bytes);
        put_f16(block + Block::d_at, fit.s);
        put_f16(block + Block::m_at, -fit.m);
        store_block(Block{}, code, block);
    }
    return k_encoded;
}

// ---- blocks of 256 ----

// Fits of n sub-blocks, and the numbers chosen for them.
template <int n>
struct KBlock {
    Elements part[n];
    float sum_u[n];
    float sum_ux[n];
};

template <int n>
struct KScales {
    float d;
    float dmin;
    float l[n];
    float k[n];
};

inline constexpr float k_d_fractions[16] = {0.955F, 0.955F, 0.955F, 0.985F, 0.985F, 0.985F, 1.0F,  1.0F,
                                            1.0F,   1.0F,   1.02F,  1.02F,  1.02F,  1.05F,  1.05F, 1.05F};
inline constexpr float k_dmin_fractions[16] = {0.96F, 1.0F,  1.04F, 0.96F, 1.0F,  1.04F, 0.94F, 0.98F,
                                               1.0F,  1.03F, 0.96F, 1.0F,  1.04F, 0.96F, 1.0F,  1.04F};
// Pairs of neighbours: the number of the scale, and that of the minimum.
inline constexpr float k_l_steps[16] = {-1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2};
inline constexpr float k_k_steps[16] = {-2, -1, 0, 1, 2, -2, -1, 0, 1, 2, -2, -1, 0, 1, 2, 0};

// Tries the neighbours of all sub-blocks' numbers and keeps the best of each. Returns the error, and in d and dmin the best for the
// codes.
template <class V, int n, int top, int largest>
float choose_k_numbers(const KBlock<n>& block, const KScales<n>& from, KScales<n>& to) {
    float error = 0.0F;
    float ll = 0.0F, lk = 0.0F, kk = 0.0F, lx = 0.0F, kx = 0.0F;
    for (int j = 0; j < n; ++j) {
        float least = 0.0F;
        float qq = 0.0F, q = 0.0F, qx = 0.0F;
        for (int half = 0; half < 2; ++half) {
            const auto zero = V::all(0.0F);
            const auto most = V::all(static_cast<float>(largest));
            const auto l =
                V::min(V::max(V::add(V::all(from.l[j]), V::load(k_l_steps + 8 * half)), zero), most);
            const auto k =
                V::min(V::max(V::add(V::all(from.k[j]), V::load(k_k_steps + 8 * half)), zero), most);
            const auto s = V::mul(V::all(from.d), l);
            const auto m = V::mul(V::all(from.dmin), k);
            const auto sums = sums_of_codes<V, top>(block.part[j], inverse_or_zero<V>(s), m);
            float least_of_half;
            const int lane = least_lane<V>(error_with_minimum<V>(sums, block.sum_u[j], block.sum_ux[j], s, m),
                                           least_of_half);
            if (half > 0 && !(least_of_half < least)) continue;
            least = least_of_half;
            to.l[j] = one_lane<V>(l, lane);
            to.k[j] = one_lane<V>(k, lane);
            qq = one_lane<V>(sums.qq, lane);
            q = one_lane<V>(sums.q, lane);
            qx = one_lane<V>(sums.qx, lane);
        }
        error += least;
        ll += to.l[j] * to.l[j] * qq;
        lk += to.l[j] * to.k[j] * q;
        kk += to.k[j] * to.k[j] * block.sum_u[j];
        lx += to.l[j] * qx;
        kx += to.k[j] * block.sum_ux[j];
    }
    // d ll - dmin lk = lx and d lk - dmin kk = kx.
    const float determinant = ll * kk - lk * lk;
    to.d = from.d;
    to.dmin = from.dmin;
    if (determinant > 1e-5F * ll * kk) {
        to.d = (lx * kk - kx * lk) / determinant;
        to.dmin = (lx * lk - kx * ll) / determinant;
    } else if (kk == 0.0F && ll > 0.0F) {
        to.d = lx / ll;
    }
    return error;
}

// Chooses d, dmin and the numbers from the fits of the sub-blocks. Returns false if they exceed F16.
template <class V, int n, int top, int largest>
bool choose_k_scales(const KBlock<n>& block, const MinimumFit* fit, bool fast, KScales<n>& best) {
    float largest_s = 0.0F;
    float largest_m = 0.0F;
    for (int j = 0; j < n; ++j) {
        largest_s = fit[j].s > largest_s ? fit[j].s : largest_s;
        largest_m = fit[j].m > largest_m ? fit[j].m : largest_m;
    }
    const auto most = static_cast<float>(largest);
    if (!(largest_s / most <= 65504.0F) || !(largest_m / most <= 65504.0F)) return false;
    float lane_d[16];
    float lane_dmin[16];
    float lane_error[16];
    for (int half = 0; half < 2; ++half) {
        const auto d = V::round_to_f16(V::mul(V::load(k_d_fractions + 8 * half), V::all(largest_s / most)));
        const auto dmin =
            V::round_to_f16(V::mul(V::load(k_dmin_fractions + 8 * half), V::all(largest_m / most)));
        const auto inverse_d = inverse_or_zero<V>(d);
        const auto inverse_dmin = inverse_or_zero<V>(dmin);
        auto error = V::all(0.0F);
        for (int j = 0; j < n; ++j) {
            const auto s = V::mul(d, V::round(V::min(V::mul(V::all(fit[j].s), inverse_d), V::all(most))));
            const auto m =
                V::mul(dmin, V::round(V::min(V::mul(V::all(fit[j].m), inverse_dmin), V::all(most))));
            const auto sums = sums_of_codes<V, top>(block.part[j], inverse_or_zero<V>(s), m);
            error = V::add(error, error_with_minimum<V>(sums, block.sum_u[j], block.sum_ux[j], s, m));
        }
        V::store(lane_d + 8 * half, d);
        V::store(lane_dmin + 8 * half, dmin);
        V::store(lane_error + 8 * half, error);
    }
    float least = 0.0F;
    const int n_starts = fast ? 1 : 2;
    for (int start = 0; start < n_starts; ++start) {
        int lane = 0;
        for (int i = 1; i < 16; ++i) {
            if (lane_error[i] < lane_error[lane]) lane = i;
        }
        if (!(lane_error[lane] < 0.0F) || lane_d[lane] > 65504.0F || lane_dmin[lane] > 65504.0F) break;
        lane_error[lane] = 0.0F;
        KScales<n> now{};
        now.d = lane_d[lane];
        now.dmin = lane_dmin[lane];
        for (int j = 0; j < n; ++j) {
            now.l[j] = clamped(round_to_even(fit[j].s * inverse_of(now.d)), 0.0F, most);
            now.k[j] = clamped(round_to_even(fit[j].m * inverse_of(now.dmin)), 0.0F, most);
        }
        if (fast) {
            best = now;
            break;
        }
        for (int round = 0; round < 3; ++round) {
            KScales<n> next{};
            const float error = choose_k_numbers<V, n, top, largest>(block, now, next);
            const float d = f16_to_float(float_to_f16(next.d));
            const float dmin = f16_to_float(float_to_f16(next.dmin));
            if (error < least) {
                least = error;
                best = next;
                best.d = now.d;
                best.dmin = now.dmin;
            } else if (round > 0) {
                break;
            }
            if (!(d >= 0.0F && d <= 65504.0F && dmin >= 0.0F && dmin <= 65504.0F)) break;
            if (d == now.d && dmin == now.dmin) break;
            now = next;
            now.d = d;
            now.dmin = dmin;
        }
    }
    return true;
}

template <class V>
void store_scales_and_codes(Q2_K, const KScales<16>& scales, const uint8_t* code, uint8_t* block) {
    put_code2_of_128(code, 0, block + Q2_K::codes_at);
    for (int g = 0; g < 16; ++g) {
        block[Q2_K::scales_at + g] =
            static_cast<uint8_t>(static_cast<int>(scales.l[g]) | static_cast<int>(scales.k[g]) << 4);
    }
}

// The 12 bytes of scales of Q4_K and Q5_K (q4_k.h).
template <class V>
void store_k_scales(const KScales<8>& scales, uint8_t* to) {
    for (int j = 0; j < 4; ++j) {
        const int upper_l = static_cast<int>(scales.l[j + 4]);
        const int upper_k = static_cast<int>(scales.k[j + 4]);
        to[j] = static_cast<uint8_t>(static_cast<int>(scales.l[j]) | upper_l >> 4 << 6);
        to[j + 4] = static_cast<uint8_t>(static_cast<int>(scales.k[j]) | upper_k >> 4 << 6);
        to[j + 8] = static_cast<uint8_t>((upper_l & 15) | (upper_k & 15) << 4);
    }
}

template <class V>
void store_scales_and_codes(Q4_K, const KScales<8>& scales, const uint8_t* code, uint8_t* block) {
    put_code4_of_64(code, block + Q4_K::codes_at);
    store_k_scales<V>(scales, block + Q4_K::scales_at);
}

template <class V>
void store_scales_and_codes(Q5_K, const KScales<8>& scales, const uint8_t* code, uint8_t* block) {
    put_code4_of_64(code, block + Q5_K::codes_at);
    put_code1_of_256(code, 4, block + Q5_K::high_at);
    store_k_scales<V>(scales, block + Q5_K::scales_at);
}

template <class V, class Block, int n, int top, int largest>
int64_t encode_k_blocks(const RowTask& row) {
    constexpr int size = 256 / n;
    uint8_t* block = row.out;
    for (int64_t at = 0; at < row.n_columns; at += 256, block += Block::block_bytes) {
        if (__builtin_fabsf(signed_peak_of(row.x + at, 256)) > 65504.0F * 64.0F * 32.0F) return at;
        float ux[256];
        multiply(row.u + at, row.x + at, 256, ux);
        KBlock<n> parts{};
        MinimumFit fit[n];
        for (int j = 0; j < n; ++j) {
            Elements& part = parts.part[j];
            part = {row.x + at + j * size, row.u + at + j * size, ux + j * size, size};
            parts.sum_u[j] = 0.0F;
            parts.sum_ux[j] = 0.0F;
            for (int e = 0; e < size; ++e) {
                parts.sum_u[j] += part.u[e];
                parts.sum_ux[j] += part.ux[e];
            }
            fit[j] = search_minimum<V, top>(part, false, row.fast);
        }
        KScales<n> scales{};
        if (!choose_k_scales<V, n, top, largest>(parts, fit, row.fast, scales)) return at;
        uint8_t code[256];
        for (int e = 0; e < 256; ++e) {
            const float m = scales.dmin * scales.k[e / size];
            code[e] =
                WholeNumbers<0, top>::code((row.x[at + e] + m) * inverse_of(scales.d * scales.l[e / size]));
        }
        memset(block, 0, Block::block_bytes);
        put_f16(block + Block::d_at, scales.d);
        put_f16(block + Block::dmin_at, scales.dmin);
        store_scales_and_codes<V>(Block{}, scales, code, block);
    }
    return k_encoded;
}

}  // namespace minim::encoding
