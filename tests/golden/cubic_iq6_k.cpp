// SPDX-License-Identifier: Apache-2.0
#include "cubic_iq6_k.h"

#include <cstring>

#include "base/half.h"

namespace minim::test {
namespace {

constexpr int k_block_elems = 256;
constexpr int k_block_bytes = 212;

// Layout: d f16 @0, u16 table choice @2, i8 scales @4, low nibbles @20, high bit pairs @148.
void decode_block(const uint8_t* block, float* out) {
    uint16_t d_bits = 0;
    uint16_t extra = 0;
    std::memcpy(&d_bits, block, sizeof(d_bits));
    std::memcpy(&extra, block + 2, sizeof(extra));
    for (int e = 0; e < k_block_elems; ++e) {
        const int j = e / 32;
        const int g = e / 16;
        const int low = block[20 + 32 * (e / 64) + e % 32] >> (4 * (j % 2)) & 15;
        const int high = block[148 + 32 * (e / 128) + e % 32] >> (2 * (j % 4)) & 3;
        const auto q = static_cast<float>(low + 16 * high);
        const float value = -127.0F + q * (6.2568F + q * (-0.11218F + q * 0.0011972F));
        const float shift = (extra >> g & 1) != 0 ? 1.0F : 0.0F;
        const auto scale = static_cast<float>(static_cast<int8_t>(block[4 + g]));
        out[e] = f16_to_float(d_bits) * scale * (value + shift);
    }
}

}  // namespace

CubicIq6K::CubicIq6K(const model::Weights& weights) : weights_(weights) {
    replace(weights_.embedding);
    replace(weights_.output);
    for (model::LayerWeights& layer : weights_.layers) {
        for (backend::Matrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo}) replace(*matrix);
        for (backend::ExpertStack* stack : {&layer.experts.gate, &layer.experts.up, &layer.experts.down})
            replace(*stack);
    }
}

void CubicIq6K::replace(backend::Matrix& matrix) {
    if (matrix.format != Format::iq6_k) return;
    matrix.data = decode(matrix.data, matrix.rows, matrix.cols, matrix.row_bytes);
    matrix.format = Format::f32;
    matrix.row_bytes = matrix.cols * static_cast<int64_t>(sizeof(float));
}

void CubicIq6K::replace(backend::ExpertStack& stack) {
    if (stack.format != Format::iq6_k) return;
    for (const std::byte*& expert : stack.expert)
        expert = decode(expert, stack.rows, stack.cols, stack.row_bytes);
    stack.format = Format::f32;
    stack.row_bytes = stack.cols * static_cast<int64_t>(sizeof(float));
}

const std::byte* CubicIq6K::decode(const std::byte* data, int64_t rows, int64_t cols, int64_t row_bytes) {
    std::vector<float>& values = decoded_.emplace_back(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t b = 0; b < cols / k_block_elems; ++b) {
            const std::byte* block = data + r * row_bytes + b * k_block_bytes;
            decode_block(reinterpret_cast<const uint8_t*>(block),
                         values.data() + r * cols + b * k_block_elems);
        }
    }
    return reinterpret_cast<const std::byte*>(values.data());
}

}  // namespace minim::test
