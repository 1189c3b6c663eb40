#include "format/expand.h"

#include <cassert>
#include <cstring>

#include "format/blocks.h"
#include "format/grids.h"

namespace minim {
namespace {

struct Pair {
    Format file;
    Format expanded;
};

constexpr Pair k_pairs[] = {
    {Format::iq1_s, Format::x1_s},   {Format::iq1_m, Format::x1_m}, {Format::iq2_xxs, Format::x2_xxs},
    {Format::iq2_xs, Format::x2_xs}, {Format::iq2_s, Format::x2_s}, {Format::iq3_xxs, Format::x3_xxs},
    {Format::iq3_s, Format::x3_s},
};

// A byte for each of eight columns, the first lowest.
using Eight = uint64_t;

constexpr Eight k_ones = 0x0101010101010101;

// Bit i in byte i.
Eight bits_of(uint32_t byte) {
    const Eight one_bit = byte * k_ones & 0x8040201008040201;
    return ((one_bit + 0x7F * k_ones) >> 7) & k_ones;
}

// Adds bits to eight bytes.
void put(Eight bits, uint8_t* to) {
    Eight all;
    std::memcpy(&all, to, sizeof(all));
    all |= bits;
    std::memcpy(to, &all, sizeof(all));
}

// Columns 8k .. 8k + 7 of a block, as block_reader.h reads them.
void put_code2(int k, Eight bits, uint8_t* codes) {
    put(bits << (2 * (k / 4 % 4)), codes + k / 16 * 32 + k % 4 * 8);
}
void put_code4(int k, Eight bits, uint8_t* codes) {
    put(bits << (4 * (k / 2 % 2)), codes + k / 4 * 16 + k % 2 * 8);
}

void put_nibble(int value, int i, uint8_t* nibbles) {
    nibbles[i / 2] = static_cast<uint8_t>(nibbles[i / 2] | value << (4 * (i % 2)));
}

void put_d(float d, uint8_t* block) {
    std::memcpy(block, &d, sizeof(d));
}

// Magnitudes 8, 25, 43 to 0, 1, 2, with the signs above.
template <class X>
void put_signed_point(int k, uint64_t point, uint32_t signs, uint8_t* out) {
    const Eight magnitudes = (point >> 4) & (3 * k_ones);
    const Eight negative = bits_of(signs);
    uint8_t* codes = out + X::codes_at + k % 4 * 8;
    const int u = k / 4;
    if (u < 6) return put((magnitudes | negative << 2) << (3 * (u % 2)), codes + 32 * (u / 2));
    put(magnitudes << 6, codes + 32 * (u - 6));
    put(negative << u, codes + 64);
}

// Points of -1, 0, 1 to 0, 1, 2.
template <class X>
void put_ternary_point(int k, uint64_t point, uint8_t* out) {
    put_code2(k, ((point & (3 * k_ones)) + k_ones) & (3 * k_ones), out + X::codes_at);
}

// Indices of magnitudes of two points of four.
template <class X>
void put_signed_indices(int k, Eight indices, uint32_t signs, uint8_t* out) {
    put_code4(k, (8 * k_ones | indices) ^ 15 * bits_of(signs), out + X::codes_at);
}

uint64_t two_points(uint32_t first, uint32_t second) {
    return first | uint64_t{second} << 32;
}

// ---- one block each; `out` is all zeros ----

void expand(const uint8_t* block, IQ1_S, X1_S, uint8_t* out) {
    put_d(load_f16(block + IQ1_S::d_at), out + X1_S::d_at);
    for (int j = 0; j < 8; ++j) {
        const uint32_t group = load_u16(block + IQ1_S::groups_at + 2 * j);
        put_nibble(bit_field(group, 12, 4), j, out + X1_S::scales_at);
        for (int k = 4 * j; k < 4 * j + 4; ++k) {
            const int index = block[IQ1_S::low_at + k] + 256 * bit_field(group, 3 * (k % 4), 3);
            put_ternary_point<X1_S>(k, iq1s_grid()[index], out);
        }
    }
}

void expand(const uint8_t* block, IQ1_M, X1_M, uint8_t* out) {
    put_d(iq1_m_d(block + IQ1_M::scales_at), out + X1_M::d_at);
    for (int g = 0; g < 16; ++g) {
        const int scale = bit_field(load_u16(block + IQ1_M::scales_at + 2 * (g / 4)), 3 * (g % 4), 3);
        put_nibble(scale, g, out + X1_M::scales_at);
    }
    for (int k = 0; k < 32; ++k) {
        const int high = nibble(block[IQ1_M::high_at + k / 2], k % 2);
        put_ternary_point<X1_M>(k, iq1s_grid()[block[IQ1_M::low_at + k] + 256 * (high & 7)], out);
        uint8_t& shifts = out[X1_M::shifts_at + k / 8];
        shifts = static_cast<uint8_t>(shifts | (high >> 3) << (k % 8));
    }
}

void expand(const uint8_t* block, IQ2_XXS, X2_XXS, uint8_t* out) {
    put_d(load_f16(block + IQ2_XXS::d_at), out + X2_XXS::d_at);
    for (int j = 0; j < 8; ++j) {
        const uint8_t* group = block + IQ2_XXS::groups_at + 8 * j;
        const uint32_t signs_and_scale = load_u32(group + 4);
        put_nibble(bit_field(signs_and_scale, 28, 4), j, out + X2_XXS::scales_at);
        for (int i = 0; i < 4; ++i) {
            put_signed_point<X2_XXS>(4 * j + i, iq2xxs_grid()[group[i]],
                                     ksigns()[bit_field(signs_and_scale, 7 * i, 7)], out);
        }
    }
}

void expand(const uint8_t* block, IQ2_XS, X2_XS, uint8_t* out) {
    put_d(load_f16(block + IQ2_XS::d_at), out + X2_XS::d_at);
    std::memcpy(out + X2_XS::scales_at, block + IQ2_XS::scales_at, 8);
    for (int k = 0; k < 32; ++k) {
        const uint32_t point = load_u16(block + IQ2_XS::points_at + 2 * k);
        put_signed_point<X2_XS>(k, iq2xs_grid()[point & 511U], ksigns()[point >> 9], out);
    }
}

void expand(const uint8_t* block, IQ2_S, X2_S, uint8_t* out) {
    put_d(load_f16(block + IQ2_S::d_at), out + X2_S::d_at);
    std::memcpy(out + X2_S::scales_at, block + IQ2_S::scales_at, 8);
    for (int k = 0; k < 32; ++k) {
        put_signed_point<X2_S>(k, iq2s_grid()[IQ2_S::point_index(block, k)], block[IQ2_S::signs_at + k], out);
    }
}

void expand(const uint8_t* block, IQ3_XXS, X3_XXS, uint8_t* out) {
    put_d(load_f16(block + IQ3_XXS::d_at), out + X3_XXS::d_at);
    for (int j = 0; j < 8; ++j) {
        const uint32_t signs_and_scale = load_u32(block + IQ3_XXS::groups_at + 4 * j);
        put_nibble(bit_field(signs_and_scale, 28, 4), j, out + X3_XXS::scales_at);
        for (int i = 0; i < 4; ++i) {
            const uint8_t* points = block + IQ3_XXS::points_at + 8 * j + 2 * i;
            const uint64_t magnitudes = two_points(iq3xxs_grid()[points[0]], iq3xxs_grid()[points[1]]);
            // 4, 12, 20 ... 52, 62
            put_signed_indices<X3_XXS>(4 * j + i, (magnitudes >> 3) & (7 * k_ones),
                                       ksigns()[bit_field(signs_and_scale, 7 * i, 7)], out);
        }
    }
}

void expand(const uint8_t* block, IQ3_S, X3_S, uint8_t* out) {
    put_d(load_f16(block + IQ3_S::d_at), out + X3_S::d_at);
    std::memcpy(out + X3_S::scales_at, block + IQ3_S::scales_at, 4);
    for (int k = 0; k < 32; ++k) {
        const uint64_t magnitudes = two_points(iq3s_grid()[IQ3_S::point_index(block, 2 * k)],
                                               iq3s_grid()[IQ3_S::point_index(block, 2 * k + 1)]);
        // 1, 3 ... 15
        put_signed_indices<X3_S>(k, (magnitudes >> 1) & (7 * k_ones), block[IQ3_S::signs_at + k], out);
    }
}

template <class Block, class X>
void expand_all(const std::byte* rows, int64_t n_rows, int64_t row_bytes, int64_t cols, std::byte* out) {
    static_assert(Block::row_header_bytes == 0 && X::row_header_bytes == 0);
    static_assert(Block::block_elems == X::block_elems);
    auto* to = reinterpret_cast<uint8_t*>(out);
    const int64_t n_blocks = cols / X::block_elems;
    std::memset(to, 0, static_cast<size_t>(n_rows * n_blocks * X::block_bytes));
    for (int64_t r = 0; r < n_rows; ++r) {
        const auto* from = reinterpret_cast<const uint8_t*>(rows + r * row_bytes);
        for (int64_t b = 0; b < n_blocks; ++b) {
            expand(from + b * Block::block_bytes, Block(), X(), to);
            to += X::block_bytes;
        }
    }
}

}  // namespace

std::optional<Format> expanded_format(Format format) noexcept {
    for (const Pair& pair : k_pairs) {
        if (pair.file == format) return pair.expanded;
    }
    return std::nullopt;
}

Format file_format(Format format) noexcept {
    for (const Pair& pair : k_pairs) {
        if (pair.expanded == format) return pair.file;
    }
    return format;
}

void expand_rows(Format format, const std::byte* rows, int64_t n_rows, int64_t row_bytes, int64_t cols,
                 std::byte* out) noexcept {
    switch (format) {
        case Format::iq1_s:
            return expand_all<IQ1_S, X1_S>(rows, n_rows, row_bytes, cols, out);
        case Format::iq1_m:
            return expand_all<IQ1_M, X1_M>(rows, n_rows, row_bytes, cols, out);
        case Format::iq2_xxs:
            return expand_all<IQ2_XXS, X2_XXS>(rows, n_rows, row_bytes, cols, out);
        case Format::iq2_xs:
            return expand_all<IQ2_XS, X2_XS>(rows, n_rows, row_bytes, cols, out);
        case Format::iq2_s:
            return expand_all<IQ2_S, X2_S>(rows, n_rows, row_bytes, cols, out);
        case Format::iq3_xxs:
            return expand_all<IQ3_XXS, X3_XXS>(rows, n_rows, row_bytes, cols, out);
        case Format::iq3_s:
            return expand_all<IQ3_S, X3_S>(rows, n_rows, row_bytes, cols, out);
        default:
            assert(false && "a format that is not expanded");
    }
}

}  // namespace minim
