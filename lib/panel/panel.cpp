// SPDX-License-Identifier: Apache-2.0
#include "panel/panel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace minim::panel {
namespace {

// Granules of one size that lie side by side, both in a row and in a panel. They take `bytes` bytes. In the row they begin at byte `at`, in
// the panel at 16 * place.
struct Run {
    int64_t at;
    int64_t place;
    int64_t bytes;
};

// Calls visit(granule size, run) for every run of a row.
template <typename Visit>
void for_each_run(Format format, int64_t cols, const Visit& visit) {
    const FormatTraits& f = traits(format);
    const PanelShape shape = panel_shape(format);
    const int64_t back_at = f.block_bytes - shape.back_bytes;
    using One = std::integral_constant<int64_t, 1>;
    using Two = std::integral_constant<int64_t, 2>;
    using Four = std::integral_constant<int64_t, 4>;
    if (f.row_header_bytes == 2) visit(Two(), Run{0, 0, 2});
    if (f.row_header_bytes == 4) visit(Four(), Run{0, 0, 4});
    for (int64_t b = 0; b < cols / f.block_elems; ++b) {
        const int64_t block = f.row_header_bytes + b * f.block_bytes;
        const auto run = [&](auto granule, int64_t at, int64_t bytes) {
            if (bytes > 0) visit(granule, Run{block + at, block + place_in_panel(format, at), bytes});
        };
        run(Two(), 0, shape.front_bytes / 2 * 2);
        run(One(), shape.front_bytes / 2 * 2, shape.front_bytes % 2);
        if (format == Format::q6_k) {
            for (int half = 0; half < 2; ++half) {
                run(Four(), Q6_K::codes_at + HalfOfQ6K::code_bytes * half, HalfOfQ6K::code_bytes);
                run(Four(), Q6_K::high_at + HalfOfQ6K::high_bytes * half, HalfOfQ6K::high_bytes);
                run(Four(), Q6_K::scales_at + HalfOfQ6K::scale_bytes * half, HalfOfQ6K::scale_bytes);
            }
        } else {
            run(Four(), shape.front_bytes, back_at - shape.front_bytes);
        }
        run(Two(), back_at, shape.back_bytes);
    }
}

using FourWords = uint32_t __attribute__((vector_size(16)));

// Copies bytes at .. at + 15 of four rows, as words of four bytes, to four places 16 * 4 bytes apart: a 4 x 4 transposition.
void interleave_four_rows(const std::byte* const* row, int64_t at, std::byte* place) {
    FourWords r[4];
    for (int i = 0; i < 4; ++i) std::memcpy(&r[i], row[i] + at, sizeof(r[i]));
    const FourWords low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const FourWords low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const FourWords high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const FourWords high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    const FourWords word[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                               __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                               __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                               __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
    for (int i = 0; i < 4; ++i) std::memcpy(place + i * 4 * k_panel_rows, &word[i], sizeof(word[i]));
}

}  // namespace

PanelShape panel_shape(Format format) noexcept {
    switch (format) {
        case Format::mxfp4:
        case Format::mxfp8:
            return {1, 0};
        case Format::q4_0:
        case Format::q5_0:
        case Format::q6_0:
        case Format::q8_0:
        case Format::iq4_nl:
        case Format::q1_0:
        case Format::q2_0:
        case Format::iq1_s:
        case Format::iq2_xxs:
        case Format::iq2_xs:
        case Format::iq2_s:
        case Format::iq3_xxs:
        case Format::iq3_s:
        case Format::iq2_ks:
        case Format::iq3_ks:
        case Format::iq2_kl:
        case Format::int4_s64:
        case Format::int4_s128:
        case Format::int8_s64:
        case Format::int8_s128:
            return {2, 0};
        case Format::int8_z32:
        case Format::int8_z64:
        case Format::int8_z128:
            return {3, 0};
        case Format::q4_1:
        case Format::q5_1:
        case Format::q4_k:
        case Format::q5_k:
        case Format::iq4_xs:
        case Format::iq2_k:
        case Format::iq4_k:
        case Format::iq5_k:
        case Format::iq6_k:
            return {4, 0};
        case Format::int4_z32:
        case Format::int4_z64:
        case Format::int4_z128:
            return {5, 0};
        case Format::iq3_k:
            return {6, 0};
        case Format::q3_k:
        case Format::q6_k:
        case Format::tq1_0:
        case Format::tq2_0:
            return {0, 2};
        case Format::q2_k:
            return {0, 4};
        default:
            return {0, 0};
    }
}

void pack_panel(Format format, const std::byte* rows, int64_t row_bytes, int64_t n_rows, int64_t cols,
                std::byte* out) noexcept {
    const std::byte* row[k_panel_rows];
    for (int64_t r = 0; r < k_panel_rows; ++r) row[r] = rows + std::min(r, n_rows - 1) * row_bytes;
    for_each_run(format, cols, [&](auto granule, const Run& run) {
        std::byte* place = out + k_panel_rows * run.place;
        int64_t i = 0;
        if constexpr (granule == 4) {
            for (; i + 16 <= run.bytes; i += 16) {
                for (int64_t r = 0; r < k_panel_rows; r += 4)
                    interleave_four_rows(row + r, run.at + i, place + k_panel_rows * i + 4 * r);
            }
        }
        for (; i < run.bytes; i += granule) {
            for (int64_t r = 0; r < k_panel_rows; ++r)
                std::memcpy(place + k_panel_rows * i + r * granule, row[r] + run.at + i, granule);
        }
    });
}

void unpack_panel(Format format, const std::byte* panel, int64_t row_bytes, int64_t cols,
                  std::byte* rows) noexcept {
    for_each_run(format, cols, [&](auto granule, const Run& run) {
        const std::byte* place = panel + k_panel_rows * run.place;
        for (int64_t i = 0; i < run.bytes; i += granule) {
            for (int64_t r = 0; r < k_panel_rows; ++r)
                std::memcpy(rows + r * row_bytes + run.at + i, place + k_panel_rows * i + r * granule,
                            granule);
        }
    });
}

}  // namespace minim::panel
