// SPDX-License-Identifier: Apache-2.0
// Encoders of the codebook of -1, 0, 1 with a shift of 1/8 up or down: IQ1_S, which shifts 32 elements alike, and IQ1_M, which shifts
// each 8. With a shift, p = sum u x g + shift sum u x and q = sum u g^2 + 2 shift sum u g + shift^2 sum u (grid_search.h).
#pragma once

#include <cstring>

#include "format/encode/block_scales.h"
#include "format/encode/grid_search.h"
#include "format/encode/grids.h"
#include "format/encode/store_codes.h"
#include "format/iq1_m.h"
#include "format/iq1_s.h"

namespace minim::encoding {

inline constexpr int k_signed_entries = 2048;

// Fractions of the scale that puts the largest element on 1 + 1/8. More of them would change little: with full effort most of the time is
// that of sums_of_shifted, and block_scales.h fits the scales.
inline constexpr int k_signed_scales = 8;
inline constexpr float k_signed_fractions[k_signed_scales] = {0.32F, 0.40F, 0.48F, 0.56F,
                                                              0.65F, 0.75F, 0.88F, 1.00F};

// Computes p and q of all entries, shifted up, then of all entries shifted down.
template <class V>
void sums_of_shifted(const float* u, const float* ux, float* p, float* q) {
    float sum_u = 0.0F;
    float sum_ux = 0.0F;
    for (int i = 0; i < 8; ++i) {
        sum_u += u[i];
        sum_ux += ux[i];
    }
    const auto shift = V::all(k_iq1_shift);
    const auto shift_p = V::all(k_iq1_shift * sum_ux);
    const auto shift_q = V::all(k_iq1_shift * k_iq1_shift * sum_u);
    for (int entry = 0; entry < k_signed_entries; entry += 8) {
        auto sum_p = V::all(0.0F);
        auto sum_q = V::all(0.0F);
        auto sum_ug = V::all(0.0F);
        for (int i = 0; i < 8; ++i) {
            const auto g = V::load(k_iq1s_columns.value[i] + entry);
            const auto ug = V::mul(V::all(u[i]), g);
            sum_p = V::add(sum_p, V::mul(V::all(ux[i]), g));
            sum_q = V::add(sum_q, V::mul(ug, g));
            sum_ug = V::add(sum_ug, ug);
        }
        const auto cross = V::mul(V::add(sum_ug, sum_ug), shift);
        const auto base = V::add(sum_q, shift_q);
        V::store(p + entry, V::add(sum_p, shift_p));
        V::store(q + entry, V::add(base, cross));
        V::store(p + k_signed_entries + entry, V::sub(sum_p, shift_p));
        V::store(q + k_signed_entries + entry, V::sub(base, cross));
    }
}

// The candidates of a block. IQ1_S has a list for each shift, and a part chooses one; IQ1_M has one list with both.
template <class V, bool shift_by_group>
struct SignedBlock {
    static constexpr int k_variants = shift_by_group ? 1 : 2;
    static constexpr int k_parts = shift_by_group ? 16 : 8;
    static constexpr int k_groups = 32 / k_parts;
    Candidates candidates[32][k_variants];  // an index of k_signed_entries or more: shifted down

