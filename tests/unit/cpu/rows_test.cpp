// SPDX-License-Identifier: Apache-2.0
#include "cpu/generic/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/half.h"
#include "cpu/kernel_tables.h"
#include "format/encode.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

const std::vector<int64_t> k_sizes = {1, 2, 15, 16, 17, 31, 32, 33, 128, 255, 1000};

}  // namespace

TEST_CASE("rms_norm agrees with double precision and has the same bits on every instruction set") {
    for (const int64_t n : k_sizes) {
        Random random(static_cast<uint32_t>(n));
        const std::vector<float> x = random.normal(n, 3.0F);
        const std::vector<float> weight = random.normal(n);
        double squares = 0.0;
        for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
        const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
        std::vector<float> first;
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            std::vector<float> h = x;
            kernels->rms_norm(h.data(), n, weight.data(), 1e-6F, h.data());
            if (first.empty()) first = h;
            CHECK(same_bits(h, first));
            for (size_t i = 0; i < h.size(); ++i) {
                const double exact = static_cast<double>(x[i]) * factor * static_cast<double>(weight[i]);
                REQUIRE(static_cast<double>(h[i]) == Approx(exact).epsilon(1e-6).margin(1e-12));
            }
        }
    }
}

TEST_CASE("rms_norm has the bits of its two steps") {
    for (const int64_t n : k_sizes) {
        Random random(static_cast<uint32_t>(n));
        const std::vector<float> x = random.normal(n, 3.0F);
        const std::vector<float> weight = random.normal(n);
        const float sum = cpu::k_scalar_kernels.sum_squares(x.data(), n);
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            CHECK(same_bits(kernels->sum_squares(x.data(), n), sum));
            std::vector<float> whole = x;
            kernels->rms_norm(whole.data(), n, weight.data(), 1e-6F, whole.data());
            std::vector<float> in_steps = x;
            kernels->normalise(in_steps.data(), n, sum / static_cast<float>(n), weight.data(), 1e-6F,
                               in_steps.data());
            CHECK(same_bits(in_steps, whole));
        }
    }
}

TEST_CASE("rms_norm of zeros is zero and of no elements touches nothing") {
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        std::vector<float> h(20, 7.0F);
        const std::vector<float> zeros(20, 0.0F);
        kernels->rms_norm(zeros.data(), 20, h.data(), 1e-6F, h.data());
        CHECK(h == zeros);
        kernels->rms_norm(nullptr, 0, nullptr, 1e-6F, nullptr);
    }
}

TEST_CASE("add_scaled adds with one rounding") {
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        for (const int64_t n : k_sizes) {
            Random random(static_cast<uint32_t>(n));
            const std::vector<float> x = random.normal(n);
            const std::vector<float> y = random.normal(n);
            std::vector<float> result = y;
            kernels->add_scaled(x.data(), 0.3F, n, result.data());
            for (size_t i = 0; i < result.size(); ++i) REQUIRE(result[i] == std::fma(0.3F, x[i], y[i]));
        }
    }
}

TEST_CASE("narrow_f16 rounds to nearest even as half.h does") {
    std::vector<float> x = Random(3).normal(3001, 300.0F);
    for (const float value : {0.0F, -0.0F, 65504.0F, 65519.99F, 65520.0F, 1e30F, -1e30F, 5.96e-8F, 2.98e-8F,
                              2.99e-8F, 6.1e-5F, 1e-9F, 1.00048828125F, 1.00146484375F}) {
        x.push_back(value);
    }
    const auto n = static_cast<int64_t>(x.size());
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        std::vector<uint16_t> halves(x.size());
        kernels->narrow_f16(x.data(), n, reinterpret_cast<std::byte*>(halves.data()));
        for (size_t i = 0; i < x.size(); ++i) REQUIRE(halves[i] == float_to_f16(x[i]));
    }
}

// Numbers as a format stores them: encoded rows, and the numbers that they decode to.
struct KeptRows {
    int64_t row_bytes;
    std::vector<std::byte> encoded;
    std::vector<float> decoded;

    KeptRows(Format format, std::span<const float> exact, int64_t n_rows, int64_t cols)
        : row_bytes(cols / traits(format).block_elems * traits(format).block_bytes),
          encoded(static_cast<size_t>(n_rows * row_bytes)),
          decoded(exact.size()) {
        for (int64_t r = 0; r < n_rows; ++r) {
            std::byte* row = encoded.data() + r * row_bytes;
            row_encoder(format)(exact.data() + r * cols, cols, row);
            traits(format).decode_row(row, cols, decoded.data() + r * cols);
        }
    }
};

constexpr int64_t k_score_stride = 70;
constexpr float k_score_scale = 0.3F;
const std::vector<int32_t> k_query_rows = {7, 0, 19, 3, 4, 5, 11, 2, 18};  // of 20

