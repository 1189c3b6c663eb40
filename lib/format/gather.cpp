// SPDX-License-Identifier: Apache-2.0
#include "format/gather.h"

#include <cstring>

#include "format/fp8_e4m3_b128.h"
#include "format/int4.h"
#include "format/integers.h"
#include "format/mxfp4.h"
#include "format/nvfp4.h"

namespace minim {
namespace {

template <typename T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(value));
    return value;
}

// Rearranges the codes of 2 n elements, two per byte in order, to n bytes whose low nibbles are the first n elements.
template <int n>
void split_halves(const std::byte* pairs, std::byte* out) {
    for (int i = 0; i < n; i += 2) {
        const std::byte first = pairs[i / 2];
        const std::byte last = pairs[n / 2 + i / 2];
        out[i] = (first & std::byte{15}) | last << 4;
        out[i + 1] = first >> 4 | (last & std::byte{0xF0});
    }
}

// The four bits of output j of eight begin at bit 4 * k_awq_order[j] of a word.
constexpr int k_awq_order[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// Writes group g of the blocks of eight rows: that of the 128 inputs from input `col` on.
void gather_awq_group(const AwqMatrix& matrix, int64_t first_row, int64_t col, int g, int64_t row_bytes,
                      std::byte* out) {
    using Block = INT4_Z128;
    const int64_t n_words = matrix.rows / 8;
    const int64_t word = first_row / 8;
    const int64_t group = col / Block::group;
    const auto zeros = load<uint32_t>(matrix.zeros + 4 * (group * n_words + word));
    std::byte masks[8];  // of two codes
    for (int j = 0; j < 8; ++j) {
        std::byte* block = out + j * row_bytes;
        const auto d = load<uint16_t>(matrix.scales + 2 * (group * matrix.rows + first_row + j));
        const auto packed = pack_zero(d, static_cast<int32_t>(zeros >> (4 * k_awq_order[j]) & 15), 4);
        std::memcpy(block + Block::d_at + 2 * g, &packed.d, sizeof(packed.d));
        const std::byte others = g == 0 ? std::byte{0} : block[Block::zeros_at];
        block[Block::zeros_at] = others | static_cast<std::byte>(packed.zero << (4 * g));
        masks[j] = static_cast<std::byte>(packed.code_mask * 0x11);
    }
    constexpr uint32_t k_low = 0x0F0F0F0FU;
    const std::byte* codes = matrix.codes + 4 * (col * n_words + word);
    const int first_code = Block::codes_at + g * Block::group / 2;
    for (int b = 0; b < Block::group / 2; ++b) {
        const int k = b / 32 * 64 + b % 32;
        const auto first = load<uint32_t>(codes + 4 * k * n_words);
        const auto last = load<uint32_t>(codes + 4 * (k + 32) * n_words);
        // Bytes of the outputs at even and at odd nibbles.
        const uint32_t pairs[2] = {(first & k_low) | (last & k_low) << 4,
                                   (first >> 4 & k_low) | (last & ~k_low)};
        for (int j = 0; j < 8; ++j) {
            const int nibble = k_awq_order[j];
            out[j * row_bytes + first_code + b] =
                static_cast<std::byte>(pairs[nibble % 2] >> (8 * (nibble / 2))) ^ masks[j];
        }
    }
}

}  // namespace

void gather_fp8_row(const std::byte* codes, const float* scales, int64_t cols, std::byte* out) noexcept {
    using Block = FP8_E4M3_B128;
    for (int64_t b = 0; b < cols / Block::block_elems; ++b) {
        std::memcpy(out + Block::scale_at, scales + b, sizeof(float));
        for (int e = 0; e < Block::block_elems; ++e) out[Block::codes_at + fp8_code_of_32(e)] = codes[e];
        codes += Block::block_elems;
        out += Block::block_bytes;
    }
}

void gather_nvfp4_row(const std::byte* codes, const std::byte* scales, int64_t cols,
                      std::byte* out) noexcept {
    using Block = NVFP4;
    constexpr std::byte k_sign{0x80};
    for (int64_t b = 0; b < cols / Block::block_elems; ++b) {
        for (int g = 0; g < 4; ++g) {
            std::byte* to = out + Block::codes_at + 8 * g;
            const std::byte scale = *scales++;
            split_halves<8>(codes, to);
            codes += 8;
            out[Block::scales_at + g] = scale & ~k_sign;
            if ((scale & k_sign) != std::byte{0})
                for (int i = 0; i < 8; ++i) to[i] ^= std::byte{0x88};
        }
        out += Block::block_bytes;
    }
}

void gather_mxfp4_row(const std::byte* codes, const std::byte* scales, int64_t cols,
                      std::byte* out) noexcept {
    using Block = MXFP4;
    for (int64_t b = 0; b < cols / Block::block_elems; ++b) {
        out[Block::exponent_at] = *scales++;
        split_halves<16>(codes, out + Block::codes_at);
        codes += 16;
        out += Block::block_bytes;
    }
}

void gather_awq_rows(const AwqMatrix& matrix, int64_t first, int64_t count, std::byte* out) noexcept {
    using Block = INT4_Z128;
    const int64_t row_bytes = matrix.cols / Block::block_elems * Block::block_bytes;
    for (int64_t r = 0; r < count; r += 8) {
        for (int64_t col = 0; col < matrix.cols; col += Block::group) {
            const auto g = static_cast<int>(col % Block::block_elems / Block::group);
            gather_awq_group(matrix, first + r, col, g, row_bytes,
                             out + r * row_bytes + col / Block::block_elems * Block::block_bytes);
        }
    }
}

bool has_nan_e4m3(std::span<const std::byte> codes) noexcept {
    bool found = false;
    for (const std::byte code : codes) found |= (code & std::byte{0x7F}) == std::byte{0x7F};
    return found;
}

}  // namespace minim
