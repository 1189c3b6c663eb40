// SPDX-License-Identifier: Apache-2.0
// Panels of unpacked codebooks: a code for each weight. Layouts: lib/format/x1.h to x3.h.
#pragma once

#include "format/x1.h"
#include "format/x2.h"
#include "format/x3.h"
#include "panel/grids.h"
#include "panel/value_tables.h"

namespace minim::panel {

// Writes 8 * code + 2 to word k of `code`, or 8 * code if the shift is down; `up` is 2 or 0.
template <class L, class X, int u>
MINIM_KERNEL_INLINE void put_eighth(const PanelBlock<L>& block, int k, typename L::Int up,
                                    typename L::Int* code) {
    code[k] = L::add_bytes(code2_of_128<L, u, 3>(block, X::codes_at, k), up);
}
template <class L>
MINIM_KERNEL_FUNCTION typename L::Int up_of(typename L::Int down_lanes) {
    return L::sub(L::all(0x02020202), L::bit_and(down_lanes, L::all(0x02020202)));
}

template <class L>
struct X1SPanel {
    using Block = X1_S;
    using Kind = typename Iq1SPanel<L>::Kind;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    typename L::Int scales;
    MINIM_KERNEL_INLINE X1SPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f32(Block::d_at), 0.25F), scales(at.word(Block::scales_at)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto up = up_of<L>(lanes_with_bit<L, 4 * u + 3>(scales));
        for (int k = 0; k < 8; ++k) put_eighth<L, Block, u>(block, k, up, unit.code);
        unit.scale[0] = scale.of(bits_of<L, 4 * u, 3>(scales));
    }
};

template <class L>
struct X1MPanel {
    using Block = X1_M;
    using Kind = typename Iq1MPanel<L>::Kind;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    typename L::Int shifts;
    MINIM_KERNEL_INLINE X1MPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f32(Block::d_at), 0.25F), shifts(at.word(Block::shifts_at)) {}
    template <int u, int point>
    MINIM_KERNEL_INLINE void put_entry(typename L::Int* code) const {
        const auto up = up_of<L>(lanes_with_bit<L, 4 * u + point>(shifts));
        put_eighth<L, Block, u>(block, 2 * point, up, code);
        put_eighth<L, Block, u>(block, 2 * point + 1, up, code);
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        put_entry<u, 0>(unit.code);
        put_entry<u, 1>(unit.code);
        put_entry<u, 2>(unit.code);
        put_entry<u, 3>(unit.code);
        const auto scales = block.word(Block::scales_at + u / 4 * 4);
        scale.put_two(L::template shift_right<8 * (u % 4)>(scales), unit.scale);
    }
};

// The values of the codes: offset + magnitude, or offset - magnitude if the code's third bit is set. The eight values repeat
// for all indices of six bits.
inline constexpr ValueTable k_x2_values = [] {
    ValueTable table{};
    for (size_t i = 0; i < 64; ++i) {
        const int magnitude = i % 4 < 3 ? codebooks::k_iq2s_magnitudes.data[i % 4] : 0;
        table.value[i] =
            static_cast<int8_t>(i / 4 % 2 == 0 ? k_iq2_offset + magnitude : k_iq2_offset - magnitude);
    }
    return table;
}();

template <class L, class X, int u>
MINIM_KERNEL_INLINE void put_signed_codes(const PanelBlock<L>& block, typename L::Int* code) {
    for (int k = 0; k < 8; ++k) {
        const auto word = [&](int plane) MINIM_KERNEL_INLINE_LAMBDA {
            return block.word(X::codes_at + 32 * plane + 4 * k);
        };
        if constexpr (LooksUpSixBits<L>) {
            const auto table = L::table_64(k_x2_values.value);
            if constexpr (u < 6) {
                code[k] = L::look_up_six_bits(table, moved<L, 3 * (u % 2), 0>(word(u / 2)));
            } else {
                code[k] = L::look_up_six_bits(
                    table, L::template merge_above<2>(moved<L, 6, 0>(word(u - 6)), moved<L, u, 2>(word(2))));
            }
        } else {
            const auto table = L::table(k_x2_values.value);
            if constexpr (u < 6) {
                code[k] = L::look_up(table, byte_bits<L, 3 * (u % 2), 7>(word(u / 2)));
            } else {
                const auto sign = L::bit_and(moved<L, u, 2>(word(2)), L::all(0x04040404));
                code[k] = L::look_up(table, L::bit_or(byte_bits<L, 6, 3>(word(u - 6)), sign));
            }
        }
    }
}

