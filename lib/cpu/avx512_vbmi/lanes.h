// SPDX-License-Identifier: Apache-2.0
// The lanes of AVX-512 with what VBMI adds: lookups among 64 bytes, by the six low bits of every byte.
#pragma once

#include "cpu/avx512/lanes.h"

namespace minim::cpu::avx512_vbmi {

struct Vbmi {};

struct Lanes : avx512::LanesOf<Vbmi> {
    static Table table_64(const int8_t* values) { return {_mm512_loadu_si512(values)}; }
    static Table wide_table_64(const int8_t* values) { return {wide({table_64(values).v}).v}; }
    // Stores the table twice, so that the sixth bit of an index does not matter.
    static Table table_32(const int8_t* values) {
        return {_mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values)))};
    }
    static Table wide_table_32(const int8_t* values) { return {wide({table_32(values).v}).v}; }
    static Int look_up_six_bits(Table t, Int index) { return {_mm512_permutexvar_epi8(index.v, t.v)}; }
    // Looks up in a table of 16, stored four times: bits of the neighbouring nibble in the index do not matter.
    static void look_up_nibbles(Table t, Int word, Int& low, Int& high) {
        low.v = _mm512_permutexvar_epi8(word.v, t.v);
        high.v = _mm512_permutexvar_epi8(_mm512_srli_epi32(word.v, 4), t.v);
    }
    // Returns the n low bits of every byte of `low` with the others of `high`.
    template <int n>
    static Int merge_above(Int low, Int high) {
        constexpr int k_choose = 0xCA;  // a ? b : c, bit by bit
        return {_mm512_ternarylogic_epi32(_mm512_set1_epi8((1 << n) - 1), low.v, high.v, k_choose)};
    }
};

}  // namespace minim::cpu::avx512_vbmi