// 20 rows of queries, and their codes if the scores of the format's keys are computed from codes.
struct Queries {
    std::vector<float> x;
    std::vector<int16_t> codes;
    std::vector<float> scales;

    Queries(Format format, std::vector<float> values, int64_t cols)
        : x(std::move(values)), codes(x.size()), scales(20) {
        const auto quantize = cpu::kv_kernels(cpu::k_scalar_kernels, format).quantize_query;
        if (quantize == nullptr) return;
        for (size_t t = 0; t < scales.size(); ++t) {
            const auto at = static_cast<int64_t>(t) * cols;
            scales[t] = quantize(x.data() + at, cols, codes.data() + at);
        }
    }
};

std::vector<float> scores(const cpu::KernelTable& kernels, Format format, const KeptRows& keys,
                          const Queries& queries, int64_t cols, int64_t n_queries) {
    std::vector<float> y(static_cast<size_t>(n_queries * k_score_stride), 0.5F);
    std::vector<float> tile(static_cast<size_t>(cpu::score_tile_floats(cols)));
    cpu::kv_kernels(kernels, format)
        .scores({.keys = keys.encoded.data(),
                 .key_bytes = keys.row_bytes,
                 .n_keys = std::ssize(keys.decoded) / cols,
                 .cols = cols,
                 .scale = k_score_scale,
                 .queries = queries.x.data(),
                 .query_codes = queries.codes.data(),
                 .query_scales = queries.scales.data(),
                 .query_rows = k_query_rows.data(),
                 .n_queries = n_queries,
                 .y = y.data(),
                 .y_stride = k_score_stride,
                 .tile = tile.data()});
    return y;
}

// Returns a score summed in four lanes, as README.md of generic/ specifies.
float score(const float* key, const float* query, int64_t cols, float scale) {
    float lane[4] = {};
    for (int64_t c = 0; c < cols; ++c) lane[c % 4] = std::fma(query[c], key[c], lane[c % 4]);
    return ((lane[0] + lane[2]) + (lane[1] + lane[3])) * scale;
}

TEST_CASE("scores are summed in four lanes, whatever the columns, keys, queries and format") {
    for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
        for (const int64_t cols : {1, 6, 16, 23, 32, 128}) {
            for (const int64_t n_keys : {1, 3, 15, 16, 29, 64}) {
                Random random(17);
                const KeptRows keys(format, random.normal(n_keys * cols), n_keys, cols);
                const Queries queries(format, random.normal(20 * cols), cols);
                for (const int64_t n_queries : {1, 2, 5, 6, 9}) {
                    std::vector<float> expected(static_cast<size_t>(n_queries * k_score_stride), 0.5F);
                    for (int64_t t = 0; t < n_queries; ++t) {
                        const float* query = queries.x.data() + k_query_rows[static_cast<size_t>(t)] * cols;
                        for (int64_t r = 0; r < n_keys; ++r) {
                            expected[static_cast<size_t>(t * k_score_stride + r)] =
                                score(keys.decoded.data() + r * cols, query, cols, k_score_scale);
                        }
                    }
                    for (const cpu::KernelTable* kernels : kernel_tables())
                        REQUIRE(
                            same_bits(scores(*kernels, format, keys, queries, cols, n_queries), expected));
                }
            }
        }
    }
}

// Returns the index of column c among a query's codes: of each 16 columns the even ones come first.
int64_t place_of_column(int64_t c) {
    return c / 16 * 16 + c % 2 * 8 + c % 16 / 2;
}

TEST_CASE("a query's codes are the nearest of 16 bits, the same on every instruction set") {
    std::vector<float> x = Random(23).normal(128, 3.0F);
    x[17] = -11.5F;
    std::vector<int16_t> expected(x.size());
    const auto quantize = cpu::kv_kernels(cpu::k_scalar_kernels, Format::q8_0).quantize_query;
    const float d = quantize(x.data(), 128, expected.data());
    CHECK(d == 11.5F / 32767.0F);
    for (int64_t c = 0; c < 128; ++c) {
        const float code = expected[static_cast<size_t>(place_of_column(c))];
        CHECK(std::abs(x[static_cast<size_t>(c)] - code * d) <= 0.50001F * d);
    }
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        for (const Format format : {Format::q8_0, Format::q4_0}) {
            std::vector<int16_t> codes(x.size());
            CHECK(cpu::kv_kernels(*kernels, format).quantize_query(x.data(), 128, codes.data()) == d);
            CHECK(codes == expected);
        }
        CHECK(cpu::kv_kernels(*kernels, Format::f16).quantize_query == nullptr);
    }
    const std::vector<float> zeros(32);
    CHECK(quantize(zeros.data(), 32, expected.data()) == 0.0F);
    CHECK(std::all_of(expected.begin(), expected.begin() + 32, [](int16_t code) { return code == 0; }));
}

