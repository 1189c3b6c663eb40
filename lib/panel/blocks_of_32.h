// SPDX-License-Identifier: Apache-2.0
// Panels of the formats with blocks of 32 under one float scale: Q4_0, Q4_1, Q5_0, Q5_1, Q6_0, Q8_0, IQ4_NL, MXFP4, and NVFP4 with
// its blocks of 64. Layouts: lib/format/. The family includes integers of eight bits (integers.h).
#pragma once

#include "format/iq4_nl.h"
#include "format/mxfp4.h"
#include "format/nvfp4.h"
#include "format/q4_0.h"
#include "format/q5_0.h"
#include "format/q6_0.h"
#include "format/q8_0.h"
#include "panel/byte_codes.h"
#include "panel/integers.h"

namespace minim::panel {

template <class L>
struct Q8_0Panel {
    using Block = Q8_0;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    static constexpr int k_codes_at =
        Block::codes_at;  // the words of a block are the codes of its only unit, in place
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Q8_0Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        for (int k = 0; k < 8; ++k) unit.code[k] = L::wide(block.word(k_codes_at + 4 * k));
        unit.scale[0] = scale();
    }
    MINIM_KERNEL_FUNCTION typename L::Float scale() const { return block.f16(Block::d_at); }
};

template <class L>
struct Q4_0Panel {
    using Block = Q4_0;
    using Kind = PanelKind<Codes::small, 15, 8, 1, false>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Q4_0Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        code4_of_32<L>(block, Block::codes_at, unit.code);
        unit.scale[0] = block.f16(Block::d_at);
    }
};

template <class L>
struct Q4_1Panel {
    using Block = Q4_1;
    using Kind = PanelKind<Codes::small, 15, 0, 1, true>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Q4_1Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        code4_of_32<L>(block, Block::codes_at, unit.code);
        unit.scale[0] = block.f16(Block::d_at);
        unit.minimum[0] = block.f16(Block::m_at);
    }
};

// Bit e of `high` is bit 4 of code e.
template <class L>
MINIM_KERNEL_INLINE void add_fifth_bits(typename L::Int high, typename L::Int* code) {
    code[0] = L::or_bytes(code[0], L::template bits_mask<0>(high), 16);
    code[1] = L::or_bytes(code[1], L::template bits_mask<4>(high), 16);
    code[2] = L::or_bytes(code[2], L::template bits_mask<8>(high), 16);
    code[3] = L::or_bytes(code[3], L::template bits_mask<12>(high), 16);
    code[4] = L::or_bytes(code[4], L::template bits_mask<16>(high), 16);
    code[5] = L::or_bytes(code[5], L::template bits_mask<20>(high), 16);
    code[6] = L::or_bytes(code[6], L::template bits_mask<24>(high), 16);
    code[7] = L::or_bytes(code[7], L::template bits_mask<28>(high), 16);
}

template <class L>
struct Q5_0Panel {
    using Block = Q5_0;
    using Kind = PanelKind<Codes::small, 31, 16, 1, false>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Q5_0Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        code4_of_32<L>(block, Block::codes_at, unit.code);
        add_fifth_bits<L>(block.word(Block::high_at), unit.code);
        unit.scale[0] = block.f16(Block::d_at);
    }
};

template <class L>
struct Q5_1Panel {
    using Block = Q5_1;
    using Kind = PanelKind<Codes::small, 31, 0, 1, true>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Q5_1Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        code4_of_32<L>(block, Block::codes_at, unit.code);
        add_fifth_bits<L>(block.word(Block::high_at), unit.code);
        unit.scale[0] = block.f16(Block::d_at);
        unit.minimum[0] = block.f16(Block::m_at);
    }
};

template <class L>
struct Q6_0Panel {
    using Block = Q6_0;
    using Kind = PanelKind<Codes::small, 63, 32, 1, false>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Q6_0Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        code4_of_32<L>(block, Block::codes_at, unit.code);
        // Byte e % 8 of `high` holds the bits of element e at 4 * (e / 8 % 2) + 2 * (e / 16).
        for (int k = 0; k < 2; ++k) {
            const auto high = block.word(Block::high_at + 4 * k);
            unit.code[k] = L::bit_or(unit.code[k], L::template shift_left<4>(byte_bits<L, 0, 3>(high)));
            unit.code[k + 2] =
                L::bit_or(unit.code[k + 2], L::template shift_left<4>(byte_bits<L, 4, 3>(high)));
            unit.code[k + 4] =
                L::bit_or(unit.code[k + 4], L::template shift_left<4>(byte_bits<L, 2, 3>(high)));
            unit.code[k + 6] =
                L::bit_or(unit.code[k + 6], L::template shift_left<4>(byte_bits<L, 6, 3>(high)));
        }
        unit.scale[0] = block.f16(Block::d_at);
    }
};

