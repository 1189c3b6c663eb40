// SPDX-License-Identifier: Apache-2.0
#include "format/expand.h"

#include <cassert>
#include <cstring>

#include "format/blocks.h"
#include "format/grids.h"

namespace minim {
namespace {

// A byte for each of eight columns, the first lowest: the codes of one codebook entry of eight, or of two entries of four.
using Eight = uint64_t;

constexpr Eight k_ones = 0x0101010101010101;

// Returns bit i of `byte` in byte i.
Eight bits_of(uint32_t byte) {
    const Eight one_bit = byte * k_ones & 0x8040201008040201;
    return ((one_bit + 0x7F * k_ones) >> 7) & k_ones;
}

void store(Eight bytes, uint8_t* to) {
    std::memcpy(to, &bytes, sizeof(bytes));
}

// ---- the codes of a block, codes_of(k) being those of columns 8k .. 8k + 7 ----

template <class Codes>
void put_codes_of_2_bits(const Codes& codes_of, uint8_t* out) {
    for (int half = 0; half < 2; ++half) {
        for (int j = 0; j < 4; ++j) {
            Eight bytes = 0;
            for (int i = 0; i < 4; ++i) bytes |= codes_of(16 * half + 4 * i + j) << (2 * i);
            store(bytes, out + 32 * half + 8 * j);
        }
    }
}

template <class Codes>
void put_codes_of_3_bits(const Codes& codes_of, uint8_t* out) {
    for (int j = 0; j < 4; ++j) {
        const Eight sixth = codes_of(24 + j);
        const Eight seventh = codes_of(28 + j);
        const Eight signs = (sixth >> 2 & k_ones) << 6 | (seventh >> 2 & k_ones) << 7;
        store(codes_of(j) | codes_of(4 + j) << 3 | (sixth & 3 * k_ones) << 6, out + 8 * j);
        store(codes_of(8 + j) | codes_of(12 + j) << 3 | (seventh & 3 * k_ones) << 6, out + 32 + 8 * j);
        store(codes_of(16 + j) | codes_of(20 + j) << 3 | signs, out + 64 + 8 * j);
    }
}

template <class Codes>
void put_codes_of_4_bits(const Codes& codes_of, uint8_t* out) {
    for (int u = 0; u < 8; ++u) {
        for (int j = 0; j < 2; ++j)
            store(codes_of(4 * u + j) | codes_of(4 * u + 2 + j) << 4, out + 16 * u + 8 * j);
    }
}

// Maps entries of -1, 0, 1 to 0, 1, 2.
Eight ternary_codes(uint64_t point) {
    return ((point & (3 * k_ones)) + k_ones) & (3 * k_ones);
}

// Maps magnitudes 8, 25, 43 to 0, 1, 2, with the signs above.
Eight signed_codes(uint64_t point, uint32_t signs) {
    return ((point >> 4) & (3 * k_ones)) | bits_of(signs) << 2;
}

// Maps indices of magnitudes to codes of four bits.
Eight signed_codes_of_indices(Eight indices, uint32_t signs) {
    return (8 * k_ones | indices) ^ 15 * bits_of(signs);
}

uint64_t two_entries(uint32_t first, uint32_t second) {
    return first | uint64_t{second} << 32;
}

void put_d(float d, uint8_t* block) {
    std::memcpy(block, &d, sizeof(d));
}

// Writes n nibbles, value_of(i) each.
template <class Value>
void put_nibbles(int n, const Value& value_of, uint8_t* out) {
    for (int i = 0; i < n; i += 2) out[i / 2] = static_cast<uint8_t>(value_of(i) | value_of(i + 1) << 4);
}

// ---- one block each ----

void expand(const uint8_t* block, IQ1_S, X1_S, uint8_t* out) {
    const auto group = [&](int j) { return uint32_t{load_u16(block + IQ1_S::groups_at + 2 * j)}; };
    put_d(load_f16(block + IQ1_S::d_at), out + X1_S::d_at);
    put_nibbles(
        8, [&](int j) { return bit_field(group(j), 12, 4); }, out + X1_S::scales_at);
    const auto codes_of = [&](int k) {
        const int index = block[IQ1_S::low_at + k] + 256 * bit_field(group(k / 4), 3 * (k % 4), 3);
        return ternary_codes(iq1s_grid()[index]);
    };
    put_codes_of_2_bits(codes_of, out + X1_S::codes_at);
}

void expand(const uint8_t* block, IQ1_M, X1_M, uint8_t* out) {
    const auto scale = [&](int g) {
        return bit_field(load_u16(block + IQ1_M::scales_at + 2 * (g / 4)), 3 * (g % 4), 3);
    };
    const auto high = [&](int k) { return nibble(block[IQ1_M::high_at + k / 2], k % 2); };
    put_d(iq1_m_d(block + IQ1_M::scales_at), out + X1_M::d_at);
    put_nibbles(16, scale, out + X1_M::scales_at);
    uint32_t shifts = 0;
    for (int k = 0; k < 32; ++k) shifts |= static_cast<uint32_t>(high(k) >> 3) << k;
    std::memcpy(out + X1_M::shifts_at, &shifts, sizeof(shifts));
    const auto codes_of = [&](int k) {
        return ternary_codes(iq1s_grid()[block[IQ1_M::low_at + k] + 256 * (high(k) & 7)]);
    };
    put_codes_of_2_bits(codes_of, out + X1_M::codes_at);
}

void expand(const uint8_t* block, IQ2_XXS, X2_XXS, uint8_t* out) {
    const auto signs_and_scale = [&](int j) { return load_u32(block + IQ2_XXS::groups_at + 8 * j + 4); };
    put_d(load_f16(block + IQ2_XXS::d_at), out + X2_XXS::d_at);
    put_nibbles(
        8, [&](int j) { return bit_field(signs_and_scale(j), 28, 4); }, out + X2_XXS::scales_at);
    const auto codes_of = [&](int k) {
        const uint64_t point = iq2xxs_grid()[block[IQ2_XXS::groups_at + 8 * (k / 4) + k % 4]];
        return signed_codes(point, ksigns()[bit_field(signs_and_scale(k / 4), 7 * (k % 4), 7)]);
    };
    put_codes_of_3_bits(codes_of, out + X2_XXS::codes_at);
}

void expand(const uint8_t* block, IQ2_XS, X2_XS, uint8_t* out) {
    put_d(load_f16(block + IQ2_XS::d_at), out + X2_XS::d_at);
    std::memcpy(out + X2_XS::scales_at, block + IQ2_XS::scales_at, 8);
    const auto codes_of = [&](int k) {
        const uint32_t point = load_u16(block + IQ2_XS::entries_at + 2 * k);
        return signed_codes(iq2xs_grid()[point & 511U], ksigns()[point >> 9]);
    };
    put_codes_of_3_bits(codes_of, out + X2_XS::codes_at);
}

void expand(const uint8_t* block, IQ2_S, X2_S, uint8_t* out) {
    put_d(load_f16(block + IQ2_S::d_at), out + X2_S::d_at);
    std::memcpy(out + X2_S::scales_at, block + IQ2_S::scales_at, 8);
    const auto codes_of = [&](int k) {
        return signed_codes(iq2s_grid()[IQ2_S::entry_index(block, k)], block[IQ2_S::signs_at + k]);
    };
    put_codes_of_3_bits(codes_of, out + X2_S::codes_at);
}

void expand(const uint8_t* block, IQ3_XXS, X3_XXS, uint8_t* out) {
    const auto signs_and_scale = [&](int j) { return load_u32(block + IQ3_XXS::groups_at + 4 * j); };
    put_d(load_f16(block + IQ3_XXS::d_at), out + X3_XXS::d_at);
    put_nibbles(
        8, [&](int j) { return bit_field(signs_and_scale(j), 28, 4); }, out + X3_XXS::scales_at);
    const auto codes_of = [&](int k) {
        const uint8_t* entries = block + IQ3_XXS::entries_at + 2 * k;
        const uint64_t magnitudes = two_entries(iq3xxs_grid()[entries[0]], iq3xxs_grid()[entries[1]]);
        const Eight indices = (magnitudes >> 3) & (7 * k_ones);  // 4, 12, 20 ... 52, 62
        return signed_codes_of_indices(indices, ksigns()[bit_field(signs_and_scale(k / 4), 7 * (k % 4), 7)]);
    };
    put_codes_of_4_bits(codes_of, out + X3_XXS::codes_at);
}

void expand(const uint8_t* block, IQ3_S, X3_S, uint8_t* out) {
    put_d(load_f16(block + IQ3_S::d_at), out + X3_S::d_at);
    std::memcpy(out + X3_S::scales_at, block + IQ3_S::scales_at, 4);
    const auto codes_of = [&](int k) {
        const uint64_t magnitudes = two_entries(iq3s_grid()[IQ3_S::entry_index(block, 2 * k)],
                                                iq3s_grid()[IQ3_S::entry_index(block, 2 * k + 1)]);
        const Eight indices = (magnitudes >> 1) & (7 * k_ones);  // 1, 3 ... 15
        return signed_codes_of_indices(indices, block[IQ3_S::signs_at + k]);
    };
    put_codes_of_4_bits(codes_of, out + X3_S::codes_at);
}

template <class Block, class X>
void expand_all(const std::byte* rows, int64_t n_rows, int64_t row_bytes, int64_t cols, std::byte* out) {
    static_assert(Block::row_header_bytes == 0 && X::row_header_bytes == 0);
    static_assert(Block::block_elems == X::block_elems);
    auto* to = reinterpret_cast<uint8_t*>(out);
    const int64_t n_blocks = cols / X::block_elems;
    for (int64_t r = 0; r < n_rows; ++r) {
        const auto* from = reinterpret_cast<const uint8_t*>(rows + r * row_bytes);
        for (int64_t b = 0; b < n_blocks; ++b) {
            expand(from + b * Block::block_bytes, Block(), X(), to);
            to += X::block_bytes;
        }
    }
}

struct Expansion {
    Format file;
    Format unpacked;
    void (*expand_rows)(const std::byte* rows, int64_t n_rows, int64_t row_bytes, int64_t cols,
                        std::byte* out);
};

template <class Block, class X>
constexpr Expansion expansion() {
    return {Block::format, X::format, expand_all<Block, X>};
}

constexpr Expansion k_expansions[] = {
    expansion<IQ1_S, X1_S>(),   expansion<IQ1_M, X1_M>(), expansion<IQ2_XXS, X2_XXS>(),
    expansion<IQ2_XS, X2_XS>(), expansion<IQ2_S, X2_S>(), expansion<IQ3_XXS, X3_XXS>(),
    expansion<IQ3_S, X3_S>(),
};

}  // namespace

std::optional<Format> unpacked_format(Format format) noexcept {
    for (const Expansion& entry : k_expansions) {
        if (entry.file == format) return entry.unpacked;
    }
    return std::nullopt;
}

void expand_rows(Format format, const std::byte* rows, int64_t n_rows, int64_t row_bytes, int64_t cols,
                 std::byte* out) noexcept {
    for (const Expansion& entry : k_expansions) {
        if (entry.file == format) return entry.expand_rows(rows, n_rows, row_bytes, cols, out);
    }
    assert(false && "a format without an unpacked one");
}

}  // namespace minim
