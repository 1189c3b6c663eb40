// SPDX-License-Identifier: Apache-2.0
// Compares every decoder with the golden vectors: values, positions, odd addresses, unusual scales.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "format/blocks.h"
#include "format/format.h"
#include "golden.h"
#include "support/catch.h"

namespace minim {
namespace {

using test::GoldenFile;

std::vector<std::string> golden_type_names() {
    std::vector<std::string> names;
    for (const auto& [name, entry] : test::golden_index().at("types").items()) names.push_back(name);
    return names;
}

// A golden file with its rows decoded into `out`.
struct DecodedFile {
    GoldenFile golden;
    Format format;
    int64_t rows;
    int64_t cols;
    int64_t row_bytes;
    std::vector<std::byte> raw;
    std::vector<float> expect;
    std::vector<float> out;

    explicit DecodedFile(const std::string& name)
        : golden(test::golden_type(name)),
          format(format_from_name(name).value()),
          rows(golden.number("rows")),
          cols(golden.number("cols")),
          row_bytes(golden.number("row_bytes")),
          raw(golden.section<std::byte>("raw")),
          expect(golden.section<float>("expect")),
          out(expect.size(), NAN) {
        decode_rows(format, raw.data(), rows, row_bytes, cols, out.data());
    }
};

// Returns the largest error of a block: its largest |out - expect| over its largest |expect|, or 0 if both are zero.
double worst_block_error(const std::vector<float>& out, const std::vector<float>& expect,
                         size_t block_elems) {
    double worst = 0.0;
    for (size_t begin = 0; begin < out.size(); begin += block_elems) {
        double error = 0.0;
        double scale = 0.0;
        for (size_t i = begin; i < begin + block_elems; ++i) {
            error = std::max(error, std::fabs(static_cast<double>(out[i]) - static_cast<double>(expect[i])));
            scale = std::max(scale, std::fabs(static_cast<double>(expect[i])));
            if (std::isnan(out[i]) != std::isnan(expect[i])) return INFINITY;
        }
        if (error > 0.0) worst = std::max(worst, error / scale);
    }
    return worst;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("the golden files cover every quantised format of GGUF") {
    const std::vector<std::string> names = golden_type_names();
    for (const FormatTraits& entry : all_formats()) {
        if (entry.block_elems == 1 || entry.gguf_type == k_no_gguf_type) continue;
        CAPTURE(entry.name);
        CHECK(std::count(names.begin(), names.end(), std::string(entry.name)) == 1);
    }
    CHECK(names.size() == 41);
}

TEST_CASE("every decoder agrees with the golden weights of its type") {
    for (const std::string& name : golden_type_names()) {
        CAPTURE(name);
        const DecodedFile file(name);
        const FormatTraits& entry = traits(file.format);
        CHECK(file.golden.number("type_id") == entry.gguf_type);
        CHECK(file.golden.number("block_elems") == entry.block_elems);
        CHECK(file.golden.number("block_bytes") == entry.block_bytes);
        CHECK(file.golden.number("row_meta_bytes") == entry.row_header_bytes);
        uint64_t bytes = 0;
        REQUIRE(row_bytes(file.format, static_cast<uint64_t>(file.cols), bytes));
        CHECK(bytes == static_cast<uint64_t>(file.row_bytes));
        const double tolerance = file.golden.entry().at("tol_block_rel").get<double>();
        CHECK(worst_block_error(file.out, file.expect, static_cast<size_t>(entry.block_elems)) <= tolerance);
    }
}

TEST_CASE("mainline types decode to the bits of the golden weights") {
    for (const std::string& name : golden_type_names()) {
        CAPTURE(name);
        const DecodedFile file(name);
        if (file.golden.entry().at("origin") != "ggml mainline") continue;
        CHECK(same_bits(file.out, file.expect));
    }
}

TEST_CASE("a row decodes alike alone, from the middle of a tensor and at any address") {
    for (const std::string& name : golden_type_names()) {
        CAPTURE(name);
        const DecodedFile file(name);
        const auto stride = static_cast<size_t>(file.row_bytes);
        std::vector<float> row(static_cast<size_t>(file.cols));
        for (int64_t r = 0; r < file.rows; ++r) {
            // The row lies alone at the end of its buffer, at each address modulo 8 in turn.
            const auto shift = static_cast<size_t>(r % 8);
            std::vector<std::byte> copy(shift + stride);
            std::copy_n(file.raw.begin() + r * file.row_bytes, stride,
                        copy.begin() + static_cast<int64_t>(shift));
            traits(file.format).decode_row(copy.data() + shift, file.cols, row.data());
            CHECK(std::memcmp(row.data(), file.out.data() + r * file.cols, row.size() * sizeof(float)) == 0);
        }
        for (int64_t start = 0; start < file.rows; ++start) {
            std::vector<float> rest(static_cast<size_t>((file.rows - start) * file.cols));
            decode_rows(file.format, file.raw.data() + start * file.row_bytes, file.rows - start,
                        file.row_bytes, file.cols, rest.data());
            CHECK(std::equal(rest.begin(), rest.end(), file.out.begin() + start * file.cols));
        }
    }
}

TEST_CASE("decoding writes the asked elements and no others") {
    for (const FormatTraits& entry : all_formats()) {
        if (entry.decode_row == nullptr) continue;
        CAPTURE(entry.name);
        uint64_t bytes = 0;
        const int64_t count = 3 * entry.block_elems;
        REQUIRE(row_bytes(entry.format, static_cast<uint64_t>(count), bytes));
        const std::vector<std::byte> row(bytes, std::byte{0});
        std::vector<float> out(static_cast<size_t>(count) + 1, 12345.0F);
        entry.decode_row(row.data(), count, out.data());
        CHECK(std::count(out.begin(), out.end(), 12345.0F) == 1);
        CHECK(out.back() == 12345.0F);
        entry.decode_row(row.data(), 0, out.data() + count);
        CHECK(out.back() == 12345.0F);
    }
}

TEST_CASE("random bits, NaN and infinite scales included, decode without harm") {
    std::mt19937 random(7);
    for (const FormatTraits& entry : all_formats()) {
        if (entry.decode_row == nullptr) continue;
        uint64_t bytes = 0;
        REQUIRE(row_bytes(entry.format, static_cast<uint64_t>(entry.block_elems), bytes));
        std::vector<std::byte> row(bytes);
        std::vector<float> out(static_cast<size_t>(entry.block_elems));
        for (int round = 0; round < 200; ++round) {
            for (std::byte& byte : row) byte = static_cast<std::byte>(random() & 0xFFU);
            entry.decode_row(row.data(), entry.block_elems, out.data());
        }
        std::fill(row.begin(), row.end(), std::byte{0xFF});
        entry.decode_row(row.data(), entry.block_elems, out.data());
    }
    SUCCEED();
}

TEST_CASE("an infinite or NaN scale reaches the weights") {
    for (const uint16_t scale : {uint16_t{0x7C00}, uint16_t{0xFC00}, uint16_t{0x7E00}}) {
        std::vector<uint8_t> block(Q8_0::block_bytes, 1);
        std::memcpy(block.data(), &scale, sizeof(scale));
        float out[32];
        traits(Format::q8_0).decode_row(reinterpret_cast<const std::byte*>(block.data()), 32, out);
        for (const float weight : out) CHECK_FALSE(std::isfinite(weight));
    }
}

TEST_CASE("an MXFP4 block with the smallest exponent keeps its subnormal weights") {
    std::vector<uint8_t> block(MXFP4::block_bytes, 0x21);  // codes 1 and 2: 0.5 and 1
    block[MXFP4::exponent_at] = 0;
    float out[32];
    MXFP4::decode_block(block.data(), 1.0F, out);
    CHECK(float_to_bits(out[0]) == 0x00200000U);   // 2^-128
    CHECK(float_to_bits(out[31]) == 0x00400000U);  // 2^-127
}

TEST_CASE("F16 and BF16 rows decode to the bits of the golden values") {
    for (const char* name : {"F16", "BF16"}) {
        CAPTURE(name);
        const GoldenFile golden = test::golden_other(name);
        const std::vector<std::byte> raw = [&] {
            const std::vector<uint16_t> words = golden.section<uint16_t>("raw");
            std::vector<std::byte> bytes(words.size() * 2);
            std::memcpy(bytes.data(), words.data(), bytes.size());
            return bytes;
        }();
        const std::vector<float> expect = golden.section<float>("expect");
        std::vector<float> out(expect.size());
        const FormatTraits& entry = traits(format_from_name(name).value());
        CHECK(golden.number("type_id") == entry.gguf_type);
        entry.decode_row(raw.data(), static_cast<int64_t>(out.size()), out.data());
        CHECK(same_bits(out, expect));
    }
}

TEST_CASE("the block list and the trait table name the same formats") {
    size_t listed = 0;
    for_each_block(AllBlocks{}, [&](auto block) {
        using Block = decltype(block);
        ++listed;
        CHECK(traits(Block::format).decode_row != nullptr);
        CHECK(traits(Block::format).block_bytes == Block::block_bytes);
    });
    for (const FormatTraits& entry : all_formats()) {
        Format visited = Format::count_;
        const bool found =
            with_block(AllBlocks{}, entry.format, [&](auto block) { visited = decltype(block)::format; });
        CHECK(found == (entry.decode_row != nullptr));
        if (found) CHECK(visited == entry.format);
    }
    CHECK(listed == 60);
}

}  // namespace minim
