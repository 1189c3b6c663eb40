// SPDX-License-Identifier: Apache-2.0
// Walks over a panel of weights block by block, and over a block unit by unit (panel/units.h), and prefetches what follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cpu/generic/weights_to_come.h"
#include "cpu/kernels.h"
#include "panel/kernel_inline.h"
#include "panel/units.h"

namespace minim::cpu::generic {

using panel::Codes;
using panel::k_panel_rows;
using panel::PanelBlock;
using panel::Unit;

// The addresses to prefetch during a block, in two steps: far ahead into the second-level cache (few lines can be in flight to
// the first level), and from there into the first level when they are near.
struct Ahead {
    static constexpr bool k_fetches = true;

    const std::byte* far;
    const std::byte* near;

    MINIM_KERNEL_INLINE void fetch(int64_t at) const {
        __builtin_prefetch(far + at, 0, 2);
        __builtin_prefetch(near + at);
    }
};

// No prefetching: the CPU's own prefetcher suffices.
struct NothingAhead {
    static constexpr bool k_fetches = false;
};

// Compilers do not move loads or prefetches across this. Otherwise they gather the prefetches of all units of a block in one
// burst, read words of later units before those of earlier ones, and remove a loop that only prefetches.
MINIM_KERNEL_INLINE void keep_order() {
    asm volatile("");
}

// How far ahead to prefetch depends on the work between two prefetches. With little work, the CPU's own prefetcher does most of
// it, and prefetches beyond its current page disturb it. With much work, it loses the sequence, and a longer distance keeps the
// memory busy. Registers narrower than a panel pass over its blocks twice, the first time at memory speed: both prefetches must
// be made before the columns of a pass begin.
struct ReadAheadDistance {
    int64_t far;
    int64_t near;
};
inline constexpr ReadAheadDistance k_little_work = {4096, 2048};
inline constexpr ReadAheadDistance k_two_passes = {16384, 4096};
inline constexpr ReadAheadDistance k_much_work = {32768, 2048};
inline constexpr ReadAheadDistance k_much_work_for_one = {49152, 2048};  // for one token, in one pass
// The distances for CPUs whose own prefetcher does not help, and the distance for prefetching whole blocks.
inline constexpr ReadAheadDistance k_alone = {16384, 8192};
inline constexpr int64_t k_alone_by_blocks = 8192;

struct ReadAhead {
    WeightsToCome weights;
    ReadAheadDistance distance;

    ReadAhead(const LinearArgs& args, ReadAheadDistance wanted) : weights(args), distance(wanted) {}
    // Returns what a pass over some lanes of a block prefetches: its part begins `pass_bytes` into the bytes that all passes
    // over the block prefetch.
    Ahead begin_block(const std::byte* block, int64_t pass_bytes) const {
        return {weights.after(block, distance.far) + pass_bytes,
                weights.after(block, distance.near) + pass_bytes};
    }
};

// Prefetching for n_panels panels that are read side by side.
template <int n_panels>
struct ReadAheadOfPanels {
    WeightsToCome weights;
    ReadAheadDistance distance;
    int64_t panel_bytes;

    ReadAheadOfPanels(const LinearArgs& args, ReadAheadDistance wanted)
        : weights(args), distance(wanted), panel_bytes(k_panel_rows * args.row_bytes) {}
    // `at`: where in its panel the block begins.
    Ahead begin_block(const std::byte* block, int64_t at) const {
        return {after(block, at, distance.far / n_panels), after(block, at, distance.near / n_panels)};
    }

  private:
    // Returns the address that is read `bytes` after this block. Panels are read n_panels at a time, so the panel that is read
    // after a panel's end is n_panels further on.
    const std::byte* after(const std::byte* block, int64_t at, int64_t bytes) const {
        const int64_t n_passed = n_panels == 1 ? 0 : (at + bytes) / panel_bytes;
        return weights.after(block, bytes + n_passed * (n_panels - 1) * panel_bytes);
    }
};

// For CPUs whose prefetcher does not follow unrolled loads: one software prefetch for each line of a whole block before the first
// pass.
template <class Block>
struct ReadAheadByBlocks {
    WeightsToCome weights;

