// SPDX-License-Identifier: Apache-2.0
// Unpacks panels to rows of F16, for products of the vendor's library.
//
// Shape: a block takes a pair of panels, 16 rows each, and 256 columns; a warp a unit of 32 columns, one row in each lane. Layout:
// panels are read where they lie, 64 neighbouring bytes a panel and word; a lane writes the 64 bytes of its row and unit. Bytes
// moved: every packed weight once in, two bytes for each weight out. Bound: the writes, at memory bandwidth.
#pragma once

#include "cuda/fast/linear_few.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/panel_dot.h"

namespace minim::cuda::fast {

template <class P>
struct UnpackKernel {
    using Block = typename P::Block;
    using Kind = typename P::Kind;
    static constexpr int k_threads = 256;

    const uint8_t* panels;
    int64_t rows;  // a multiple of 16
    int64_t cols;
    int64_t row_bytes;
    uint16_t* out;  // [rows, cols], k_unpacked_factor times the weights

    Grid grid() const {
        return {panel_pairs(rows), (cols + k_stage_cols - 1) / k_stage_cols, k_table_bytes<P>};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        copy_table<P>(t, k_threads, t.shared());
        if constexpr (HasTable<P>) t.sync();
        constexpr int k_block_units = Block::block_elems / 32;
        constexpr int k_rows = static_cast<int>(k_panel_rows);
        const int unit = t.block_y() * k_stage_units + t.index() / 32;
        const int64_t row = int64_t{t.block()} * 2 * k_rows + t.index() % 32;
        if (int64_t{unit} * 32 >= cols || row >= rows) return;
        const auto* panel = reinterpret_cast<const std::byte*>(panels) + row / k_rows * k_rows * row_bytes;
        const auto lane = static_cast<int>(row % k_rows);
        const PanelBlock<Lanes> header = {panel, lane};
        const PanelBlock<Lanes> block = {
            panel + (Block::row_header_bytes + int64_t{unit} / k_block_units * Block::block_bytes) * k_rows,
            lane};
        with_unit<P>(unit % k_block_units, [&](auto block_unit) {
            Unit weights;
            unpack_unit<P, block_unit>(header, block, t.shared(), weights);
            write(t, weights, reinterpret_cast<SixteenBytes*>(out + row * cols + int64_t{unit} * 32));
        });
    }

  private:
    template <class T>
    MINIM_DEVICE static void write(T& t, const Unit& weights, SixteenBytes* to) {
        constexpr int k_words_a_group = 8 / Kind::k_groups;
        for (int part = 0; part < 4; ++part) {
            SixteenBytes eight;
            for (int i = 0; i < 4; ++i) {
                const int word = 2 * part + i / 2;
                const int group = word / k_words_a_group;
                const float scale = weights.scale[group] * k_unpacked_factor;
                const float minimum = Kind::k_minima ? weights.minimum[group] * k_unpacked_factor : 0.0F;
                float value[2];
                for (int k = 0; k < 2; ++k) {
                    const uint32_t byte = weights.code[word] >> (8 * (2 * (i % 2) + k));
                    const int code = Kind::k_codes == Codes::wide
                                         ? static_cast<int>(static_cast<int8_t>(byte & 255U))
                                         : static_cast<int>(byte & 255U) - Kind::k_offset;
                    value[k] = Lanes::fma(static_cast<float>(code), scale, minimum);
                }
                eight.word[i] = t.pack_f16(value[0], value[1]);
            }
            to[part] = eight;
        }
    }
};

}  // namespace minim::cuda::fast
