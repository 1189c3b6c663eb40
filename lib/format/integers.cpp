// SPDX-License-Identifier: Apache-2.0
#include "format/integers.h"

#include <cstring>

#include "base/half.h"
#include "format/int4.h"
#include "format/int8.h"
#include "format/mxfp8.h"
#include "format/q4_0.h"
#include "format/q8_0.h"

namespace minim {
namespace {

template <typename T>
void store(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof(value));
}

// Packs 2 n codes of four bits to n bytes whose low nibbles are the first n.
template <int n>
void put_halves(const uint8_t* codes, std::byte* to) {
    for (int i = 0; i < n; ++i) to[i] = static_cast<std::byte>(codes[i] | codes[n + i] << 4);
}

// Packs `count` codes in the same order, 64 at a time.
void put_halves_of_64(const uint8_t* codes, int count, std::byte* to) {
    for (int e = 0; e < count; e += 64) put_halves<32>(codes + e, to + e / 2);
}

// Writes codes of eight bits, less 128, as signed bytes.
void put_signed(const uint8_t* codes, int count, std::byte* to) {
    for (int i = 0; i < count; ++i) to[i] = static_cast<std::byte>(codes[i] ^ 0x80U);
}

// Calls write(codes, group, place) for each block of the row; `group` is the group of its first code.
template <typename Block, typename Write>
void for_each_block_of(const IntegerRow& row, std::byte* out, const Write& write) {
    for (size_t k = 0; k < row.codes.size(); k += Block::block_elems) {
        write(row.codes.data() + k, k / row.group, out);
        out += Block::block_bytes;
    }
}

template <typename Block>
void write_symmetric4(const IntegerRow& row, std::byte* out) {
    for_each_block_of<Block>(row, out, [&](const uint8_t* codes, size_t g, std::byte* to) {
        store(to + Block::d_at, float_to_f16(row.scales[g]));
        put_halves_of_64(codes, Block::block_elems, to + Block::codes_at);
    });
}

template <typename Block>
void write_zeros4(const IntegerRow& row, std::byte* out) {
    for_each_block_of<Block>(row, out, [&](const uint8_t* codes, size_t first, std::byte* to) {
        uint8_t turned[Block::block_elems];
        uint8_t zeros = 0;
        for (int g = 0; g < Block::n_groups; ++g) {
            const size_t group = first + g * Block::group / row.group;
            const ScaleAndZero packed = pack_zero(float_to_f16(row.scales[group]), row.zeros[group], 4);
            store(to + Block::d_at + 2 * g, packed.d);
            zeros = static_cast<uint8_t>(zeros | packed.zero << (4 * g));
            for (int e = g * Block::group; e < (g + 1) * Block::group; ++e)
                turned[e] = static_cast<uint8_t>(codes[e] ^ packed.code_mask);
        }
        to[Block::zeros_at] = static_cast<std::byte>(zeros);
        put_halves_of_64(turned, Block::block_elems, to + Block::codes_at);
    });
}

template <typename Block>
void write_symmetric8(const IntegerRow& row, std::byte* out) {
    for_each_block_of<Block>(row, out, [&](const uint8_t* codes, size_t g, std::byte* to) {
        store(to + Block::d_at, float_to_f16(row.scales[g]));
        put_signed(codes, Block::block_elems, to + Block::codes_at);
    });
}

template <typename Block>
void write_zeros8(const IntegerRow& row, std::byte* out) {
    for_each_block_of<Block>(row, out, [&](const uint8_t* codes, size_t g, std::byte* to) {
        const ScaleAndZero packed = pack_zero(float_to_f16(row.scales[g]), row.zeros[g], 8);
        store(to + Block::d_at, packed.d);
        to[Block::zero_at] = static_cast<std::byte>(packed.zero);
        for (int e = 0; e < Block::block_elems; ++e)
            to[Block::codes_at + e] = static_cast<std::byte>(codes[e] ^ packed.code_mask ^ 0x80U);
    });
}

}  // namespace

