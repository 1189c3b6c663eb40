// SPDX-License-Identifier: Apache-2.0
// Encoders of codebooks of magnitudes: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S.
#pragma once

#include <cstring>

#include "format/encode/block_scales.h"
#include "format/encode/grid_search.h"
#include "format/encode/store_codes.h"
#include "format/iq2_s.h"
#include "format/iq2_xs.h"
#include "format/iq2_xxs.h"
#include "format/iq3_s.h"
#include "format/iq3_xxs.h"

namespace minim::encoding {

enum class Signs : uint8_t {
    all,            // all are stored
    even_of_group,  // the number of negative elements of each group is even
    even_of_pair,   // of each two groups
};

// What the encoders need to know of a codebook format. A decoded element is d * unit * (an odd number) * (a magnitude).
template <class B, int n, int n_dims, int size, Signs kind, const Columns<n, n_dims>& table, int largest,
          int constant>
struct GridFormat {
    using Block = B;
    static constexpr int n_entries = n;
    static constexpr int dims = n_dims;
    static constexpr int n_groups = 256 / n_dims;
    static constexpr int groups_of_part = size / n_dims;
    static constexpr int n_parts = 256 / size;
    static constexpr Signs signs = kind;
    static constexpr float largest_magnitude = largest;
    // The largest magnitude that an entry has at all positions: elements that are all alike fit it exactly.
    static constexpr float constant_magnitude = constant;
    static constexpr const Columns<n, n_dims>& columns = table;
};

using IQ2_XXS_Grid = GridFormat<IQ2_XXS, 256, 8, 32, Signs::even_of_group, k_iq2xxs_columns, 43, 8>;
using IQ2_XS_Grid = GridFormat<IQ2_XS, 512, 8, 16, Signs::even_of_group, k_iq2xs_columns, 43, 43>;
using IQ2_S_Grid = GridFormat<IQ2_S, 1024, 8, 16, Signs::all, k_iq2s_columns, 43, 43>;
using IQ3_XXS_Grid = GridFormat<IQ3_XXS, 256, 4, 32, Signs::even_of_pair, k_iq3xxs_columns, 62, 28>;
using IQ3_S_Grid = GridFormat<IQ3_S, 512, 4, 32, Signs::all, k_iq3s_columns, 15, 1>;

// Fractions of the scale that puts the largest element on the largest magnitude.
inline constexpr float k_grid_fractions[15] = {0.50F, 0.54F, 0.58F, 0.62F, 0.66F, 0.70F, 0.74F, 0.78F,
                                               0.82F, 0.86F, 0.90F, 0.94F, 0.98F, 1.02F, 1.08F};
inline constexpr float k_grid_fractions_fast[7] = {0.54F, 0.61F, 0.68F, 0.76F, 0.84F, 0.92F, 1.02F};

// The candidates of a block.
template <class V, class G>
struct GridBlock {
    static constexpr int k_variants = 1;
    static constexpr int k_lists = G::signs == Signs::even_of_pair ? 2 : 1;
    int n_candidates;
    Candidates candidates[G::n_groups][k_lists];  // list 1: with a wrong sign
    bool is_odd[G::n_groups];                     // of the group, or of the pair: a sign must be wrong

