// SPDX-License-Identifier: Apache-2.0
// Quantises matrices as in quantised checkpoints, with the bits of examples/models/train/formats.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/safetensors_writer.h"

namespace minim::test {

struct Matrix {
    size_t n_out = 0;
    size_t n_in = 0;
    std::vector<float> values;  // [n_out, n_in]

    std::span<const float> row(size_t i) const { return std::span(values).subspan(i * n_in, n_in); }
};

float largest_magnitude(std::span<const float> values);

// These functions return the tensors of a quantised matrix, named `module` + ".weight" and so on.
// E4M3 with a scale for each 128 x 128 block. The matrix must consist of whole blocks.
std::vector<SafetensorsTensor> quantise_fp8(const std::string& module, const Matrix& matrix);
// E2M1 with a scale for each 16 inputs. w1 and w3 of an expert share the scale of their tensor.
std::vector<SafetensorsTensor> quantise_nvfp4(const std::string& module, const Matrix& matrix,
                                              double tensor_scale, float input_scale);
// Codes of 4 bits with a zero point and an F16 scale for each 128 inputs, transposed.
std::vector<SafetensorsTensor> quantise_awq(const std::string& module, const Matrix& matrix);

template <typename T>
SafetensorsTensor tensor_of(std::string name, std::string_view type, std::vector<uint64_t> shape,
                            const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {std::move(name), type, std::move(shape), {bytes.begin(), bytes.end()}};
}

}  // namespace minim::test
