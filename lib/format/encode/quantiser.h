// SPDX-License-Identifier: Apache-2.0
// Sets of values that codes stand for, each value multiplied by a scale: whole numbers, or a table. A quantiser Q has
//
//   Q::low, Q::high            the two ends; a scale may have either sign
//   Q::nearest<V>(t)           the value nearest to each lane of t
//   Q::code(t)                 the code of the value nearest to t
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/grids.h"

namespace minim::encoding {

// Rounds to the nearest whole number, ties to even, as V::round does. The magnitude is below 2^22.
MINIM_HOST_DEVICE float round_to_even(float value) {
    return (value + 12582912.0F) - 12582912.0F;
}

MINIM_HOST_DEVICE float clamped(float value, float lowest, float highest) {
    const float low = value > lowest ? value : lowest;
    return low < highest ? low : highest;
}

// Codes 0, 1 … for first, first + 1 … last.
template <int first, int last>
struct WholeNumbers {
    static constexpr float low = first;
    static constexpr float high = last;

    template <class V>
    static typename V::F32 nearest(typename V::F32 t) {
        return V::round(V::min(V::max(t, V::all(low)), V::all(high)));
    }
    MINIM_HOST_DEVICE static uint8_t code(float t) {
        return static_cast<uint8_t>(static_cast<int>(round_to_even(clamped(t, low, high))) - first);
    }
};

// The nearest table value for each half unit from -128 up. The border between two neighbours is a multiple of 1/2, so that each
// half unit has one nearest value.
struct NearestValues {
    float value[512];
    uint8_t code[512];
};

constexpr NearestValues nearest_values(const int8_t* values, int n_values) {
    NearestValues nearest{};
    int code = 0;
    for (int i = 0; i < 512; ++i) {
        // Twice the middle of the half unit is i - 256 + 1/2, and twice the border is the sum of the neighbours.
        while (code + 1 < n_values && i - 256 >= values[code] + values[code + 1]) ++code;
        nearest.value[i] = values[code];
        nearest.code[i] = static_cast<uint8_t>(code);
    }
    return nearest;
}

inline constexpr NearestValues k_nearest_iq4nl = nearest_values(codebooks::k_iq4nl.data, 16);
inline constexpr NearestValues k_nearest_iq2k = nearest_values(codebooks::k_iq2k.data, 4);
inline constexpr NearestValues k_nearest_iq2k_shifted = nearest_values(codebooks::k_iq2k.data + 4, 4);
inline constexpr NearestValues k_nearest_iq3k = nearest_values(codebooks::k_iq3k.data, 8);
inline constexpr NearestValues k_nearest_iq3k_shifted = nearest_values(codebooks::k_iq3k.data + 8, 8);
inline constexpr NearestValues k_nearest_iq4k = nearest_values(codebooks::k_iq4k.data, 16);
inline constexpr NearestValues k_nearest_iq4k_shifted = nearest_values(codebooks::k_iq4k.data + 16, 16);
inline constexpr NearestValues k_nearest_iq5k = nearest_values(codebooks::k_iq5k.data, 32);
inline constexpr NearestValues k_nearest_iq5k_shifted = nearest_values(codebooks::k_iq5k.data + 32, 32);
inline constexpr NearestValues k_nearest_iq6k = nearest_values(codebooks::k_iq6k.data, 64);
inline constexpr NearestValues k_nearest_iq6k_shifted = nearest_values(codebooks::k_iq6k.data + 64, 64);

// Returns the index of the half unit of t.
MINIM_HOST_DEVICE int half_unit(float t) {
    return static_cast<int>((clamped(t, -128.0F, 127.5F) + 128.0F) * 2.0F);
}

template <const NearestValues& table>
struct TableValues {
    static constexpr float low = table.value[0];
    static constexpr float high = table.value[511];

    template <class V>
    static typename V::F32 nearest(typename V::F32 t) {
        const auto inside = V::min(V::max(t, V::all(-128.0F)), V::all(127.5F));
        return V::lookup(table.value, V::mul(V::add(inside, V::all(128.0F)), V::all(2.0F)));
    }
    MINIM_HOST_DEVICE static uint8_t code(float t) { return table.code[half_unit(t)]; }
};

}  // namespace minim::encoding