template <class L>
struct Iq4NlPanel {
    using Block = IQ4_NL;
    using Kind = PanelKind<Codes::wide, 128, 0, 1, false>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Iq4NlPanel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        value4_of_32<L>(block, Block::codes_at, L::wide_table(iq4nl_values()), unit.code);
        unit.scale[0] = block.f16(Block::d_at);
    }
};

// Doubled E2M1 values are in -12 .. 12; plus 12, they are small codes.
inline constexpr int k_e2m1_offset = 12;

struct E2m1Codes {
    int8_t value[16];
};
MINIM_HOST_DEVICE constexpr E2m1Codes e2m1_codes_of(const Table<int8_t, 16>& doubled) {
    E2m1Codes codes{};
    for (int i = 0; i < 16; ++i) codes.value[i] = static_cast<int8_t>(doubled.data[i] + k_e2m1_offset);
    return codes;
}
MINIM_HOST_DEVICE const int8_t* e2m1_codes() {
    static constexpr E2m1Codes k_codes = e2m1_codes_of(codebooks::k_e2m1_doubled);
    return k_codes.value;
}

template <class L>
struct Mxfp4Panel {
    using Block = MXFP4;
    using Kind = PanelKind<Codes::small, 24, k_e2m1_offset, 1, false>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Mxfp4Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    template <int>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        value4_of_32<L>(block, Block::codes_at, L::table(e2m1_codes()), unit.code);
        // Returns 2^(x - 128), as e8m0_half_to_float(): exponent x - 1 from x = 2 on, a subnormal number below.
        const auto x = block.byte(Block::exponent_at);
        const auto exponent = L::template shift_left<23>(L::sub(x, L::all(1)));
        const auto low = L::template shift_left<21>(L::add(x, L::all(1)));
        unit.scale[0] = L::choose_below(x, 2, L::as_float(low), L::as_float(exponent));
    }
};

template <class L>
struct Nvfp4Panel {
    using Block = NVFP4;
    using Kind = PanelKind<Codes::small, 24, k_e2m1_offset, 2, false>;
    PanelBlock<L> block;
    MINIM_KERNEL_FUNCTION Nvfp4Panel(PanelBlock<L>, PanelBlock<L> at) : block(at) {}
    // Returns half of ue4m3_to_float(), from a code whose exponent and mantissa are shifted to their place in a float: bias 7 becomes
    // 126; numbers below exponent 1 are subnormal, 0x7F is 0.
    template <int g>
    MINIM_KERNEL_FUNCTION typename L::Float half_scale(typename L::Int scales) const {
        const auto code = L::bit_and(moved<L, 8 * g, 20>(scales), L::all(0x7F << 20));
        const auto normal = L::as_float(L::add(code, L::all(0x3B800000)));
        const auto subnormal = L::mul(L::to_float(code), L::all(0x1p-30F));
        return L::choose_below(code, 8 << 20, subnormal,
                               L::choose_below(code, 0x7F << 20, normal, L::zero()));
    }
    template <int u>
    MINIM_KERNEL_INLINE void unpack(Unit<L>& unit) const {
        const auto values = L::table(e2m1_codes());
        for (int g = 0; g < 2; ++g) {
            for (int k = 0; k < 2; ++k) {
                const auto word = block.word(Block::codes_at + 16 * u + 8 * g + 4 * k);
                auto& low = unit.code[4 * g + k];
                auto& high = unit.code[4 * g + k + 2];
                if constexpr (requires { L::look_up_packed(values, word, low, high); }) {
                    L::look_up_packed(values, word, low, high);  // on a device with its own order
                } else {
                    value4<L>(values, word, low, high);
                }
            }
        }
        const auto scales = block.word(Block::scales_at);
        unit.scale[0] = half_scale<2 * u>(scales);
        unit.scale[1] = half_scale<2 * u + 1>(scales);
    }
};

// The formats that look up their values.
template <class L>
using BlocksOf32WithTables = PanelList<Iq4NlPanel<L>, Mxfp4Panel<L>, Nvfp4Panel<L>>;

template <class L>
using BlocksOf32 = decltype(joined(
    PanelList<Q4_0Panel<L>, Q4_1Panel<L>, Q5_0Panel<L>, Q5_1Panel<L>, Q6_0Panel<L>, Q8_0Panel<L>,
              Int4W32Panel<L>, Int8SymmetricPanel<L, INT8_S64>, Int8SymmetricPanel<L, INT8_S128>,
              Int8ZerosPanel<L, INT8_Z32>, Int8ZerosPanel<L, INT8_Z64>, Int8ZerosPanel<L, INT8_Z128>,
              Int8RowPanel<L>, Int8W32Panel<L>>(),
    BlocksOf32WithTables<L>()));

}  // namespace minim::panel
