// SPDX-License-Identifier: Apache-2.0
// Panels of Q2_K, Q3_K, Q4_K, Q5_K and Q6_K. Layouts: lib/format/. The family includes integers of four bits whose codes are laid out
// as in Q4_K (integers.h).
#pragma once

#include "format/q2_k.h"
#include "format/q3_k.h"
#include "format/q4_k.h"
#include "format/q5_k.h"
#include "format/q6_k.h"
#include "panel/byte_codes.h"
#include "panel/integers.h"

namespace minim::panel {

// The 6-bit scales and minima of Q4_K and Q5_K, as bytes: [0] for units 0 to 3, [1] for units 4 to 7.
template <class L>
struct SixBitScales {
    using Int = typename L::Int;
    Int scale[2];
    Int minimum[2];

    MINIM_KERNEL_FUNCTION SixBitScales(const PanelBlock<L>& block, int at) {
        SharedWords<L, 3> words;
        words.read(block, at);
        const Int a = words[0];
        const Int b = words[1];
        const Int c = words[2];
        scale[0] = byte_bits<L, 0, 0x3F>(a);
        minimum[0] = byte_bits<L, 0, 0x3F>(b);
        scale[1] = L::bit_or(byte_bits<L, 0, 0x0F>(c), byte_bits<L, 2, 0x30>(a));
        minimum[1] = L::bit_or(byte_bits<L, 4, 0x0F>(c), byte_bits<L, 2, 0x30>(b));
    }
};

template <class L, class Format>
struct MinimaPanel {
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Float minus_dmin;
    SixBitScales<L> scales;

    MINIM_KERNEL_FUNCTION MinimaPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at),
          d(at.f16(Format::d_at)),
          minus_dmin(L::mul(at.f16(Format::dmin_at), L::all(-1.0F))),
          scales(at, Format::scales_at) {}

    template <int u>
    MINIM_KERNEL_INLINE void unpack_scales(Unit<L>& unit) const {
        unit.scale[0] = L::mul(d, L::to_float(byte_of<L, u % 4>(scales.scale[u / 4])));
        unit.minimum[0] = L::mul(minus_dmin, L::to_float(byte_of<L, u % 4>(scales.minimum[u / 4])));
    }
};

template <class L>
struct Q4KPanel : MinimaPanel<L, Q4_K> {
    using Block = Q4_K;
    using Kind = PanelKind<Codes::small, 15, 0, 1, true>;
    template <class Other>
    using With = Q4KPanel<Other>;
    using MinimaPanel<L, Q4_K>::MinimaPanel;
    SharedWords<L, 8> low;

    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) {
        code4_of_64<L, u>(this->block, Block::codes_at, low, unit.code);
        this->template unpack_scales<u>(unit);
    }
};

template <class L>
struct Q5KPanel : MinimaPanel<L, Q5_K> {
    using Block = Q5_K;
    using Kind = PanelKind<Codes::small, 31, 0, 1, true>;
    template <class Other>
    using With = Q5KPanel<Other>;
    using MinimaPanel<L, Q5_K>::MinimaPanel;
    SharedWords<L, 8> high;
    SharedWords<L, 8> low;

    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) {
        if constexpr (k_reads_shared<L, u, 8>) high.read(this->block, Block::high_at);
        code4_of_64<L, u>(this->block, Block::codes_at, low, unit.code);
        for (int k = 0; k < 8; ++k) unit.code[k] = L::bit_or(unit.code[k], code1_of_word<L, u, 4>(high[k]));
        this->template unpack_scales<u>(unit);
    }
};

template <class L>
struct Q2KPanel {
    using Block = Q2_K;
    using Kind = PanelKind<Codes::small, 3, 0, 2, true>;
    PanelBlock<L> block;
    typename L::Float d;
    typename L::Float minus_dmin;
    MINIM_KERNEL_FUNCTION Q2KPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), d(at.f16(Block::d_at)), minus_dmin(L::mul(at.f16(Block::dmin_at), L::all(-1.0F))) {}

    template <int u, int g>
    MINIM_KERNEL_INLINE void unpack_scale(Unit<L>& unit) const {
        constexpr int k_byte = 2 * u + g;
        const auto word = block.word(Block::scales_at + k_byte / 4 * 4);
        unit.scale[g] = L::mul(d, L::to_float(bits_of<L, 8 * (k_byte % 4), 4>(word)));
        unit.minimum[g] = L::mul(minus_dmin, L::to_float(bits_of<L, 8 * (k_byte % 4) + 4, 4>(word)));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) unit.code[k] = code2_of_128<L, u>(block, Block::codes_at, k);
        unpack_scale<u, 0>(unit);
        unpack_scale<u, 1>(unit);
    }
};

