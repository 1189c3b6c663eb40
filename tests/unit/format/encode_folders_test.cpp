// SPDX-License-Identifier: Apache-2.0
// The encoders of quantised folders: as exact as a search in NumPy, with the same bytes on every machine, and strict with what they are given.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/encode/folders.h"
#include "golden.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/setting.h"
#include "weight_matrices.h"

namespace minim {
namespace {

using test::WeightMatrix;

struct FolderMatrix {
    std::vector<uint8_t> codes;
    std::vector<uint8_t> scale_bytes;
    std::vector<float> scales;
    std::vector<uint8_t> zeros;
    std::vector<float> decoded;
    bool operator==(const FolderMatrix&) const = default;
};

EncodeFolderRows folder_rows(const WeightMatrix& matrix, bool weighted) {
    return {.x = matrix.weights.data(),
            .n_rows = matrix.n_rows,
            .n_columns = matrix.n_columns,
            .importance = weighted ? matrix.importance.data() : nullptr};
}

float largest_of(const std::vector<float>& x) {
    float largest = 0.0F;
    for (const float weight : x) largest = std::max(largest, std::fabs(weight));
    return largest;
}

// FP4 in groups, both kinds.
FolderMatrix fp4_matrix(const WeightMatrix& matrix, bool weighted, bool is_nvfp4) {
    const size_t n = matrix.weights.size();
    const size_t group = is_nvfp4 ? 16 : 32;
    FolderMatrix result;
    result.codes.resize(n / 2);
    result.scale_bytes.resize(n / group);
    const float factor = is_nvfp4 ? nvfp4_factor(largest_of(matrix.weights)) : 1.0F;
    if (is_nvfp4) {
        encode_nvfp4_folder(folder_rows(matrix, weighted), factor, result.codes.data(),
                            result.scale_bytes.data());
    } else {
        encode_mxfp4_folder(folder_rows(matrix, weighted), result.codes.data(), result.scale_bytes.data());
    }
    for (size_t i = 0; i < n; ++i) {
        const int code = result.codes[i / 2] >> (4 * (i % 2)) & 15;
        const uint8_t scale = result.scale_bytes[i / group];
        result.decoded.push_back(e2m1_to_float(code) *
                                 (is_nvfp4 ? e4m3_to_float(scale) * factor : e8m0_to_float(scale)));
    }
    return result;
}

FolderMatrix fp8_matrix(const WeightMatrix& matrix) {
    const int64_t columns_of_blocks = (matrix.n_columns + 127) / 128;
    FolderMatrix result;
    result.codes.resize(matrix.weights.size());
    result.scales.resize(static_cast<size_t>((matrix.n_rows + 127) / 128 * columns_of_blocks));
    encode_fp8_folder(folder_rows(matrix, false), result.codes.data(), result.scales.data());
    for (int64_t i = 0; i < matrix.n_rows; ++i) {
        for (int64_t k = 0; k < matrix.n_columns; ++k) {
            const float scale = result.scales[static_cast<size_t>(i / 128 * columns_of_blocks + k / 128)];
            result.decoded.push_back(
                e4m3_to_float(result.codes[static_cast<size_t>(i * matrix.n_columns + k)]) * scale);
        }
    }
    return result;
}

FolderMatrix integer_matrix(const WeightMatrix& matrix, bool weighted, const IntegerGroups& groups) {
    const int64_t group = groups.group > 0 ? groups.group : matrix.n_columns;
    const size_t n = matrix.weights.size();
    FolderMatrix result;
    result.codes.resize(n);
    result.scales.resize(n / static_cast<size_t>(group));
    if (groups.with_zeros) result.zeros.resize(result.scales.size());
    encode_integers_folder(folder_rows(matrix, weighted), groups, result.codes.data(), result.scales.data(),
                           groups.with_zeros ? result.zeros.data() : nullptr);
    for (size_t i = 0; i < n; ++i) {
        const size_t g = i / static_cast<size_t>(group);
        const int code =
            groups.with_zeros ? result.codes[i] - result.zeros[g] : static_cast<int8_t>(result.codes[i]);
        result.decoded.push_back(static_cast<float>(code) * result.scales[g]);
    }
    return result;
}

struct NamedIntegers {
    const char* name;
    IntegerGroups groups;
};

constexpr NamedIntegers k_integers[] = {
    {"INT4 g32", {4, 32, false, ScaleType::bf16}},
    {"INT4 g128", {4, 128, false, ScaleType::bf16}},
    {"INT4 g128 zero points", {4, 128, true, ScaleType::f16}},
    {"INT8 g128", {8, 128, false, ScaleType::bf16}},
    {"INT8 row", {8, 0, false, ScaleType::bf16}},
};

FolderMatrix encoded_as(const std::string& name, const WeightMatrix& matrix, bool weighted) {
    if (name == "NVFP4 folder") return fp4_matrix(matrix, weighted, true);
    if (name == "MXFP4 folder") return fp4_matrix(matrix, weighted, false);
    if (name == "FP8 128x128") return fp8_matrix(matrix);
    for (const NamedIntegers& entry : k_integers) {
        if (name == entry.name) return integer_matrix(matrix, weighted, entry.groups);
    }
    throw std::invalid_argument(name);
}

nlohmann::json folder_quality() {
    const std::vector<std::byte> text = test::read_data_file("encode_quality.json");
    const auto* begin = reinterpret_cast<const char*>(text.data());
    return nlohmann::json::parse(begin, begin + text.size()).at("folders");
}

// The figures have six digits.
constexpr double k_figures = 1.0 + 1e-5;

void check_folder_quality(const std::string& kind) {
    const WeightMatrix matrix = test::weight_matrix(kind, 1);
    const nlohmann::json quality = folder_quality();
    for (const auto& [name, figures] : quality.items()) {
        CAPTURE(name, kind);
        const nlohmann::json& peer = figures.at(kind);
        const double plain = test::relative_error(matrix, encoded_as(name, matrix, false).decoded, false);
        // FP8 is not searched.
        CHECK(plain <= k_figures * peer.at(name == "FP8 128x128" ? "max" : "plain").get<double>());
        if (name == "FP8 128x128") continue;
        const FolderMatrix weighted = encoded_as(name, matrix, true);
        CHECK(test::relative_error(matrix, weighted.decoded, true) <=
              k_figures * peer.at("weighted").get<double>());
        CHECK(test::relative_error(matrix, weighted.decoded, false) <= 1.12 * peer.at("max").get<double>());
    }
}

}  // namespace

TEST_CASE("MXFP8 takes the power of two with the smaller error, and holds every magnitude") {
    // Groups with peaks below and above 1.75 times a power of two, one of zeros, one of the smallest numbers, one of the largest.
    constexpr int64_t k_group = 32;
    const float peaks[] = {1.7F, 1.9F, 0.0F, 1e-40F, 3e38F, 447.0F};
    WeightMatrix matrix = test::weight_matrix("narrow", 1);
    matrix.n_rows = 1;
    matrix.n_columns = k_group * std::ssize(peaks);
    matrix.weights.assign(static_cast<size_t>(matrix.n_columns), 0.0F);
    for (int64_t i = 0; i < matrix.n_columns; ++i) {
        const auto within = static_cast<float>(i % k_group);
        matrix.weights[static_cast<size_t>(i)] =
            peaks[i / k_group] * (i % 2 == 0 ? 1.0F : -1.0F) * (1.0F - within / 40.0F);
    }
    std::vector<uint8_t> codes(matrix.weights.size());
    std::vector<uint8_t> scales(std::size(peaks));
    encode_mxfp8_folder(folder_rows(matrix, false), codes.data(), scales.data());
    const auto error_with = [&](size_t group, int exponent) {
        double error = 0.0;
        for (size_t i = group * k_group; i < (group + 1) * k_group; ++i) {
            const double x = static_cast<double>(matrix.weights[i]);
            const float code = e4m3_to_float(float_to_e4m3(static_cast<float>(std::ldexp(x, -exponent))));
            error += std::pow(std::ldexp(static_cast<double>(code), exponent) - x, 2);
        }
        return error;
    };
    for (size_t group = 0; group < std::size(peaks); ++group) {
        INFO("peak " << peaks[group]);
        const int exponent = static_cast<int>(scales[group]) - 127;
        CHECK(scales[group] < 255);
        const double own = error_with(group, exponent);
        CHECK(own <= error_with(group, exponent + 1));
        if (scales[group] > 0) CHECK(own <= error_with(group, exponent - 1));
        for (size_t i = group * k_group; i < (group + 1) * k_group; ++i)
            CHECK(codes[i] == float_to_e4m3(std::ldexp(matrix.weights[i], -exponent)));
    }
}

TEST_CASE("folders are encoded as exactly as a search in NumPy does it") {
    check_folder_quality("narrow");
}

#ifdef MINIM_FULL_TESTS
TEST_CASE("larger matrices of folders are encoded as exactly as a search in NumPy does it") {
    check_folder_quality("gate");
    check_folder_quality("down");
}
#endif

TEST_CASE("E4M3 codes are the nearest ones") {
    for (int code = 0; code < 127; ++code) {
        const float value = e4m3_to_float(static_cast<uint8_t>(code));
        CHECK(float_to_e4m3(value) == code);
        CHECK(float_to_e4m3(-value) == (code | 0x80));
        if (code == 126) continue;
        const float next = e4m3_to_float(static_cast<uint8_t>(code + 1));
        const float middle = 0.5F * (value + next);
        CAPTURE(code, middle);
        CHECK(float_to_e4m3(middle) == (code % 2 == 0 ? code : code + 1));
        CHECK(float_to_e4m3(std::nextafter(middle, 0.0F)) == code);
        CHECK(float_to_e4m3(std::nextafter(middle, 500.0F)) == code + 1);
    }
    CHECK(float_to_e4m3(449.0F) == 126);
    CHECK(float_to_e4m3(std::numeric_limits<float>::infinity()) == 126);
}

TEST_CASE("bytes of folders do not depend on the instruction set") {
    const WeightMatrix matrix = test::weight_matrix("narrow", 7);
    const nlohmann::json quality = folder_quality();
    for (const auto& [name, figures] : quality.items()) {
        for (const bool weighted : {false, true}) {
            FolderMatrix scalar;
            for (const CpuLevel level : cpu_levels()) {
                if (level != CpuLevel::scalar && level != detected_cpu_level()) continue;
                const std::string level_name(to_string(level));
                const test::Setting variable("MINIM_CPU", level_name.c_str());
                CAPTURE(name, level_name, weighted);
                const FolderMatrix result = encoded_as(name, matrix, weighted);
                if (level == CpuLevel::scalar) scalar = result;
                CHECK(result == scalar);
            }
        }
    }
}

TEST_CASE("groups of folders that are zero, tiny or of one sign decode to what they were") {
    WeightMatrix matrix{4, 128, std::vector<float>(4 * 128, 0.0F), std::vector<float>(128, 1.0F)};
    for (size_t i = 0; i < 128; ++i) {
        matrix.weights[128 + i] = 0.0078125F;                                  // positive
        matrix.weights[256 + i] = -0.0078125F;                                 // negative
        matrix.weights[384 + i] = 1e-6F * (static_cast<float>(i % 3) - 1.0F);  // small beside the others
    }
    const nlohmann::json quality = folder_quality();
    for (const auto& [name, figures] : quality.items()) {
        CAPTURE(name);
        const FolderMatrix result = encoded_as(name, matrix, false);
        for (size_t i = 0; i < 512; ++i) {
            const double error =
                std::fabs(static_cast<double>(result.decoded[i]) - static_cast<double>(matrix.weights[i]));
            CHECK(error <= 0.004 * 0.0078125);
        }
        CHECK(std::all_of(result.decoded.begin(), result.decoded.begin() + 128,
                          [](float w) { return w == 0.0F; }));
    }
    // A group that is not zero has a scale that is not zero.
    const FolderMatrix nvfp4 = fp4_matrix(matrix, false, true);
    CHECK(std::all_of(nvfp4.scale_bytes.begin() + 8, nvfp4.scale_bytes.end(),
                      [](uint8_t scale) { return scale != 0; }));
}

TEST_CASE("FP8 blocks at the edges of a matrix are smaller") {
    WeightMatrix matrix{130, 200, std::vector<float>(130 * 200, 0.25F), {}};
    matrix.weights[129 * 200 + 199] = 8.0F;
    const FolderMatrix result = fp8_matrix(matrix);
    CHECK(result.scales == std::vector<float>{0.25F / 448.0F, 0.25F / 448.0F, 0.25F / 448.0F, 8.0F / 448.0F});
    CHECK(result.decoded.back() == 8.0F);
}

TEST_CASE("the encoders of folders refuse what they cannot encode") {
    WeightMatrix matrix{2, 128, std::vector<float>(256, 0.5F), std::vector<float>(128, 1.0F)};
    uint8_t codes[256];
    uint8_t bytes[256];
    float scales[256];
    const auto nvfp4 = [&](float factor) {
        encode_nvfp4_folder(folder_rows(matrix, true), factor, codes, bytes);
    };
    test::expect_error(Status::invalid, "factor 0", [&] { nvfp4(0.0F); });
    test::expect_error(Status::invalid, "row 0 from column 0 are too large", [&] { nvfp4(1e-5F); });
    test::expect_error(Status::invalid, "5 bits", [&] {
        encode_integers_folder(folder_rows(matrix, false), {5, 32, false, ScaleType::f32}, codes, scales,
                               nullptr);
    });
    test::expect_error(Status::invalid, "groups of INT4 (96 each)", [&] {
        encode_integers_folder(folder_rows(matrix, false), {4, 96, false, ScaleType::f32}, codes, scales,
                               nullptr);
    });
    matrix.weights[128 + 9] = std::nanf("");
    test::expect_error(Status::invalid, "row 1, column 9", [&] { nvfp4(1.0F); });
    test::expect_error(Status::invalid, "row 1, column 9",
                       [&] { encode_mxfp4_folder(folder_rows(matrix, true), codes, bytes); });
    test::expect_error(Status::invalid, "row 1, column 9",
                       [&] { encode_fp8_folder(folder_rows(matrix, true), codes, scales); });
    test::expect_error(Status::invalid, "row 1, column 9",
                       [&] { encode_mxfp8_folder(folder_rows(matrix, true), codes, bytes); });
    matrix.weights[128 + 9] = 0.5F;
    matrix.importance[3] = -1.0F;
    test::expect_error(Status::invalid, "importance of column 3", [&] { nvfp4(1.0F); });
}

}  // namespace minim
