// SPDX-License-Identifier: Apache-2.0
// Panels of the integers of quantised folders. Layouts: lib/format/int4.h, int8.h.
#pragma once

#include "format/int4.h"
#include "format/int8.h"
#include "panel/byte_codes.h"

namespace minim::panel {

// A scale whose sign bit is the highest bit of the zero point + 1.
template <class L>
struct ScaleWithBit {
    typename L::Float scale;
    typename L::Int bit;  // 0 or 1

    MINIM_KERNEL_FUNCTION explicit ScaleWithBit(typename L::Int half)
        : scale(L::f16_of(L::bit_and(half, L::all(0x7FFF)))), bit(L::template shift_right<15>(half)) {}
};

template <class L, class B>
struct Int4SymmetricPanel {
    using Block = B;
    using Kind = PanelKind<Codes::small, 15, 8, 1, false>;
    template <class Other>
    using With = Int4SymmetricPanel<Other, B>;
    PanelBlock<L> block;
    typename L::Float d;
    SharedWords<L, 8> codes;

    MINIM_KERNEL_FUNCTION Int4SymmetricPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), d(at.f16(Block::d_at)) {}

    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) {
        code4_of_64<L, u>(block, Block::codes_at, codes, unit.code);
        unit.scale[0] = d;
    }
};

template <class L>
struct Int4RowPanel {
    using Block = INT4_ROW;
    using Kind = PanelKind<Codes::small, 15, 8, 1, false>;
    template <class Other>
    using With = Int4RowPanel<Other>;
    PanelBlock<L> block;
    typename L::Float d;
    SharedWords<L, 8> codes;

    MINIM_KERNEL_FUNCTION Int4RowPanel(PanelBlock<L> header, PanelBlock<L> at)
        : block(at), d(header.f32(0)) {}

    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) {
        code4_of_64<L, u>(block, Block::codes_at, codes, unit.code);
        unit.scale[0] = d;
    }
};

template <class L, class B>
struct Int4ZerosPanel {
    using Block = B;
    using Kind = PanelKind<Codes::small, 15, 0, 1, true>;
    template <class Other>
    using With = Int4ZerosPanel<Other, B>;
    PanelBlock<L> block;
    typename L::Float d[Block::n_groups];
    typename L::Float minimum[Block::n_groups];
    SharedWords<L, 8> codes;

    MINIM_KERNEL_FUNCTION Int4ZerosPanel(PanelBlock<L>, PanelBlock<L> at) : block(at) {
        const auto zeros = at.byte(Block::zeros_at);
        for (int g = 0; g < Block::n_groups; ++g) {
            const ScaleWithBit<L> packed(at.half(Block::d_at + 2 * g));
            const auto low = g == 0 ? L::bit_and(zeros, L::all(15)) : L::template shift_right<4>(zeros);
            const auto zero = L::bit_or(low, L::template shift_left<4>(packed.bit));
            d[g] = packed.scale;
            minimum[g] = L::mul(d[g], L::to_float(L::sub(L::all(1), zero)));
        }
    }

    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) {
        code4_of_64<L, u>(block, Block::codes_at, codes, unit.code);
        unit.scale[0] = d[32 * u / Block::group];
        unit.minimum[0] = minimum[32 * u / Block::group];
    }
};

template <class L>
struct Int4W32Panel {
    using Block = INT4_W32;
    using Kind = PanelKind<Codes::small, 15, 0, 1, true>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Int4W32Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        code4_of_32<L>(block, Block::codes_at, unit.code);
        unit.scale[0] = L::as_float(block.word(Block::d_at));
        const auto minus_zero = L::to_float(L::sub(L::all(0), block.word(Block::zero_at)));
        unit.minimum[0] = L::mul(unit.scale[0], minus_zero);
    }
};

// Loads the codes of unit u of a block.
template <class L, int u>
MINIM_KERNEL_INLINE void signed_codes(const PanelBlock<L>& block, int at, typename L::Int* code) {
    for (int k = 0; k < 8; ++k) code[k] = L::wide(block.word(at + 32 * u + 4 * k));
}

template <class L, class B>
struct Int8SymmetricPanel {
    using Block = B;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Int8SymmetricPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), d(at.f16(Block::d_at)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        signed_codes<L, u>(block, Block::codes_at, unit.code);
        unit.scale[0] = d;
    }
};

template <class L>
struct Int8RowPanel {
    using Block = INT8_ROW;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Int8RowPanel(PanelBlock<L> header, PanelBlock<L> at)
        : block(at), d(header.f32(0)) {}
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        signed_codes<L, u>(block, Block::codes_at, unit.code);
        unit.scale[0] = d;
    }
};

template <class L, class B>
struct Int8ZerosPanel {
    using Block = B;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, true>;
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Float minimum;
    MINIM_KERNEL_FUNCTION Int8ZerosPanel(PanelBlock<L>, PanelBlock<L> at) : block(at) {
        const ScaleWithBit<L> packed(at.half(Block::d_at));
        const auto zero = L::bit_or(at.byte(Block::zero_at), L::template shift_left<8>(packed.bit));
        d = packed.scale;
        minimum = L::mul(d, L::to_float(L::sub(L::all(129), zero)));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        signed_codes<L, u>(block, Block::codes_at, unit.code);
        unit.scale[0] = d;
        unit.minimum[0] = minimum;
    }
};

template <class L>
struct Int8W32Panel {
    using Block = INT8_W32;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, true>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Int8W32Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        signed_codes<L, 0>(block, Block::codes_at, unit.code);
        unit.scale[0] = L::as_float(block.word(Block::d_at));
        const auto minus_zero = L::to_float(L::sub(L::all(0), block.word(Block::zero_at)));
        unit.minimum[0] = L::mul(unit.scale[0], minus_zero);
    }
};

}  // namespace minim::panel