    Sums<V> at(int64_t part, int /*variant*/, typename V::F32 s) const {
        Sums<V> sums{V::all(0.0F), V::all(0.0F)};
        const int first = static_cast<int>(part) * G::groups_of_part;
        if constexpr (G::signs == Signs::even_of_pair) {
            for (int g = first; g < first + G::groups_of_part; g += 2) {
                BestCandidate<V> a = best_candidate<V>(candidates[g][0], n_candidates, s);
                BestCandidate<V> b = best_candidate<V>(candidates[g + 1][0], n_candidates, s);
                if (is_odd[g]) {
                    const BestCandidate<V> wrong_a = best_candidate<V>(candidates[g][1], n_candidates, s);
                    const BestCandidate<V> wrong_b = best_candidate<V>(candidates[g + 1][1], n_candidates, s);
                    const auto cost_a = V::add(wrong_a.cost, b.cost);
                    const auto cost_b = V::add(a.cost, wrong_b.cost);
                    a.p = V::if_less(cost_b, cost_a, a.p, wrong_a.p);
                    a.q = V::if_less(cost_b, cost_a, a.q, wrong_a.q);
                    b.p = V::if_less(cost_b, cost_a, wrong_b.p, b.p);
                    b.q = V::if_less(cost_b, cost_a, wrong_b.q, b.q);
                }
                sums.cross = V::add(sums.cross, V::add(a.p, b.p));
                sums.square = V::add(sums.square, V::add(a.q, b.q));
            }
        } else {
            for (int g = first; g < first + G::groups_of_part; ++g) {
                const BestCandidate<V> best = best_candidate<V>(candidates[g][0], n_candidates, s);
                sums.cross = V::add(sums.cross, best.p);
                sums.square = V::add(sums.square, best.q);
            }
        }
        return sums;
    }
};

MINIM_HOST_DEVICE bool is_odd_byte(uint32_t bits) {
    bits ^= bits >> 4;
    bits ^= bits >> 2;
    bits ^= bits >> 1;
    return (bits & 1U) != 0U;
}

MINIM_HOST_DEVICE uint32_t signs_of_eight(const float* x) {
    uint32_t signs = 0;
    for (int i = 0; i < 8; ++i) signs |= (x[i] < 0.0F ? 1U : 0U) << i;
    return signs;
}

// Fills in the candidates of a group for 8 scales: entries near its magnitudes. `lists`: [GridBlock::k_lists].
template <class V, class G>
void find_near_candidates(const GridNeighbours& near, const float* magnitude, const float* u, const float* ux,
                          const float* scales, bool is_odd, Candidates* lists) {
    NearEntries<V> as_is;
    NearEntries<V> flipped;
    near_entries<V>(G::columns, near, magnitude, u, ux, V::load(scales), as_is, flipped);
    if constexpr (G::signs == Signs::even_of_pair) {
        as_is.store(lists[0], 0);
        if (is_odd) flipped.store(lists[1], 0);
    } else {
        (is_odd ? flipped : as_is).store(lists[0], 0);
    }
}

// Fills in the candidates of a block of 256 elements, and for each part the scale that suits it best.
template <class V, class G>
void search_grid_block(const float* x, const float* u, const GridNeighbours* near, GridBlock<V, G>& block,
                       float* s) {
    const float* fractions = near != nullptr ? k_grid_fractions_fast : k_grid_fractions;
    block.n_candidates = near != nullptr ? 8 : 16;
    for (int part = 0; part < G::n_parts; ++part) {
        const int first = part * G::groups_of_part;
        constexpr int size = G::groups_of_part * G::dims;
        const float peak = __builtin_fabsf(signed_peak_of(x + part * size, size));
        float scales[16];
        const int last = block.n_candidates - 1;
        for (int k = 0; k < last; ++k)
            scales[k] = peak > 0.0F ? fractions[k] * peak / G::largest_magnitude : 1.0F;
        scales[last] = peak > 0.0F ? peak / G::constant_magnitude : 1.0F;
        for (int g = first; g < first + G::groups_of_part; ++g) {
            const float* of_group = x + g * G::dims;
            float magnitude[G::dims];
            float ux[G::dims];
            for (int i = 0; i < G::dims; ++i) magnitude[i] = __builtin_fabsf(of_group[i]);
            multiply(u + g * G::dims, magnitude, G::dims, ux);
            block.is_odd[g] = false;
            if constexpr (G::signs != Signs::all) {
                const int byte = g * G::dims / 8;
                block.is_odd[g] = is_odd_byte(signs_of_eight(x + 8 * byte));
            }
            if (near != nullptr) {
                find_near_candidates<V, G>(*near, magnitude, u + g * G::dims, ux, scales, block.is_odd[g],
                                           block.candidates[g]);
                continue;
            }
            alignas(32) float p[G::n_entries];
            alignas(32) float q[G::n_entries];
            for (int list = 0; list < GridBlock<V, G>::k_lists; ++list) {
                if (list == 1 && !block.is_odd[g]) continue;
                const bool flip = G::signs == Signs::even_of_pair ? list == 1 : block.is_odd[g];
                sums_of_entries<V>(G::columns, u + g * G::dims, ux, flip, p, q);
                best_entries<V>(p, q, G::n_entries, scales, block.n_candidates, block.candidates[g][list]);
            }
        }
        s[part] = 0.0F;
        float gain = 0.0F;
        for (int k = 0; k < block.n_candidates; k += 4) {
            float eight[8];
            for (int i = 0; i < 8; ++i) eight[i] = scales[k + (i & 3)];
            const Sums<V> sums = block.at(part, 0, V::load(eight));
            const auto fitted = V::div(sums.cross, sums.square);
            float least;
            const int lane = least_lane<V>(V::sub(V::all(0.0F), V::mul(fitted, sums.cross)), least);
            if (-least > gain) {
                gain = -least;
                s[part] = one_lane<V>(fitted, lane);
            }
        }
        if (s[part] < 0.0F) s[part] = 0.0F;
    }
}

// Entries and signs of a block.
template <class G>
struct GridCodes {
    int32_t index[G::n_groups];
    uint32_t signs[32];  // of each 8 elements
};

// Returns the position whose wrong sign costs least.
template <class G>
MINIM_HOST_DEVICE int cheapest_flip(const float* x, const float* u, int32_t index) {
    int cheapest = 0;
    float least = 3e38F;
    for (int i = 0; i < G::dims; ++i) {
        const float cost = u[i] * __builtin_fabsf(x[i]) * G::columns.value[i][index];
        if (cost < least) {
            least = cost;
            cheapest = i;
        }
    }
    return cheapest;
}

template <class V, class G>
void choose_entries(const float* x, const float* u, const GridBlock<V, G>& block, const BlockScales& scales,
                    GridCodes<G>& codes) {
    for (int byte = 0; byte < 32; ++byte) codes.signs[byte] = signs_of_eight(x + 8 * byte);
    constexpr int groups_of_byte = 8 / G::dims;
    for (int g = 0; g < G::n_groups; g += groups_of_byte) {
        const float s = scales.d * scales.l[g / G::groups_of_part];
        int flipped = block.is_odd[g] ? g : -1;
        float cost[2][2];
        int choice[2][2];
        for (int i = 0; i < groups_of_byte; ++i) {
            const int n_lists = block.is_odd[g] ? GridBlock<V, G>::k_lists : 1;
            for (int list = 0; list < n_lists; ++list) {
                choice[i][list] =
                    best_candidate_for(block.candidates[g + i][list], block.n_candidates, s, cost[i][list]);
            }
        }
        if constexpr (G::signs == Signs::even_of_pair) {
            if (block.is_odd[g] && cost[0][0] + cost[1][1] < cost[0][1] + cost[1][0]) flipped = g + 1;
        }
        for (int i = 0; i < groups_of_byte; ++i) {
            const int list = flipped == g + i ? GridBlock<V, G>::k_lists - 1 : 0;
            codes.index[g + i] = block.candidates[g + i][list].index[choice[i][list]];
        }
        if (flipped < 0) continue;
        const int at = flipped * G::dims;
        const int position = at % 8 + cheapest_flip<G>(x + at, u + at, codes.index[flipped]);
        codes.signs[at / 8] ^= 1U << position;
    }
}

// ---- the layouts: l as odd numbers ----

MINIM_HOST_DEVICE int half_of_odd(float l) {
    return (static_cast<int>(l) - 1) / 2;
}

MINIM_HOST_DEVICE void put_u32(uint8_t* to, uint32_t value) {
    memcpy(to, &value, sizeof(value));
}

template <class V>
void store_grid(const GridCodes<IQ2_XXS_Grid>& codes, const float* l, uint8_t* block) {
    for (int j = 0; j < 8; ++j) {
        uint8_t* group = block + IQ2_XXS::groups_at + 8 * j;
        uint32_t signs = static_cast<uint32_t>(half_of_odd(l[j])) << 28;
        for (int k = 0; k < 4; ++k) {
            group[k] = static_cast<uint8_t>(codes.index[4 * j + k]);
            signs |= (codes.signs[4 * j + k] & 127U) << (7 * k);
        }
        put_u32(group + 4, signs);
    }
}

template <class V>
void store_grid(const GridCodes<IQ2_XS_Grid>& codes, const float* l, uint8_t* block) {
    for (int k = 0; k < 32; ++k) {
        put_u16(block + IQ2_XS::entries_at + 2 * k,
                static_cast<uint32_t>(codes.index[k]) | (codes.signs[k] & 127U) << 9);
    }
    for (int g = 0; g < 16; ++g) put_bits(block + IQ2_XS::scales_at + g / 2, half_of_odd(l[g]), g % 2 * 4);
}

template <class V>
void store_grid(const GridCodes<IQ2_S_Grid>& codes, const float* l, uint8_t* block) {
    for (int k = 0; k < 32; ++k) {
        block[IQ2_S::low_at + k] = static_cast<uint8_t>(codes.index[k]);
        block[IQ2_S::signs_at + k] = static_cast<uint8_t>(codes.signs[k]);
        put_bits(block + IQ2_S::high_at + k / 4, codes.index[k] >> 8, k % 4 * 2);
    }
    for (int g = 0; g < 16; ++g) put_bits(block + IQ2_S::scales_at + g / 2, half_of_odd(l[g]), g % 2 * 4);
}

template <class V>
void store_grid(const GridCodes<IQ3_XXS_Grid>& codes, const float* l, uint8_t* block) {
    for (int k = 0; k < 64; ++k) block[IQ3_XXS::entries_at + k] = static_cast<uint8_t>(codes.index[k]);
    for (int j = 0; j < 8; ++j) {
        uint32_t signs = static_cast<uint32_t>(half_of_odd(l[j])) << 28;
        for (int k = 0; k < 4; ++k) signs |= (codes.signs[4 * j + k] & 127U) << (7 * k);
        put_u32(block + IQ3_XXS::groups_at + 4 * j, signs);
    }
}

template <class V>
void store_grid(const GridCodes<IQ3_S_Grid>& codes, const float* l, uint8_t* block) {
    for (int k = 0; k < 64; ++k) {
        block[IQ3_S::low_at + k] = static_cast<uint8_t>(codes.index[k]);
        put_bits(block + IQ3_S::high_at + k / 8, codes.index[k] >> 8, k % 8);
    }
    for (int k = 0; k < 32; ++k) block[IQ3_S::signs_at + k] = static_cast<uint8_t>(codes.signs[k]);
    for (int j = 0; j < 8; ++j) put_bits(block + IQ3_S::scales_at + j / 2, half_of_odd(l[j]), j % 2 * 4);
}

// `unit`: decoded elements are d / unit times an odd number times a magnitude.
template <class V, class G, int unit, int largest>
int64_t encode_grid_blocks(const RowTask& row) {
    uint8_t* out = row.out;
    for (int64_t at = 0; at < row.n_columns; at += 256, out += G::Block::block_bytes) {
        const float* x = row.x + at;
        const float* u = row.u + at;
        if (__builtin_fabsf(signed_peak_of(x, 256)) > 65504.0F * 64.0F * 64.0F) return at;
        GridBlock<V, G> block;
        float s[G::n_parts];
        search_grid_block<V, G>(x, u, row.near, block, s);
        const float first_variant[G::n_parts] = {};
        float l[G::n_parts];
        float variant[G::n_parts];
        float spare[2 * G::n_parts];
        BlockScales scales{0.0F, l, variant};
        const StoredAsF16 stored{static_cast<float>(unit)};
        if (!choose_block_scales<V, OddScales<1, largest>>(block, G::n_parts, s, first_variant, stored,
                                                           row.fast, spare, scales)) {
            return at;
        }
        GridCodes<G> codes;
        choose_entries<V, G>(x, u, block, scales, codes);
        memset(out, 0, G::Block::block_bytes);
        put_f16(out + G::Block::d_at, scales.d * static_cast<float>(unit));
        store_grid<V>(codes, l, out);
    }
    return k_encoded;
}

}  // namespace minim::encoding