    explicit ReadAheadByBlocks(const LinearArgs& args) : weights(args) {}
    NothingAhead begin_block(const std::byte* block, int64_t pass_bytes) const {
        if (pass_bytes > 0) return {};
        const std::byte* ahead = weights.after(block, k_alone_by_blocks);
#pragma GCC unroll 1
        for (int at = 0; at < static_cast<int>(k_panel_rows) * Block::block_bytes; at += 64) {
            __builtin_prefetch(ahead + at);
            keep_order();
        }
        return {};
    }
};

struct NoReadAhead {
    static NothingAhead begin_block(const std::byte* /*block*/, int64_t /*pass_bytes*/) { return {}; }
};

// Every pass over a block (one for each L::k_width lanes) prefetches its part of the bytes ahead, spread evenly over its units:
// bursts of requests get less bandwidth.
template <class L, class Block>
inline constexpr int k_pass_bytes = int{L::k_width} * Block::block_bytes;

// Prefetches the part of a pass's bytes that belongs to unit `unit`.
template <class L, class Block, int unit>
MINIM_KERNEL_INLINE void fetch_unit(const Ahead& ahead) {
    constexpr int k_units = Block::block_elems / 32;
    constexpr int k_first = (k_pass_bytes<L, Block> * unit / k_units + 63) / 64 * 64;
    constexpr int k_end = k_pass_bytes<L, Block> * (unit + 1) / k_units;
    for (int at = k_first; at < k_end; at += 64) ahead.fetch(at);
}

template <class L, class P, class AnyAhead, class Visit, int... unit>
MINIM_KERNEL_INLINE void visit_units(P& block, const AnyAhead& ahead, const Visit& visit,
                                     std::integer_sequence<int, unit...>) {
    const auto visit_one = [&](auto number) MINIM_KERNEL_INLINE_LAMBDA {
        keep_order();
        if constexpr (AnyAhead::k_fetches) {
            fetch_unit<L, typename P::Block, number>(ahead);
            keep_order();
        }
        Unit<L> one;
        block.template unpack<number>(one);
        visit(one);
    };
    (visit_one(std::integral_constant<int, unit>()), ...);
}

// Formats whose units take many instructions: unrolled eight times, they would exceed the CPU's cache of decoded instructions.
template <class L, class P>
concept UnpacksInLoop = requires(const P& panel, Unit<L>& unit) {
    panel.unpack(0, unit);
};

template <class L, class P, class AnyAhead, class Visit>
MINIM_KERNEL_INLINE void visit_units_in_loop(const P& block, const AnyAhead& ahead, const Visit& visit) {
    using Block = typename P::Block;
    constexpr int k_units = Block::block_elems / 32;
    constexpr int k_unit_bytes = k_pass_bytes<L, Block> / k_units;
#pragma GCC unroll 1
    for (int unit = 0; unit < k_units; ++unit) {
        // A line that belongs to two units is prefetched twice: checking for it would take longer.
        if constexpr (AnyAhead::k_fetches) {
            for (int at = 0; at < k_unit_bytes; at += 64) ahead.fetch(k_unit_bytes * unit + at);
        }
        Unit<L> one;
        block.unpack(unit, one);
        visit(one);
    }
}

// Some blocks of a panel, of k_panel_cols columns at most.
template <class Block>
struct PanelBlocks {
    static constexpr int64_t k_block_bytes = k_panel_rows * Block::block_bytes;
    static constexpr int64_t k_block_units = Block::block_elems / 32;

    const std::byte* panel;
    int64_t first;
    int64_t count;

    const std::byte* data() const {
        return panel + k_panel_rows * Block::row_header_bytes + first * k_block_bytes;
    }
    // Returns the same blocks of a later panel.
    PanelBlocks of_panel(int64_t further, int64_t row_bytes) const {
        return {panel + further * k_panel_rows * row_bytes, first, count};
    }
    int64_t first_unit() const { return first * k_block_units; }
    int64_t n_units() const { return count * k_block_units; }
};

// Calls use(blocks) for all blocks of a panel, in order.
template <class P, class Use>
MINIM_KERNEL_INLINE void for_each_blocks(const LinearArgs& args, int64_t panel, const Use& use) {
    using Block = typename P::Block;
    constexpr int64_t k_max = k_panel_cols / Block::block_elems;
    static_assert(k_panel_cols % Block::block_elems == 0);
    const std::byte* data = args.weight + panel * k_panel_rows * args.row_bytes;
    const int64_t n_blocks = args.cols / Block::block_elems;
    for (int64_t first = 0; first < n_blocks; first += k_max) {
        use(PanelBlocks<Block>{data, first, n_blocks - first < k_max ? n_blocks - first : k_max});
    }
}

// Calls visit(unit) for every unit of some blocks, in order, and prefetches as `read_ahead` says.
template <class L, class P, class AnyReadAhead, class Visit>
MINIM_KERNEL_INLINE void for_each_unit(const PanelBlocks<typename P::Block>& blocks, int lane,
                                       const AnyReadAhead& read_ahead, const Visit& visit) {
    using Blocks = PanelBlocks<typename P::Block>;
    const PanelBlock<L> header = {blocks.panel, lane};
    PanelBlock<L> block = {blocks.data(), lane};
    const int64_t pass_bytes = lane / L::k_width * k_pass_bytes<L, typename P::Block>;
    for (int64_t b = 0; b < blocks.count; ++b) {
        const auto ahead = read_ahead.begin_block(block.data, pass_bytes);
        P panel(header, block);
        if constexpr (UnpacksInLoop<L, P>) {
            visit_units_in_loop<L>(panel, ahead, visit);
        } else {
            visit_units<L>(panel, ahead, visit,
                           std::make_integer_sequence<int, static_cast<int>(Blocks::k_block_units)>());
        }
        block.data += Blocks::k_block_bytes;
    }
}

}  // namespace minim::cpu::generic
