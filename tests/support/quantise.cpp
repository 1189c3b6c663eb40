// SPDX-License-Identifier: Apache-2.0
#include "support/quantise.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "format/e4m3.h"
#include "support/e4m3.h"

namespace minim::test {
namespace {

constexpr float k_e2m1_max = 6.0F;
constexpr float k_e4m3_max = 448.0F;
constexpr float k_e4m3_smallest = 0.001953125F;  // 2^-9

// Returns the code of the nearest E2M1 number, ties to the even code; bit 3 is the sign.
uint8_t e2m1_code(float value) {
    const float magnitude = std::abs(value);
    int code = 0;
    for (const float midpoint : {0.25F, 1.25F, 2.5F, 5.0F}) code += magnitude > midpoint ? 1 : 0;
    for (const float midpoint : {0.75F, 1.75F, 3.5F}) code += magnitude >= midpoint ? 1 : 0;
    return static_cast<uint8_t>(value < 0.0F ? code | 8 : code);
}

}  // namespace

float largest_magnitude(std::span<const float> values) {
    float largest = 0.0F;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    return largest;
}

std::vector<SafetensorsTensor> quantise_fp8(const std::string& module, const Matrix& matrix) {
    constexpr size_t k_block = 128;
    const size_t across = matrix.n_in / k_block;
    std::vector<float> scales(matrix.n_out / k_block * across);
    for (size_t i = 0; i < matrix.n_out; ++i) {
        for (size_t b = 0; b < across; ++b) {
            float& scale = scales[i / k_block * across + b];
            scale = std::max(scale, largest_magnitude(matrix.row(i).subspan(b * k_block, k_block)));
        }
    }
    for (float& scale : scales) scale = std::max(scale / k_e4m3_max, 1e-12F);
    std::vector<uint8_t> codes;
    codes.reserve(matrix.values.size());
    for (size_t i = 0; i < matrix.n_out; ++i) {
        for (size_t k = 0; k < matrix.n_in; ++k) {
            codes.push_back(
                float_to_e4m3_saturated(matrix.row(i)[k] / scales[i / k_block * across + k / k_block]));
        }
    }
    return {tensor_of(module + ".weight", "F8_E4M3", {matrix.n_out, matrix.n_in}, codes),
            tensor_of(module + ".weight_scale_inv", "F32", {matrix.n_out / k_block, across}, scales)};
}

std::vector<SafetensorsTensor> quantise_nvfp4(const std::string& module, const Matrix& matrix,
                                              double tensor_scale, float input_scale) {
    constexpr size_t k_group = 16;
    const auto shared = static_cast<float>(tensor_scale);
    std::vector<uint8_t> scales;
    std::vector<uint8_t> codes;
    for (size_t i = 0; i < matrix.n_out; ++i) {
        for (size_t at = 0; at < matrix.n_in; at += k_group) {
            const auto group = matrix.row(i).subspan(at, k_group);
            const float wanted = largest_magnitude(group) / k_e2m1_max / shared;
            scales.push_back(float_to_e4m3_saturated(std::max(wanted, k_e4m3_smallest)));
            const float scale = e4m3_to_float(scales.back()) * shared;
            for (size_t k = 0; k < k_group; k += 2) {
                codes.push_back(
                    static_cast<uint8_t>(e2m1_code(group[k] / scale) | e2m1_code(group[k + 1] / scale) << 4));
            }
        }
    }
    return {tensor_of(module + ".weight", "U8", {matrix.n_out, matrix.n_in / 2}, codes),
            tensor_of(module + ".weight_scale", "F8_E4M3", {matrix.n_out, matrix.n_in / k_group}, scales),
            tensor_of(module + ".weight_scale_2", "F32", {}, std::vector{shared}),
            tensor_of(module + ".input_scale", "F32", {}, std::vector{input_scale})};
}

std::vector<SafetensorsTensor> quantise_awq(const std::string& module, const Matrix& matrix) {
    constexpr size_t k_group = 128;
    constexpr size_t k_in_word = 8;
    // The nibble of a word in which each of eight outputs lies.
    static constexpr size_t k_nibble[k_in_word] = {0, 4, 1, 5, 2, 6, 3, 7};
    const size_t n_groups = matrix.n_in / k_group;
    const size_t n_words = matrix.n_out / k_in_word;
    std::vector<uint32_t> codes(matrix.n_in * n_words);
    std::vector<uint32_t> zeros(n_groups * n_words);
    std::vector<uint16_t> scales(n_groups * matrix.n_out);
    for (size_t o = 0; o < matrix.n_out; ++o) {
        const auto put = [&](std::vector<uint32_t>& words, size_t row, float code) {
            words[row * n_words + o / k_in_word] |= static_cast<uint32_t>(code)
                                                    << 4 * k_nibble[o % k_in_word];
        };
        for (size_t g = 0; g < n_groups; ++g) {
            const auto group = matrix.row(o).subspan(g * k_group, k_group);
            const float largest = std::max(*std::ranges::max_element(group), 0.0F);
            const float smallest = std::min(*std::ranges::min_element(group), 0.0F);
            const uint16_t half = float_to_f16(std::max((largest - smallest) / 15.0F, 1e-5F));
            const float scale = f16_to_float(half);
            const float zero = std::clamp(std::nearbyint(-smallest / scale), 0.0F, 15.0F);
            scales[g * matrix.n_out + o] = half;
            put(zeros, g, zero);
            for (size_t k = 0; k < k_group; ++k)
                put(codes, g * k_group + k, std::clamp(std::nearbyint(group[k] / scale) + zero, 0.0F, 15.0F));
        }
    }
    return {tensor_of(module + ".qweight", "I32", {matrix.n_in, n_words}, codes),
            tensor_of(module + ".qzeros", "I32", {n_groups, n_words}, zeros),
            tensor_of(module + ".scales", "F16", {n_groups, matrix.n_out}, scales)};
}

}  // namespace minim::test