// Returns a score computed from codes, as README.md of generic/ specifies, for keys in Q8_0 or Q4_0.
float score_of_codes(const std::byte* key, Format format, const int16_t* query, int64_t cols, float factor) {
    const bool has_bytes = format == Format::q8_0;
    float lane[4] = {};
    for (int64_t b = 0; b < cols / 32; ++b) {
        const std::byte* block = key + b * traits(format).block_bytes;
        int32_t sum[4] = {};
        for (int64_t c = 0; c < 32; ++c) {
            const auto byte = static_cast<int>(block[2 + (has_bytes ? c : c % 16)]);
            const int code = has_bytes ? static_cast<int8_t>(byte) : (byte >> (c < 16 ? 0 : 4) & 15) - 8;
            sum[c % 16 / 4] += code * query[place_of_column(32 * b + c)];
        }
        uint16_t bits = 0;
        std::memcpy(&bits, block, sizeof(bits));
        for (int l = 0; l < 4; ++l)
            lane[l] = std::fma(static_cast<float>(sum[l]), f16_to_float(bits), lane[l]);
    }
    return ((lane[0] + lane[2]) + (lane[1] + lane[3])) * factor;
}

TEST_CASE("scores of codes are integers within a block, whatever the columns, keys and queries") {
    for (const Format format : {Format::q8_0, Format::q4_0}) {
        for (const int64_t cols : {32, 96, 128}) {
            for (const int64_t n_keys : {1, 3, 15, 16, 29, 64}) {
                Random random(19);
                const KeptRows keys(format, random.normal(n_keys * cols), n_keys, cols);
                const Queries queries(format, random.normal(20 * cols), cols);
                for (const int64_t n_queries : {1, 2, 5, 6, 9}) {
                    std::vector<float> expected(static_cast<size_t>(n_queries * k_score_stride), 0.5F);
                    double worst = 0.0;
                    for (int64_t t = 0; t < n_queries; ++t) {
                        const int64_t row = k_query_rows[static_cast<size_t>(t)];
                        const float factor = queries.scales[static_cast<size_t>(row)] * k_score_scale;
                        for (int64_t r = 0; r < n_keys; ++r) {
                            const float of_codes =
                                score_of_codes(keys.encoded.data() + r * keys.row_bytes, format,
                                               queries.codes.data() + row * cols, cols, factor);
                            expected[static_cast<size_t>(t * k_score_stride + r)] = of_codes;
                            const float of_floats = score(keys.decoded.data() + r * cols,
                                                          queries.x.data() + row * cols, cols, k_score_scale);
                            worst = std::max(worst, std::abs(static_cast<double>(of_codes - of_floats)));
                        }
                    }
                    CHECK(worst < 2e-3);
                    for (const cpu::KernelTable* kernels : kernel_tables())
                        REQUIRE(
                            same_bits(scores(*kernels, format, keys, queries, cols, n_queries), expected));
                }
            }
        }
    }
}

TEST_CASE("weighted_sum adds rows in order, whatever the columns, sums and format") {
    for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_0}) {
        for (const int64_t cols : {1, 16, 33, 64, 128}) {
            if (cols % traits(format).block_elems != 0) continue;
            for (const int64_t n_rows : {0, 1, 3, 64}) {
                Random random(7);
                const KeptRows rows(format, random.normal(n_rows * cols), n_rows, cols);
                for (const int64_t n_sums : {1, 2, 6, 9}) {
                    const std::vector<float> weight = random.normal(n_sums * 100);
                    const std::vector<float> start = random.normal(n_sums * cols);
                    std::vector<float> expected = start;
                    for (int64_t s = 0; s < n_sums; ++s) {
                        for (int64_t c = 0; c < cols; ++c) {
                            float& sum = expected[static_cast<size_t>(s * cols + c)];
                            for (int64_t r = 0; r < n_rows; ++r) {
                                sum = std::fma(weight[static_cast<size_t>(s * 100 + r)],
                                               rows.decoded[static_cast<size_t>(r * cols + c)], sum);
                            }
                        }
                    }
                    for (const cpu::KernelTable* kernels : kernel_tables()) {
                        std::vector<float> y = start;
                        const cpu::WeightedSumArgs args = {.rows = rows.encoded.data(),
                                                           .row_bytes = rows.row_bytes,
                                                           .n_rows = n_rows,
                                                           .cols = cols,
                                                           .weight = weight.data(),
                                                           .weight_stride = 100,
                                                           .n_sums = n_sums,
                                                           .y = y.data(),
                                                           .y_stride = cols};
                        cpu::kv_kernels(*kernels, format).weighted_sum(args);
                        REQUIRE(same_bits(y, expected));
                    }
                }
            }
        }
    }
}

}  // namespace minim::test
