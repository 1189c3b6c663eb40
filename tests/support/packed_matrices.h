// SPDX-License-Identifier: Apache-2.0
// A matrix X in the layouts of quantised safetensors folders, with codes by chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "support/safetensors_folder.h"

namespace minim::test {

struct MatrixShape {
    int64_t rows = 152;
    int64_t cols = 256;
    int64_t size() const { return rows * cols; }
};

inline Stored bytes_of(const std::string& type, const std::vector<int64_t>& shape, int64_t bytes,
                       uint32_t seed) {
    std::mt19937 random(seed);
    Stored stored = {type, shape, std::vector<std::byte>(static_cast<size_t>(bytes))};
    for (std::byte& byte : stored.data) byte = static_cast<std::byte>(random() % 0x7FU);
    return stored;
}

inline Stored floats(const std::vector<int64_t>& shape, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.25F + static_cast<float>(i);
    return stored(shape, values.data());
}

// Returns a tensor of numbers near 1, in F16, BF16 or F32.
inline Stored half_floats(const std::string& type, const std::vector<int64_t>& shape, int64_t count) {
    Stored stored = {type, shape, {}};
    for (int64_t i = 0; i < count; ++i) {
        const float value = 1.0F + static_cast<float>(i % 64) / 64.0F;
        const uint16_t bits = type == "F16" ? float_to_f16(value) : float_to_bf16(value);
        const auto bytes =
            type == "F32" ? std::as_bytes(std::span(&value, 1)) : std::as_bytes(std::span(&bits, 1));
        stored.data.insert(stored.data.end(), bytes.begin(), bytes.end());
    }
    return stored;
}

inline Folder fp8(const Stored& scales, const char* name = "X.weight_scale_inv", MatrixShape x = {}) {
    return {{"X.weight", bytes_of("F8_E4M3", {x.rows, x.cols}, x.size(), 1)}, {name, scales}};
}

inline Folder mxfp8(MatrixShape x = {}) {
    return fp8(bytes_of("U8", {x.rows, x.cols / 32}, x.size() / 32, 5), "X.weight_scale", x);
}

inline Folder nvfp4(MatrixShape x = {}) {
    const float factor = 0.5F;
    return {{"X.weight", bytes_of("U8", {x.rows, x.cols / 2}, x.size() / 2, 2)},
            {"X.weight_scale", bytes_of("F8_E4M3", {x.rows, x.cols / 16}, x.size() / 16, 3)},
            {"X.weight_scale_2", stored({}, &factor)},
            {"X.input_scale", stored({}, &factor)}};
}

inline Folder packed_nvfp4() {
    Folder folder = nvfp4();
    const float divisor = 4.0F;
    folder["X.weight_packed"] = folder.at("X.weight");
    folder["X.weight_global_scale"] = stored({1}, &divisor);
    folder.erase("X.weight");
    folder.erase("X.weight_scale_2");
    return folder;
}

inline Folder mxfp4(MatrixShape x = {}) {
    return {{"X.weight_packed", bytes_of("U8", {x.rows, x.cols / 2}, x.size() / 2, 4)},
            {"X.weight_scale", bytes_of("U8", {x.rows, x.cols / 32}, x.size() / 32, 5)}};
}

inline Folder awq(MatrixShape x = {}) {
    return {{"X.qweight", bytes_of("I32", {x.cols, x.rows / 8}, x.size() / 2, 6)},
            {"X.qzeros", bytes_of("I32", {x.cols / 128, x.rows / 8}, x.size() / 128 / 2, 7)},
            {"X.scales", bytes_of("F16", {x.cols / 128, x.rows}, x.size() / 128 * 2, 8)}};
}

// Returns a symmetric INT4 matrix as compressed-tensors stores it.
inline Folder int4(int64_t group, const std::string& scale_type = "BF16", MatrixShape x = {}) {
    return {{"X.weight_packed", bytes_of("I32", {x.rows, x.cols / 8}, x.size() / 2, 6)},
            {"X.weight_scale", half_floats(scale_type, {x.rows, x.cols / group}, x.size() / group)}};
}

// Returns a symmetric INT8 matrix as compressed-tensors stores it.
inline Folder int8(int64_t group, const std::string& scale_type = "BF16", MatrixShape x = {}) {
    return {{"X.weight", bytes_of("I8", {x.rows, x.cols}, x.size(), 6)},
            {"X.weight_scale", half_floats(scale_type, {x.rows, x.cols / group}, x.size() / group)}};
}

// Returns a matrix as GPTQ stores it, with zero points and inputs in order.
inline Folder gptq(int64_t bits, int64_t group, MatrixShape x = {}) {
    const int64_t n_groups = x.cols / group;
    Stored order = {"I32", {x.cols}, std::vector<std::byte>(static_cast<size_t>(x.cols) * 4)};
    for (int64_t k = 0; k < x.cols; ++k)
        order.data[static_cast<size_t>(4 * k)] = static_cast<std::byte>(k / group);
    const auto bytes = [&](int64_t count) { return count * bits / 8; };
    return {{"X.qweight", bytes_of("I32", {x.cols * bits / 32, x.rows}, bytes(x.size()), 6)},
            {"X.qzeros", bytes_of("I32", {n_groups, x.rows * bits / 32}, bytes(n_groups * x.rows), 7)},
            {"X.scales", half_floats("F16", {n_groups, x.rows}, n_groups * x.rows)},
            {"X.g_idx", order}};
}

}  // namespace minim::test
