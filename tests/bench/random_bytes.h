// SPDX-License-Identifier: Apache-2.0
// Random bytes that can be computed with in any format: every 16 bits are a small normal number as F16, BF16 or the
// upper half of an F32, so no scale is infinite, NaN or subnormal, which would be slow. In formats whose scales are
// single bytes, these scales are such numbers too, as in real weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/format.h"

namespace minim::bench {

constexpr bool has_byte_scales(Format format) {
    return format == Format::nvfp4 || format == Format::mxfp4;
}

inline bool has_scales_anywhere(Format format) {
    return traits(format).block_bytes % 2 == 1 && !has_byte_scales(format) && format != Format::mxfp8;
}

class RandomBytes {
  public:
    RandomBytes() = default;
    explicit RandomBytes(Format format, uint64_t seed = 0)
        : is_set_(has_byte_scales(format) ? k_numbers | k_byte_scales : k_numbers), state_(k_start ^ seed) {
        if (!has_scales_anywhere(format)) return;
        is_random_ = 0x0F0F0F0F0F0F0F0FU;
        is_set_ = 0x2020202020202020U;
    }

    void fill(std::span<std::byte> bytes) {  // whole words of 8 bytes
        auto* words = reinterpret_cast<uint64_t*>(bytes.data());
        for (size_t i = 0; i < bytes.size() / sizeof(uint64_t); ++i) {
            state_ = state_ * 6364136223846793005U + 1442695040888963407U;
            words[i] = ((state_ ^ (state_ >> 29)) & is_random_) | is_set_;
        }
    }

  private:
    static constexpr uint64_t k_start = 0x9E3779B97F4A7C15U;
    static constexpr uint64_t k_numbers = 0x2000200020002000U;
    // No lower byte is a subnormal E4M3, or an E8M0 below 2^-55.
    static constexpr uint64_t k_byte_scales = 0x0048004800480048U;

    uint64_t is_random_ = 0x0FFF0FFF0FFF0FFFU;
    uint64_t is_set_ = k_numbers;
    uint64_t state_ = k_start;
};

}  // namespace minim::bench