    Sums<V> at(int64_t part, int variant, typename V::F32 s) const {
        Sums<V> sums{V::all(0.0F), V::all(0.0F)};
        const int first = static_cast<int>(part) * k_groups;
        for (int g = first; g < first + k_groups; ++g) {
            const BestCandidate<V> best = best_candidate<V>(candidates[g][variant], k_signed_scales, s);
            sums.cross = V::add(sums.cross, best.p);
            sums.square = V::add(sums.square, best.q);
        }
        return sums;
    }
};

// Fills in the candidates of a group for k_signed_scales scales: entries near its elements.
template <class V, bool shift_by_group>
void find_near_shifted(const GridNeighbours& near, const float* x, const float* u, const float* ux,
                       typename V::F32 s, Candidates* lists) {
    const auto find = [&](float shift) {
        return near_shifted_entries<V>(k_iq1s_columns, near, x, u, ux, shift, s);
    };
    NearEntries<V> up = find(k_iq1_shift);
    NearEntries<V> down = find(-k_iq1_shift);
    if constexpr (shift_by_group) {
        up.compare(s, down.p, down.q, V::add(down.index, V::all(k_signed_entries)));
    } else {
        down.store(lists[1], k_signed_entries);
    }
    up.store(lists[0], 0);
}

template <class V, bool shift_by_group>
void search_signed_block(const float* x, const float* u, const GridNeighbours* near,
                         SignedBlock<V, shift_by_group>& block, float* s, float* variant) {
    using Block = SignedBlock<V, shift_by_group>;
    for (int part = 0; part < Block::k_parts; ++part) {
        constexpr int size = 8 * Block::k_groups;
        const float peak = __builtin_fabsf(signed_peak_of(x + part * size, size));
        float scales[k_signed_scales];
        for (int k = 0; k < k_signed_scales; ++k) {
            scales[k] = peak > 0.0F ? k_signed_fractions[k] * peak / (1.0F + k_iq1_shift) : 1.0F;
        }
        for (int g = part * Block::k_groups; g < (part + 1) * Block::k_groups; ++g) {
            float ux[8];
            multiply(u + 8 * g, x + 8 * g, 8, ux);
            if (near != nullptr) {
                find_near_shifted<V, shift_by_group>(*near, x + 8 * g, u + 8 * g, ux, V::load(scales),
                                                     block.candidates[g]);
                continue;
            }
            alignas(32) float p[2 * k_signed_entries];
            alignas(32) float q[2 * k_signed_entries];
            sums_of_shifted<V>(u + 8 * g, ux, p, q);
            constexpr int n = 2 * k_signed_entries / Block::k_variants;
            for (int list = 0; list < Block::k_variants; ++list) {
                Candidates& candidates = block.candidates[g][list];
                best_entries<V>(p + list * n, q + list * n, n, scales, k_signed_scales, candidates);
                for (int k = 0; k < k_signed_scales; ++k) candidates.index[k] += list * n;
            }
        }
        s[part] = 0.0F;
        variant[part] = 0.0F;
        float gain = 0.0F;
        for (int list = 0; list < Block::k_variants; ++list) {
            const Sums<V> sums = block.at(part, list, V::load(scales));
            const auto fitted = V::div(sums.cross, sums.square);
            float least;
            const int lane = least_lane<V>(V::sub(V::all(0.0F), V::mul(fitted, sums.cross)), least);
            const float lane_s = one_lane<V>(fitted, lane);
            if (!(-least > gain) || lane_s < 0.0F) continue;
            gain = -least;
            s[part] = lane_s;
            variant[part] = static_cast<float>(list);
        }
    }
}

// Writes the index of each group's entry, k_signed_entries more if it is shifted down.
template <class V, bool shift_by_group>
void choose_signed_entries(const SignedBlock<V, shift_by_group>& block, const BlockScales& scales,
                           int32_t* index) {
    for (int g = 0; g < 32; ++g) {
        const int part = g / SignedBlock<V, shift_by_group>::k_groups;
        const Candidates& candidates = block.candidates[g][static_cast<int>(scales.variant[part])];
        float cost;
        const int best = best_candidate_for(candidates, k_signed_scales, scales.d * scales.l[part], cost);
        index[g] = candidates.index[best];
    }
}

template <class V>
void store_signed(IQ1_S, const int32_t* index, const float* l, float d, uint8_t* block) {
    put_f16(block + IQ1_S::d_at, d);
    for (int j = 0; j < 8; ++j) {
        uint32_t group = static_cast<uint32_t>(half_of_odd(l[j])) << 12;
        for (int k = 0; k < 4; ++k) {
            const int32_t entry = index[4 * j + k] % k_signed_entries;
            block[IQ1_S::low_at + 4 * j + k] = static_cast<uint8_t>(entry);
            group |= static_cast<uint32_t>(entry >> 8) << (3 * k);
        }
        if (index[4 * j] >= k_signed_entries) group |= 0x8000U;
        put_u16(block + IQ1_S::groups_at + 2 * j, group);
    }
}

template <class V>
void store_signed(IQ1_M, const int32_t* index, const float* l, float d, uint8_t* block) {
    for (int k = 0; k < 32; ++k) {
        const int32_t entry = index[k] % k_signed_entries;
        block[IQ1_M::low_at + k] = static_cast<uint8_t>(entry);
        put_bits(block + IQ1_M::high_at + k / 2, entry >> 8 | (index[k] >= k_signed_entries ? 8 : 0),
                 k % 2 * 4);
    }
    const uint32_t bits = float_to_f16(d);
    for (int i = 0; i < 4; ++i) {
        uint32_t word = (bits >> (4 * i) & 15U) << 12;
        for (int k = 0; k < 4; ++k) word |= static_cast<uint32_t>(half_of_odd(l[4 * i + k])) << (3 * k);
        put_u16(block + IQ1_M::scales_at + 2 * i, word);
    }
}

template <class V, class Format, bool shift_by_group>
int64_t encode_signed_blocks(const RowTask& row) {
    using Block = SignedBlock<V, shift_by_group>;
    uint8_t* out = row.out;
    for (int64_t at = 0; at < row.n_columns; at += 256, out += Format::block_bytes) {
        const float* x = row.x + at;
        const float* u = row.u + at;
        if (__builtin_fabsf(signed_peak_of(x, 256)) > 65504.0F * 64.0F) return at;
        Block block;
        float s[Block::k_parts];
        float first_variant[Block::k_parts];
        search_signed_block<V, shift_by_group>(x, u, row.near, block, s, first_variant);
        float l[Block::k_parts];
        float variant[Block::k_parts];
        float spare[2 * Block::k_parts];
        BlockScales scales{0.0F, l, variant};
        if (!choose_block_scales<V, OddScales<1, 15>>(block, Block::k_parts, s, first_variant,
                                                      StoredAsF16{1.0F}, row.fast, spare, scales)) {
            return at;
        }
        int32_t index[32];
        choose_signed_entries<V, shift_by_group>(block, scales, index);
        memset(out, 0, Format::block_bytes);
        store_signed<V>(Format{}, index, l, scales.d, out);
    }
    return k_encoded;
}

}  // namespace minim::encoding
