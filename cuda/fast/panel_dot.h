// SPDX-License-Identifier: Apache-2.0
// Common parts of the kernels of packed weights. A warp's lanes are the rows of two panels (panel/panel.h), 16 each.
// A warp works on one unit of 32 columns at a time, so that all its lanes decode the same unit in the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/fast/device.h"
#include "cuda/fast/lanes.h"
#include "cuda/fast/q8_block.h"
#include "panel/units.h"

namespace minim::cuda::fast {

using panel::Codes;
using panel::k_panel_rows;
using panel::PanelBlock;
using Unit = panel::Unit<Lanes>;

// Lanes for products whose dots include the shifts of codes (panel::AddsShiftsInDots), and a format on them.
struct DotLanes : Lanes {
    static constexpr bool k_adds_shifts_in_dots = true;
};
template <class P>
struct ForDots {
    using L = Lanes;
    using Panel = P;
};
template <class P>
requires requires {
    typename P::template AddingShifts<DotLanes>;
}
struct ForDots<P> {
    using L = DotLanes;
    using Panel = typename P::template AddingShifts<DotLanes>;
};

// Columns that the warps of a block work on between two barriers: eight units, one per warp.
inline constexpr int k_stage_cols = 256;
inline constexpr int k_stage_units = k_stage_cols / 32;

// Bytes of k_stage_cols columns of a panel, without the rows' headers.
template <class Block>
inline constexpr int k_stage_panel_bytes =
    k_stage_cols / Block::block_elems* Block::block_bytes* static_cast<int>(k_panel_rows);

// The distance of two panels: words of one and of the other are never in the same banks.
template <class Block>
inline constexpr int k_stage_panel_stride = (k_stage_panel_bytes<Block> + 127) / 128 * 128 + 64;

template <class P>
concept TakesUnitAtRunTime = requires(const P& panel, Unit& unit) {
    panel.unpack(0, unit);
};

// Decoders that look up in a table which the kernel has copied to shared memory.
template <class P>
concept HasTable = requires {
    P::k_table_words;
};

template <class P>
inline constexpr int k_table_bytes = [] {
    if constexpr (HasTable<P>) {
        return 4 * P::k_table_words;
    } else {
        return 0;
    }
}();

// Copies the table; all threads of the block call it, and a barrier must follow.
template <class P, class T>
MINIM_DEVICE void copy_table(T& t, int n_threads, std::byte* to) {
    if constexpr (HasTable<P>) {
        for (int i = t.index(); i < P::k_table_words; i += n_threads)
            reinterpret_cast<uint32_t*>(to)[i] = P::table()[i];
    }
}

// Prefetches a panel's stages from n_first on; all threads of the block call it.
template <class Block, class T>
MINIM_DEVICE void prefetch_panel(T& t, int n_threads, const std::byte* panel, int64_t cols, int n_first) {
    const int64_t first = int64_t{n_first} * k_stage_panel_bytes<Block>;
    const int64_t end = cols / Block::block_elems * Block::block_bytes * k_panel_rows;
    const std::byte* units = panel + Block::row_header_bytes * static_cast<int>(k_panel_rows);
    if (first < end) prefetch_together(t, n_threads, units + first, end - first);
}

// Calls with(std::integral_constant<int, unit>) for unit `u` of a block, on which all lanes of a warp agree.
template <class P, int unit = 0, class With>
MINIM_DEVICE void with_unit(int u, const With& with) {
    if constexpr (unit + 1 < P::Block::block_elems / 32) {
        if (u != unit) return with_unit<P, unit + 1>(u, with);
    }
    with(std::integral_constant<int, unit>());
}

// Decodes a unit of the block. The unit is known where the constructor is called, so that the compiler drops what only other
// units need.
template <class P, int unit, class L>
MINIM_DEVICE void unpack_unit(const PanelBlock<L>& header, const PanelBlock<L>& block, const std::byte* table,
                              panel::Unit<L>& out) {
    if constexpr (HasTable<P>) {
        P::unpack(block, unit, reinterpret_cast<const uint32_t*>(table), out);
    } else {
        P panel(header, block);
        if constexpr (TakesUnitAtRunTime<P>) {
            panel.unpack(unit, out);
        } else {
            panel.template unpack<unit>(out);
        }
    }
}

// A Q8Block in registers.
struct InputUnit {
    uint32_t code[8];
    float scale;
    float scaled_sum[2];
    int16_t sum[2];
};
static_assert(sizeof(InputUnit) == sizeof(Q8Block));

MINIM_DEVICE InputUnit load_input(const Q8Block* block) {
    SixteenBytes words[3];
    for (int i = 0; i < 3; ++i) words[i] = reinterpret_cast<const SixteenBytes*>(block)[i];
    InputUnit unit;
    memcpy(&unit, words, sizeof(unit));
    return unit;
}

// Returns what the shifts of a group's codes add to its dot. The lower half of a shift is that of group 0, the upper half that of
// group 1; a unit of one group has the same in both.
template <class Kind, class L>
MINIM_DEVICE int32_t dot_of_shift(const panel::Unit<L>& unit, const InputUnit& input, int g) {
    if constexpr (!Kind::k_shifts) {
        return 0;
    } else if constexpr (Kind::k_groups == 1) {
        return static_cast<int32_t>(unit.shift[0] & 0xFFFFU) * (input.sum[0] + input.sum[1]);
    } else {
        return static_cast<int32_t>(unit.shift[g] >> (16 * g)) * input.sum[g];
    }
}

// Returns sum + the product of group g, whose dot is given.
template <class Kind, class L>
MINIM_DEVICE float add_group(const panel::Unit<L>& unit, const InputUnit& input, int g, uint32_t dot,
                             float sum) {
    sum = Lanes::fma(Lanes::to_float(dot), unit.scale[g] * input.scale, sum);
    if constexpr (Kind::k_minima) {
        const float scaled =
            Kind::k_groups == 1 ? input.scaled_sum[0] + input.scaled_sum[1] : input.scaled_sum[g];
        sum = Lanes::fma(unit.minimum[g], scaled, sum);
    }
    return sum;
}

// Returns sum + the products of a unit and an input, in the order of lib/cpu/generic/linear_panel.h.
template <class Kind, class L>
MINIM_DEVICE float add_unit(const panel::Unit<L>& unit, const InputUnit& input, float sum) {
    constexpr int k_words = 8 / Kind::k_groups;
    for (int g = 0; g < Kind::k_groups; ++g) {
        int32_t codes = dot_of_shift<Kind>(unit, input, g);
        if constexpr (Kind::k_codes == Codes::small && Kind::k_offset != 0)
            codes = -Kind::k_offset * (Kind::k_groups == 1 ? input.sum[0] + input.sum[1] : input.sum[g]);
        auto dot = static_cast<uint32_t>(codes);
        for (int k = k_words * g; k < k_words * (g + 1); ++k)
            dot = Lanes::dot(unit.code[k], input.code[k], dot);
        sum = add_group<Kind>(unit, input, g, dot, sum);
    }
    return sum;
}

}  // namespace minim::cuda::fast