// Panels with a scale for each unit, one of eight nibbles.
template <class L, class X>
struct UnitScalesPanel {
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    typename L::Int scales;

    MINIM_KERNEL_INLINE UnitScalesPanel(PanelBlock<L> at, float factor)
        : block(at), scale(at.f32(X::d_at), factor), scales(at.word(X::scales_at)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack_scale(Unit<L>& unit) const {
        unit.scale[0] = scale.of(bits_of<L, 4 * u, 4>(scales));
    }
};

template <class L>
struct X2XxsPanel : UnitScalesPanel<L, X2_XXS> {
    using Block = X2_XXS;
    using Kind = typename Iq2XxsPanel<L>::Kind;
    MINIM_KERNEL_INLINE X2XxsPanel(PanelBlock<L>, PanelBlock<L> at)
        : UnitScalesPanel<L, X2_XXS>(at, Iq2XxsLayout::k_scale_factor) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        put_signed_codes<L, Block, u>(this->block, unit.code);
        this->template unpack_scale<u>(unit);
    }
};

template <class L, class X>
struct X2Panel {
    using Block = X;
    using Kind = typename Iq2SPanel<L>::Kind;
    PanelBlock<L> block;
    HalfStepScale<L> scale;
    MINIM_KERNEL_INLINE X2Panel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), scale(at.f32(Block::d_at), Iq2SLayout::k_scale_factor) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        put_signed_codes<L, Block, u>(block, unit.code);
        const auto scales = block.word(Block::scales_at + u / 4 * 4);
        scale.put_two(L::template shift_right<8 * (u % 4)>(scales), unit.scale);
    }
};

// The values of the codes, plus the offset.
inline constexpr ValueTable k_x3xxs_table = value_table(k_x3xxs_values, 0, 1, 16, k_iq3xxs_offset);

template <class L>
struct X3XxsPanel : UnitScalesPanel<L, X3_XXS> {
    using Block = X3_XXS;
    using Kind = typename Iq3XxsPanel<L>::Kind;
    MINIM_KERNEL_INLINE X3XxsPanel(PanelBlock<L>, PanelBlock<L> at) : UnitScalesPanel<L, X3_XXS>(at, 0.5F) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        value4_of_32<L>(this->block, Block::codes_at + 16 * u, L::table(k_x3xxs_table.value), unit.code);
        this->template unpack_scale<u>(unit);
    }
};

template <class L>
struct X3SPanel : UnitScalesPanel<L, X3_S> {
    using Block = X3_S;
    using Kind = typename Iq3SPanel<L>::Kind;
    MINIM_KERNEL_INLINE X3SPanel(PanelBlock<L>, PanelBlock<L> at)
        : UnitScalesPanel<L, X3_S>(at, Iq3SLayout::k_scale_factor) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        // Value and offset are twice the code.
        for (int k = 0; k < 4; ++k) {
            const auto word = this->block.word(Block::codes_at + 16 * u + 4 * k);
            unit.code[k] = L::bit_and(L::template shift_left<1>(word), L::all(0x1E1E1E1E));
            unit.code[k + 4] = byte_bits<L, 3, 0x1E>(word);
        }
        this->template unpack_scale<u>(unit);
    }
};

// The formats that look up their values.
template <class L>
using UnpackedWithTables = PanelList<X2XxsPanel<L>, X2Panel<L, X2_XS>, X2Panel<L, X2_S>, X3XxsPanel<L>>;

template <class L>
using Unpacked =
    decltype(joined(PanelList<X1SPanel<L>, X1MPanel<L>, X3SPanel<L>>(), UnpackedWithTables<L>()));

}  // namespace minim::panel