ScaleAndZero pack_zero(uint16_t d, int32_t zero, int bits) noexcept {
    const uint32_t largest = (1U << bits) - 1;
    const bool is_negative = d >> 15 != 0;
    // -d (largest - code - (largest - zero)) = d (code - zero)
    const auto shifted =
        static_cast<uint32_t>((is_negative ? static_cast<int32_t>(largest) - zero : zero) + 1);
    return {static_cast<uint16_t>((d & 0x7FFFU) | shifted >> bits << 15),
            static_cast<uint8_t>(shifted & largest), static_cast<uint8_t>(is_negative ? largest : 0)};
}

bool has_f32_scales(Format format) noexcept {
    return format == Format::int4_row || format == Format::int8_row || format == Format::int4_w32 ||
           format == Format::int8_w32;
}

void write_integer_row(Format format, const IntegerRow& row, std::byte* out) noexcept {
    using Codes = const uint8_t*;
    switch (format) {
        case Format::q4_0:
            return for_each_block_of<Q4_0>(row, out, [&](Codes codes, size_t g, std::byte* to) {
                store(to + Q4_0::d_at, float_to_f16(row.scales[g]));
                put_halves<16>(codes, to + Q4_0::codes_at);
            });
        case Format::int4_s64:
            return write_symmetric4<INT4_S64>(row, out);
        case Format::int4_s128:
            return write_symmetric4<INT4_S128>(row, out);
        case Format::int4_z32:
            return write_zeros4<INT4_Z32>(row, out);
        case Format::int4_z64:
            return write_zeros4<INT4_Z64>(row, out);
        case Format::int4_z128:
            return write_zeros4<INT4_Z128>(row, out);
        case Format::int4_row:
            store(out, row.scales.front());
            return for_each_block_of<INT4_ROW>(
                row, out + INT4_ROW::row_header_bytes,
                [](Codes codes, size_t, std::byte* to) { put_halves_of_64(codes, 64, to); });
        case Format::int4_w32:
            return for_each_block_of<INT4_W32>(row, out, [&](Codes codes, size_t g, std::byte* to) {
                store(to + INT4_W32::d_at, row.scales[g]);
                store(to + INT4_W32::zero_at, static_cast<uint32_t>(row.zeros[g]));
                put_halves<16>(codes, to + INT4_W32::codes_at);
            });
        case Format::q8_0:
            return write_symmetric8<Q8_0>(row, out);
        case Format::int8_s64:
            return write_symmetric8<INT8_S64>(row, out);
        case Format::int8_s128:
            return write_symmetric8<INT8_S128>(row, out);
        case Format::int8_z32:
            return write_zeros8<INT8_Z32>(row, out);
        case Format::int8_z64:
            return write_zeros8<INT8_Z64>(row, out);
        case Format::int8_z128:
            return write_zeros8<INT8_Z128>(row, out);
        case Format::int8_row:
            store(out, row.scales.front());
            return for_each_block_of<INT8_ROW>(
                row, out + INT8_ROW::row_header_bytes,
                [](Codes codes, size_t, std::byte* to) { put_signed(codes, 32, to); });
        case Format::int8_w32:
            return for_each_block_of<INT8_W32>(row, out, [&](Codes codes, size_t g, std::byte* to) {
                store(to + INT8_W32::d_at, row.scales[g]);
                store(to + INT8_W32::zero_at, static_cast<int32_t>(row.zeros[g]) - 128);
                put_signed(codes, 32, to + INT8_W32::codes_at);
            });
        default:
            return;
    }
}

void gather_mxfp8_row(const std::byte* codes, const std::byte* scales, int64_t cols,
                      std::byte* out) noexcept {
    for (int64_t k = 0; k < cols; k += MXFP8::block_elems) {
        out[MXFP8::exponent_at] = *scales++;
        for (int e = 0; e < MXFP8::block_elems; ++e) out[MXFP8::codes_at + fp8_code_of_32(e)] = codes[k + e];
        out += MXFP8::block_bytes;
    }
}

}  // namespace minim