template <class L>
struct Q3KPanel {
    using Block = Q3_K;
    using Kind = PanelKind<Codes::small, 7, 4, 2, false>;
    PanelBlock<L> block;
    typename L::Float d;
    MINIM_KERNEL_FUNCTION Q3KPanel(PanelBlock<L>, PanelBlock<L> at) : block(at), d(at.f16(Block::d_at)) {}

    template <int g>
    MINIM_KERNEL_FUNCTION typename L::Float scale() const {
        const auto low = block.word(Block::scales_at + g % 8 / 4 * 4);
        const auto high = block.word(Block::scales_at + 8);
        const auto low_bits = bits_of<L, 8 * (g % 4) + 4 * (g / 8), 4>(low);
        const auto high_bits = bits_of<L, 8 * (g % 4) + 2 * (g / 4), 2>(high);
        const auto number = L::bit_or(low_bits, L::template shift_left<4>(high_bits));
        return L::mul(d, L::to_float(L::sub(number, L::all(32))));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) {
            unit.code[k] = L::bit_or(code2_of_128<L, u>(block, Block::codes_at, k),
                                     code1_of_256<L, u, 2>(block, Block::high_at, k));
        }
        unit.scale[0] = scale<2 * u>();
        unit.scale[1] = scale<2 * u + 1>();
    }
};

template <class L>
struct Q6KPanel {
    using Block = Q6_K;
    using Kind = PanelKind<Codes::small, 63, 32, 2, false>;
    template <class Other>
    using With = Q6KPanel<Other>;
    MINIM_HOST_DEVICE static constexpr int place_of(int at) {
        return static_cast<int>(place_in_panel(Block::format, at));
    }
    PanelBlock<L> block;
    typename L::Float d;
    SharedWords<L, 2> scales;
    SharedWords<L, 8> high;
    MINIM_KERNEL_FUNCTION Q6KPanel(PanelBlock<L>, PanelBlock<L> at)
        : block(at), d(at.f16(place_of(Block::d_at))) {}

    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) {
        if constexpr (k_reads_shared<L, u, 4>) {
            scales.read(block, place_of(Block::scales_at + 8 * (u / 4)));
            high.read(block, place_of(Block::high_at + 32 * (u / 4)));
        }
        // 64 bytes of low nibbles hold 128 elements: units 0 and 1 the low halves, 2 and 3 the high ones.
        constexpr int k_low = place_of(Block::codes_at + 64 * (u / 4) + 32 * (u % 2));
        for (int k = 0; k < 8; ++k) {
            const auto low = byte_bits<L, 4 * (u % 4 / 2), 15>(block.word(k_low + 4 * k));
            unit.code[k] = L::bit_or(low, code2_of_word<L, u, 4>(high[k]));
        }
        const auto scales_of_two = scales[u % 4 / 2];
        unit.scale[0] = L::mul(d, L::to_float(signed_byte_of<L, u % 2 * 2>(scales_of_two)));
        unit.scale[1] = L::mul(d, L::to_float(signed_byte_of<L, u % 2 * 2 + 1>(scales_of_two)));
    }
};

template <class L>
using KQuants =
    PanelList<Q2KPanel<L>, Q3KPanel<L>, Q4KPanel<L>, Q5KPanel<L>, Q6KPanel<L>,
              Int4SymmetricPanel<L, INT4_S64>, Int4SymmetricPanel<L, INT4_S128>, Int4ZerosPanel<L, INT4_Z32>,
              Int4ZerosPanel<L, INT4_Z64>, Int4ZerosPanel<L, INT4_Z128>, Int4RowPanel<L>>;

}  // namespace minim::panel
