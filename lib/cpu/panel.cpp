#include "cpu/panel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace minim::cpu {
namespace {

// Calls move(granule size, bytes into the row) for every granule of a row, in order.
template <typename Move>
void for_each_place(Format format, int64_t cols, const Move& move) {
    const FormatTraits& f = traits(format);
    const PanelShape shape = panel_shape(format);
    const int64_t front_granule = shape.front_bytes % 2 == 0 ? 2 : 1;
    int64_t at = 0;
    const auto run = [&](int64_t bytes, auto granule) {
        for (const int64_t end = at + bytes; at < end; at += granule) move(granule, at);
    };
    using One = std::integral_constant<int64_t, 1>;
    using Two = std::integral_constant<int64_t, 2>;
    using Four = std::integral_constant<int64_t, 4>;
    if (f.row_header_bytes == 2) run(2, Two());
    if (f.row_header_bytes == 4) run(4, Four());
    for (int64_t b = 0; b < cols / f.block_elems; ++b) {
        if (front_granule == 2) {
            run(shape.front_bytes, Two());
        } else {
            run(shape.front_bytes, One());
        }
        run(f.block_bytes - shape.front_bytes - shape.back_bytes, Four());
        run(shape.back_bytes, Two());
    }
}

}  // namespace

PanelShape panel_shape(Format format) noexcept {
    switch (format) {
        case Format::mxfp4:
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
            return {2, 0};
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
    for_each_place(format, cols, [&](auto granule, int64_t at) {
        std::byte* place = out + k_panel_rows * at;
        for (int64_t r = 0; r < k_panel_rows; ++r) std::memcpy(place + r * granule, row[r] + at, granule);
    });
}

void unpack_panel(Format format, const std::byte* panel, int64_t row_bytes, int64_t cols,
                  std::byte* rows) noexcept {
    for_each_place(format, cols, [&](auto granule, int64_t at) {
        const std::byte* place = panel + k_panel_rows * at;
        for (int64_t r = 0; r < k_panel_rows; ++r) {
            std::memcpy(rows + r * row_bytes + at, place + r * granule, granule);
        }
    });
}

}  // namespace minim::cpu
