// SPDX-License-Identifier: Apache-2.0
#include "panel/panel.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "support/catch.h"

namespace minim::test {
namespace {

std::vector<std::byte> random_rows(int64_t row_size, std::mt19937& random) {
    std::vector<std::byte> rows(static_cast<size_t>(panel::k_panel_rows * row_size));
    for (std::byte& byte : rows) byte = static_cast<std::byte>(random() & 255U);
    return rows;
}

int64_t row_size_of(const FormatTraits& format, int64_t n_blocks) {
    return format.row_header_bytes + n_blocks * format.block_bytes;
}

}  // namespace

TEST_CASE("unpacking a panel gives back the rows of any format") {
    for (const FormatTraits& format : all_formats()) {
        if (format.decode_row == nullptr || format.block_elems == 1) continue;
        INFO(format.name);
        std::mt19937 random(1);
        const int64_t row_size = row_size_of(format, 3);
        const int64_t cols = int64_t{3} * format.block_elems;
        const std::vector<std::byte> rows = random_rows(row_size, random);
        std::vector<std::byte> panel(rows.size());
        std::vector<std::byte> back(rows.size());
        panel::pack_panel(format.format, rows.data(), row_size, panel::k_panel_rows, cols, panel.data());
        CHECK(panel != rows);
        panel::unpack_panel(format.format, panel.data(), row_size, cols, back.data());
        CHECK(back == rows);
    }
}

TEST_CASE("a panel has the granules of its rows side by side") {
    const int64_t row_size = 2 * 144;
    std::mt19937 random(2);
    const std::vector<std::byte> rows = random_rows(row_size, random);
    std::vector<std::byte> panel(rows.size());
    panel::pack_panel(Format::q4_k, rows.data(), row_size, panel::k_panel_rows, 512, panel.data());
    const auto at = [&](int64_t r, int64_t i) { return rows[static_cast<size_t>(r * row_size + i)]; };
    for (int64_t r = 0; r < panel::k_panel_rows; ++r) {
        for (int64_t block = 0; block < 2; ++block) {
            const std::byte* base = panel.data() + block * 144 * panel::k_panel_rows;
            CHECK(base[2 * r] == at(r, block * 144));                   // d
            CHECK(base[32 + 2 * r + 1] == at(r, block * 144 + 3));      // dmin
            CHECK(base[64 + 4 * r + 3] == at(r, block * 144 + 7));      // scales
            CHECK(base[140 * 16 + 4 * r] == at(r, block * 144 + 140));  // the last codes
        }
    }
}

TEST_CASE(
    "a panel of Q6_K has d first, then what each half of the columns needs, in the order in which it is "
    "needed") {
    const int64_t row_size = 2 * 210;
    std::mt19937 random(4);
    const std::vector<std::byte> rows = random_rows(row_size, random);
    std::vector<std::byte> panel(rows.size());
    panel::pack_panel(Format::q6_k, rows.data(), row_size, panel::k_panel_rows, 512, panel.data());
    const auto at = [&](int64_t r, int64_t i) { return rows[static_cast<size_t>(r * row_size + i)]; };
    for (int64_t r = 0; r < panel::k_panel_rows; ++r) {
        for (int64_t block = 0; block < 2; ++block) {
            const std::byte* base = panel.data() + block * 210 * panel::k_panel_rows;
            const int64_t row = block * 210;
            CHECK(base[2 * r + 1] == at(r, row + 209));  // d
            for (int64_t half = 0; half < 2; ++half) {
                const std::byte* of_half = base + (2 + half * 104) * 16 + 4 * r;
                CHECK(of_half[3] == at(r, row + 192 + 8 * half + 3));  // scales
                CHECK(of_half[4 * 16 + 3] == at(r, row + 192 + 8 * half + 7));
                CHECK(of_half[8 * 16] == at(r, row + 128 + 32 * half));       // bits 4 and 5
                CHECK(of_half[40 * 16] == at(r, row + 64 * half));            // the first codes
                CHECK(of_half[100 * 16 + 3] == at(r, row + 64 * half + 63));  // the last ones
            }
        }
    }
}

TEST_CASE("missing rows of a panel are copies of the last one") {
    const int64_t row_size = 34;
    std::mt19937 random(3);
    std::vector<std::byte> rows = random_rows(row_size, random);
    std::vector<std::byte> part(rows.size());
    std::vector<std::byte> whole(rows.size());
    panel::pack_panel(Format::q8_0, rows.data(), row_size, 5, 32, part.data());
    for (int64_t r = 5; r < panel::k_panel_rows; ++r) {
        std::copy_n(rows.begin() + 4 * row_size, row_size, rows.begin() + r * row_size);
    }
    panel::pack_panel(Format::q8_0, rows.data(), row_size, panel::k_panel_rows, 32, whole.data());
    CHECK(part == whole);
}

}  // namespace minim::test
