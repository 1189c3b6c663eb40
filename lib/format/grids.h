// SPDX-License-Identifier: Apache-2.0
// The codebooks as kernels use them: each entry is one word, with the byte of position 0 lowest. Also the signed value tables.
// Everything is unpacked at compile time from codebooks.h and accessed through functions, so that host and device code read
// the same tables (see table.h). Pinned by tests/unit/format/grids_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "format/codebooks.h"
#include "format/table.h"

namespace minim {

namespace codebooks {

// Replaces each index of a packed entry by its magnitude, a signed byte; Point has one byte for each position.
template <typename Point, size_t n_entries, size_t n_magnitudes>
constexpr Table<Point, n_entries> expand(const Table<uint16_t, n_entries>& packed,
                                         const Table<int8_t, n_magnitudes>& magnitudes) {
    constexpr uint32_t index_bits = sizeof(Point) == 8 ? 2 : 3;
    Table<Point, n_entries> entries{};
    for (size_t i = 0; i < n_entries; ++i) {
        for (uint32_t position = 0; position < sizeof(Point); ++position) {
            const uint32_t index = (packed.data[i] >> (index_bits * position)) & ((1U << index_bits) - 1U);
            const Point byte = static_cast<uint8_t>(magnitudes.data[index]);
            entries.data[i] |= byte << (8U * position);
        }
    }
    return entries;
}

inline constexpr auto k_iq2xxs = expand<uint64_t>(k_iq2xxs_entries, k_iq2xxs_magnitudes);
inline constexpr auto k_iq2xs = expand<uint64_t>(k_iq2xs_entries, k_iq2xs_magnitudes);
inline constexpr auto k_iq2s = expand<uint64_t>(k_iq2s_entries, k_iq2s_magnitudes);
inline constexpr auto k_iq3xxs = expand<uint32_t>(k_iq3xxs_entries, k_iq3xxs_magnitudes);
inline constexpr auto k_iq3s = expand<uint32_t>(k_iq3s_entries, k_iq3s_magnitudes);
inline constexpr auto k_iq1s = expand<uint64_t>(k_iq1s_entries, k_iq1s_magnitudes);

}  // namespace codebooks

// Return the entries of eight magnitudes (8, 25, 43): 256, 512 and 1024 entries.
MINIM_HOST_DEVICE const uint64_t* iq2xxs_grid() {
    static constexpr auto k_entries = codebooks::k_iq2xxs;
    return k_entries.data;
}

MINIM_HOST_DEVICE const uint64_t* iq2xs_grid() {
    static constexpr auto k_entries = codebooks::k_iq2xs;
    return k_entries.data;
}

MINIM_HOST_DEVICE const uint64_t* iq2s_grid() {
    static constexpr auto k_entries = codebooks::k_iq2s;
    return k_entries.data;
}

// Return the entries of four magnitudes: 256 entries of 4 … 62, 512 entries of 1 … 15.
MINIM_HOST_DEVICE const uint32_t* iq3xxs_grid() {
    static constexpr auto k_entries = codebooks::k_iq3xxs;
    return k_entries.data;
}

MINIM_HOST_DEVICE const uint32_t* iq3s_grid() {
    static constexpr auto k_entries = codebooks::k_iq3s;
    return k_entries.data;
}

// Returns the 2048 entries of eight signed bytes (-1, 0, 1).
MINIM_HOST_DEVICE const uint64_t* iq1s_grid() {
    static constexpr auto k_entries = codebooks::k_iq1s;
    return k_entries.data;
}

// Returns a table of 128 bytes that maps seven stored sign bits to eight: bit 7 makes the number of set bits even.
MINIM_HOST_DEVICE const uint8_t* ksigns() {
    static constexpr auto k_bytes = codebooks::k_ksigns;
    return k_bytes.data;
}

// Returns the 16 values by code.
MINIM_HOST_DEVICE const int8_t* iq4nl_values() {
    static constexpr auto k_values = codebooks::k_iq4nl;
    return k_values.data;
}

// Return tables of two halves, the plain values and then the shifted ones: 4 + 4, 8 + 8, 16 + 16, 32 + 32, 64 + 64 values.
MINIM_HOST_DEVICE const int8_t* iq2k_values() {
    static constexpr auto k_values = codebooks::k_iq2k;
    return k_values.data;
}

MINIM_HOST_DEVICE const int8_t* iq3k_values() {
    static constexpr auto k_values = codebooks::k_iq3k;
    return k_values.data;
}

MINIM_HOST_DEVICE const int8_t* iq4k_values() {
    static constexpr auto k_values = codebooks::k_iq4k;
    return k_values.data;
}

MINIM_HOST_DEVICE const int8_t* iq5k_values() {
    static constexpr auto k_values = codebooks::k_iq5k;
    return k_values.data;
}

MINIM_HOST_DEVICE const int8_t* iq6k_values() {
    static constexpr auto k_values = codebooks::k_iq6k;
    return k_values.data;
}

// Returns 32 pairs: pair i is values 2i and 2i + 1.
MINIM_HOST_DEVICE const int8_t* iq2kl_values() {
    static constexpr auto k_values = codebooks::k_iq2kl;
    return k_values.data;
}

// Returns the 16 FP4 values by code, doubled.
MINIM_HOST_DEVICE const int8_t* e2m1_doubled_values() {
    static constexpr auto k_values = codebooks::k_e2m1_doubled;
    return k_values.data;
}

// Returns byte `position` of a codebook entry, negative if bit `sign_bit` of `signs` is set.
template <typename Point>
MINIM_HOST_DEVICE int signed_magnitude(Point point, int position, uint32_t signs, int sign_bit) {
    const auto magnitude = static_cast<int8_t>(point >> (8 * position));
    return ((signs >> sign_bit) & 1U) != 0U ? -magnitude : magnitude;
}

}  // namespace minim
