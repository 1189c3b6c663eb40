// SPDX-License-Identifier: Apache-2.0
// The encoders: as exact as those of other programs, with the same bytes on every machine, and strict with what they are given.
#include "format/encode/encode_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "golden.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/setting.h"
#include "weight_matrices.h"

namespace minim {
namespace {

using test::WeightMatrix;

std::vector<Format> encoded_formats() {
    std::vector<Format> formats;
    for (const FormatTraits& entry : all_formats()) {
        if (can_encode(entry.format)) formats.push_back(entry.format);
    }
    return formats;
}

// The factor of a matrix in NVFP4; 1 in other formats.
float factor_of(Format format, const std::vector<float>& x) {
    if (format != Format::nvfp4) return 1.0F;
    float largest = 0.0F;
    for (const float weight : x) largest = std::max(largest, std::fabs(weight));
    return largest / 2688.0F;
}

std::vector<std::byte> encoded(Format format, const std::vector<float>& x, int64_t n_columns,
                               const float* importance, EncodeEffort effort = EncodeEffort::full) {
    EncodeRows job{};
    job.format = format;
    job.x = x.data();
    job.n_columns = n_columns;
    job.n_rows = static_cast<int64_t>(x.size()) / n_columns;
    job.importance = importance;
    job.effort = effort;
    job.factor = factor_of(format, x);
    std::vector<std::byte> out(static_cast<size_t>(job.n_rows * row_bytes(format, n_columns)),
                               std::byte{0xAA});
    job.out = out.data();
    encode_rows(job);
    return out;
}

std::vector<float> decoded_rows(Format format, const std::vector<std::byte>& rows, int64_t n_columns,
                                float factor) {
    const int64_t stride = row_bytes(format, n_columns);
    const auto n_rows = static_cast<int64_t>(rows.size()) / stride;
    std::vector<float> out(static_cast<size_t>(n_rows * n_columns));
    decode_rows(format, rows.data(), n_rows, stride, n_columns, out.data());
    for (float& weight : out) weight *= factor;
    return out;
}

// Checks the special rows: an error may be a quarter larger than another program's, and half a step of an F16 scale.
void check_special_rows(const WeightMatrix& matrix, const std::vector<float>& y, const nlohmann::json& edge) {
    for (int64_t special = 0; special < test::k_special_rows; ++special) {
        double error = 0.0;
        double largest = 0.0;
        for (int64_t column = 0; column < matrix.n_columns; ++column) {
            const auto i = static_cast<size_t>((test::k_ordinary_rows + special) * matrix.n_columns + column);
            error = std::max(error,
                             std::fabs(static_cast<double>(y[i]) - static_cast<double>(matrix.weights[i])));
            largest = std::max(largest, std::fabs(static_cast<double>(matrix.weights[i])));
        }
        CAPTURE(special, error, largest);
        CHECK(error <= 1.25 * edge.at(static_cast<size_t>(special)).get<double>() + 5e-4 * largest);
    }
}

nlohmann::json encode_quality() {
    const std::vector<std::byte> text = test::read_data_file("encode_quality.json");
    const auto* begin = reinterpret_cast<const char*>(text.data());
    return nlohmann::json::parse(begin, begin + text.size());
}

// The figures of the peers have six digits.
constexpr double k_digits = 1.0 + 1e-5;

void check_quality(const std::string& kind) {
    const nlohmann::json quality = encode_quality();
    const WeightMatrix matrix = test::weight_matrix(kind, 1);
    REQUIRE(test::checksum(matrix.weights) ==
            std::stoull(quality.at("checksums").at(kind).at(0).get<std::string>(), nullptr, 16));
    REQUIRE(test::checksum(matrix.importance) ==
            std::stoull(quality.at("checksums").at(kind).at(1).get<std::string>(), nullptr, 16));
    for (const auto& [name, figures] : quality.at("formats").items()) {
        CAPTURE(name, kind);
        const Format format = format_from_name(name).value();
        const float factor = factor_of(format, matrix.weights);
        const nlohmann::json& peer = figures.at(kind);
        const std::vector<float> plain = decoded_rows(
            format, encoded(format, matrix.weights, matrix.n_columns, nullptr), matrix.n_columns, factor);
        CHECK(test::relative_error(matrix, plain, false) <=
              peer.at("without").at("rmse").get<double>() * k_digits);
        check_special_rows(matrix, plain, peer.at("without").at("edge"));
        const std::vector<float> with =
            decoded_rows(format, encoded(format, matrix.weights, matrix.n_columns, matrix.importance.data()),
                         matrix.n_columns, factor);
        CHECK(test::relative_error(matrix, with, true) <=
              peer.at("with").at("weighted").get<double>() * k_digits);
        CHECK(test::relative_error(matrix, with, false) <= 1.12 * peer.at("with").at("rmse").get<double>());
        check_special_rows(matrix, with, peer.at("with").at("edge"));
    }
}

// Some rows of a matrix, the special ones among them.
WeightMatrix few_rows() {
    WeightMatrix matrix = test::weight_matrix("narrow", 7);
    const int64_t kept = test::k_special_rows + 4;
    matrix.weights.erase(matrix.weights.begin(), matrix.weights.end() - kept * matrix.n_columns);
    matrix.n_rows = kept;
    return matrix;
}

}  // namespace

TEST_CASE("every format of weights but those of natively ternary models and trellises has an encoder") {
    for (const FormatTraits& entry : all_formats()) {
        CAPTURE(entry.name);
        const bool is_left_out = entry.name.starts_with("TQ") || entry.name == "Q1_0" ||
                                 entry.name == "Q2_0" || entry.name.ends_with("_KT") ||
                                 entry.decode_row == nullptr || entry.gguf_type == k_no_gguf_type;
        CHECK(can_encode(entry.format) != is_left_out);
        if (needs_importance(entry.format)) CHECK(can_encode(entry.format));
    }
}

TEST_CASE("encoders are at least as exact as other programs'") {
    check_quality("narrow");
}

#ifdef MINIM_FULL_TESTS
TEST_CASE("encoders are at least as exact as other programs' on larger matrices", "[slow-emulated]") {
    check_quality("gate");
    check_quality("down");
}
#endif

TEST_CASE("fast encoders lose a few per cent") {
    const WeightMatrix matrix = test::weight_matrix("narrow", 2);
    for (const Format format : encoded_formats()) {
        CAPTURE(traits(format).name);
        const float factor = factor_of(format, matrix.weights);
        double error[2];
        for (const EncodeEffort effort : {EncodeEffort::full, EncodeEffort::fast}) {
            const std::vector<float> y =
                decoded_rows(format, encoded(format, matrix.weights, matrix.n_columns, nullptr, effort),
                             matrix.n_columns, factor);
            error[static_cast<int>(effort)] = test::relative_error(matrix, y, false);
        }
        CHECK(error[1] <= 1.12 * error[0]);
    }
}

TEST_CASE("encoded bytes do not depend on the instruction set") {
    const WeightMatrix matrix = few_rows();
    for (const Format format : encoded_formats()) {
        for (const EncodeEffort effort : {EncodeEffort::full, EncodeEffort::fast}) {
            for (const float* importance : {static_cast<const float*>(nullptr), matrix.importance.data()}) {
                std::vector<std::byte> scalar;
                for (const CpuLevel level : cpu_levels()) {
                    if (level != CpuLevel::scalar && level != CpuLevel::avx2 && level != detected_cpu_level())
                        continue;
                    const std::string name(to_string(level));
                    const test::Setting variable("MINIM_CPU", name.c_str());
                    CAPTURE(traits(format).name, name, static_cast<int>(effort), importance != nullptr);
                    const std::vector<std::byte> bytes =
                        encoded(format, matrix.weights, matrix.n_columns, importance, effort);
                    if (level == CpuLevel::scalar) scalar = bytes;
                    CHECK(bytes == scalar);
                }
            }
        }
    }
}

TEST_CASE("rows encode alone as they do together") {
    const WeightMatrix matrix = few_rows();
    for (const Format format : encoded_formats()) {
        if (format == Format::nvfp4) continue;  // the factor is the caller's
        CAPTURE(traits(format).name);
        const std::vector<std::byte> together =
            encoded(format, matrix.weights, matrix.n_columns, matrix.importance.data());
        std::vector<std::byte> apart;
        for (int64_t row = 0; row < matrix.n_rows; ++row) {
            const auto begin = matrix.weights.begin() + row * matrix.n_columns;
            const std::vector<std::byte> one =
                encoded(format, std::vector<float>(begin, begin + matrix.n_columns), matrix.n_columns,
                        matrix.importance.data());
            apart.insert(apart.end(), one.begin(), one.end());
        }
        CHECK(apart == together);
    }
}

TEST_CASE("only the ratios of importance matter, and zeros are allowed") {
    const WeightMatrix matrix = few_rows();
    const std::vector<float> none(matrix.importance.size(), 0.0F);
    std::vector<float> scaled = matrix.importance;
    for (float& u : scaled) u *= 0x1p40F;
    for (const Format format : encoded_formats()) {
        CAPTURE(traits(format).name);
        CHECK(encoded(format, matrix.weights, matrix.n_columns, scaled.data()) ==
              encoded(format, matrix.weights, matrix.n_columns, matrix.importance.data()));
        CHECK(encoded(format, matrix.weights, matrix.n_columns, none.data()) ==
              encoded(format, matrix.weights, matrix.n_columns, nullptr));
    }
}

TEST_CASE("zeros decode to zeros, and the smallest and largest weights to finite numbers") {
    std::vector<float> x(4 * 512, 0.0F);
    for (size_t i = 0; i < 512; ++i) {
        x[512 + i] =
            (i % 3 == 0 ? -1.0F : 1.0F) * std::numeric_limits<float>::denorm_min() * static_cast<float>(i);
        x[1024 + i] = std::numeric_limits<float>::min() * (static_cast<float>(i % 7) - 3.0F);
        x[1536 + i] = 60000.0F * std::sin(static_cast<float>(i));
    }
    for (const Format format : encoded_formats()) {
        CAPTURE(traits(format).name);
        // These have one minimum in F16, of either sign.
        if (format == Format::q4_1 || format == Format::q5_1) {
            for (size_t i = 1536; i < 2048; ++i) x[i] *= 0.5F;
        }
        for (const EncodeEffort effort : {EncodeEffort::full, EncodeEffort::fast}) {
            const std::vector<float> y =
                decoded_rows(format, encoded(format, x, 512, nullptr, effort), 512, factor_of(format, x));
            CHECK(std::all_of(y.begin(), y.begin() + 512, [](float weight) { return weight == 0.0F; }));
            CHECK(std::all_of(y.begin(), y.end(), [](float weight) { return std::isfinite(weight); }));
            CHECK(std::any_of(y.begin() + 1536, y.end(), [](float weight) { return weight != 0.0F; }));
        }
    }
    // Formats whose scales have the range of F32.
    for (size_t i = 0; i < 512; ++i)
        x[i] = std::numeric_limits<float>::max() * std::sin(static_cast<float>(i));
    x[17] = std::numeric_limits<float>::max();
    for (const Format format : {Format::iq4_ks, Format::iq5_ks, Format::iq4_kss, Format::mxfp4}) {
        CAPTURE(traits(format).name);
        const std::vector<float> row(x.begin(), x.begin() + 512);
        const std::vector<float> y = decoded_rows(format, encoded(format, row, 512, nullptr), 512, 1.0F);
        CHECK(std::all_of(y.begin(), y.end(), [](float weight) { return std::isfinite(weight); }));
        CHECK(y[17] > 0.7F * x[17]);
    }
}

TEST_CASE("weights that a format cannot hold are refused, with their row") {
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> x(3 * 256, 0.5F);
    for (const Format format : encoded_formats()) {
        CAPTURE(traits(format).name);
        for (const float odd : {std::nanf(""), infinity, -infinity}) {
            x[2 * 256 + 19] = odd;
            test::expect_error(Status::invalid, "row 2, column 19",
                               [&] { encoded(format, x, 256, nullptr); });
        }
        x[2 * 256 + 19] = 0.5F;
    }
    x[256 + 100] = -1e30F;
    for (const Format format : encoded_formats()) {
        const bool has_range_of_f32 = format == Format::f32 || format == Format::bf16 ||
                                      format == Format::mxfp4 || format == Format::nvfp4 ||
                                      traits(format).row_header_bytes == 4;
        if (has_range_of_f32) continue;
        CAPTURE(traits(format).name);
        test::expect_error(Status::invalid, "row 1", [&] { encoded(format, x, 256, nullptr); });
    }
}

TEST_CASE("importance, formats and sizes are checked") {
    const std::vector<float> x(256, 0.5F);
    std::vector<float> importance(256, 1.0F);
    for (const float odd : {-1.0F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
        importance[7] = odd;
        test::expect_error(Status::invalid, "importance of column 7",
                           [&] { encoded(Format::q4_k, x, 256, importance.data()); });
    }
    test::expect_error(Status::unsupported, "TQ1_0", [&] { encoded(Format::tq1_0, x, 256, nullptr); });
    test::expect_error(Status::invalid, "whole blocks of Q4_K (256 each)",
                       [&] { encoded(Format::q4_k, x, 128, nullptr); });
}

}  // namespace minim
