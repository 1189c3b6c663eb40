// SPDX-License-Identifier: Apache-2.0
#include "format/integers.h"

#include <cstring>

#include "base/half.h"
#include "format/int4_z128.h"
#include "format/int4_z32.h"
#include "format/int8_z32.h"
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

// Writes 32 codes of eight bits, less 128, as signed bytes.
void put_signed(const uint8_t* codes, std::byte* to) {
    for (int i = 0; i < 32; ++i) to[i] = static_cast<std::byte>(codes[i] ^ 0x80U);
}

// Calls block(codes, scale, zero, place) for each block of the row.
template <typename Block, typename Write>
void for_each_block_of(const IntegerRow& row, std::byte* out, const Write& write) {
    for (size_t k = 0; k < row.codes.size(); k += Block::block_elems) {
        const size_t group = k / static_cast<size_t>(row.group);
        write(row.codes.data() + k, row.scales[group], row.zeros[group], out);
        out += Block::block_bytes;
    }
}

}  // namespace

void write_integer_row(Format format, const IntegerRow& row, std::byte* out) noexcept {
    using Codes = const uint8_t*;
    if (format == Format::q4_0) {
        for_each_block_of<Q4_0>(row, out, [](Codes codes, float scale, int16_t, std::byte* to) {
            store(to + Q4_0::d_at, float_to_f16(scale));
            put_halves<16>(codes, to + Q4_0::codes_at);
        });
    } else if (format == Format::int4_z32) {
        for_each_block_of<INT4_Z32>(row, out, [](Codes codes, float scale, int16_t zero, std::byte* to) {
            store(to + INT4_Z32::d_at, float_to_f16(scale));
            store(to + INT4_Z32::zero_at, static_cast<uint16_t>(zero));
            put_halves<16>(codes, to + INT4_Z32::codes_at);
        });
    } else if (format == Format::int4_w32) {
        for_each_block_of<INT4_W32>(row, out, [](Codes codes, float scale, int16_t zero, std::byte* to) {
            store(to + INT4_W32::d_at, scale);
            store(to + INT4_W32::zero_at, static_cast<uint32_t>(zero));
            put_halves<16>(codes, to + INT4_W32::codes_at);
        });
    } else if (format == Format::int4_z128) {
        for_each_block_of<INT4_Z128>(row, out, [](Codes codes, float scale, int16_t zero, std::byte* to) {
            store(to + INT4_Z128::d_at, float_to_f16(scale));
            store(to + INT4_Z128::zero_at, static_cast<uint16_t>(zero));
            for (int i = 0; i < 2; ++i) put_halves<32>(codes + 64 * i, to + INT4_Z128::codes_at + 32 * i);
        });
    } else if (format == Format::q8_0) {
        for_each_block_of<Q8_0>(row, out, [](Codes codes, float scale, int16_t, std::byte* to) {
            store(to + Q8_0::d_at, float_to_f16(scale));
            put_signed(codes, to + Q8_0::codes_at);
        });
    } else if (format == Format::int8_z32) {
        for_each_block_of<INT8_Z32>(row, out, [](Codes codes, float scale, int16_t zero, std::byte* to) {
            store(to + INT8_Z32::d_at, scale);
            store(to + INT8_Z32::zero_at, static_cast<int32_t>(zero) - 128);
            put_signed(codes, to + INT8_Z32::codes_at);
        });
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
