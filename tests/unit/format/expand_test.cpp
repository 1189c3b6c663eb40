// SPDX-License-Identifier: Apache-2.0
// Compares unpacked codebooks with the packed weights that they were made of.
#include "format/expand.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "format/blocks.h"
#include "golden.h"
#include "support/catch.h"
#include "support/file_format.h"

namespace minim {
namespace {

std::vector<Format> grid_formats() {
    std::vector<Format> grids;
    for (const FormatTraits& entry : all_formats()) {
        if (unpacked_format(entry.format)) grids.push_back(entry.format);
    }
    return grids;
}

std::vector<float> decoded(Format format, const std::vector<std::byte>& rows, int64_t n_rows, int64_t cols) {
    std::vector<float> out(static_cast<size_t>(n_rows * cols));
    decode_rows(format, rows.data(), n_rows, static_cast<int64_t>(rows.size()) / n_rows, cols, out.data());
    return out;
}

// Checks rows that lie `padding` bytes further apart than their length.
void check_rows(Format format, const std::vector<std::byte>& rows, int64_t n_rows, int64_t cols,
                int64_t padding = 0) {
    const Format unpacked = *unpacked_format(format);
    uint64_t size = 0;
    REQUIRE(row_bytes(unpacked, static_cast<uint64_t>(cols), size));
    const int64_t row_size = static_cast<int64_t>(rows.size()) / n_rows;
    std::vector<std::byte> apart(static_cast<size_t>(n_rows * (row_size + padding)));
    for (int64_t r = 0; r < n_rows; ++r) {
        std::memcpy(apart.data() + r * (row_size + padding), rows.data() + r * row_size,
                    static_cast<size_t>(row_size));
    }
    std::vector<std::byte> out(static_cast<size_t>(n_rows) * size + 1, std::byte{0xAA});
    expand_rows(format, apart.data(), n_rows, row_size + padding, cols, out.data());
    CHECK(out.back() == std::byte{0xAA});
    out.pop_back();
    const std::vector<float> expect = decoded(format, rows, n_rows, cols);
    const std::vector<float> got = decoded(unpacked, out, n_rows, cols);
    CHECK(std::memcmp(got.data(), expect.data(), expect.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("seven formats are expanded, each to one of its own") {
    CHECK(grid_formats() == std::vector<Format>{Format::iq1_s, Format::iq1_m, Format::iq2_xxs, Format::iq2_xs,
                                                Format::iq2_s, Format::iq3_xxs, Format::iq3_s});
    size_t listed = 0;
    for_each_block(UnpackedBlocks{}, [&](auto block) {
        using Block = decltype(block);
        ++listed;
        const FormatTraits& entry = traits(Block::format);
        CHECK(entry.block_bytes == Block::block_bytes);
        CHECK(entry.gguf_type == k_no_gguf_type);
        CHECK_FALSE(format_from_name(entry.name));
        CHECK_FALSE(unpacked_format(Block::format));
        const Format of_file = file_format(Block::format);
        CHECK(unpacked_format(of_file) == Block::format);
        CHECK(entry.block_elems == traits(of_file).block_elems);
    });
    CHECK(listed == k_format_count - k_file_format_count);
    CHECK(listed == grid_formats().size());
    CHECK_FALSE(format_from_gguf_type(k_no_gguf_type));
    CHECK_FALSE(unpacked_format(Format::iq4_xs));
    CHECK(file_format(Format::q4_k) == Format::q4_k);
}

TEST_CASE("expanded golden rows decode to the same bits") {
    for (const Format format : grid_formats()) {
        CAPTURE(traits(format).name);
        const test::GoldenFile golden = test::golden_type(std::string(traits(format).name));
        check_rows(format, golden.section<std::byte>("raw"), golden.number("rows"), golden.number("cols"));
    }
}

TEST_CASE("expanded random blocks decode to the same bits, odd scales included") {
    std::mt19937 random(3);
    for (const Format format : grid_formats()) {
        CAPTURE(traits(format).name);
        for (int round = 0; round < 40; ++round) {
            std::vector<std::byte> rows(static_cast<size_t>(6 * traits(format).block_bytes));
            for (std::byte& byte : rows) byte = static_cast<std::byte>(random() & 0xFFU);
            check_rows(format, rows, 2, 768, round % 3);
        }
        check_rows(format, {}, 1, 0);
    }
}

}  // namespace minim
