// SPDX-License-Identifier: Apache-2.0
// The kernels of cuda/fast/ on emulated threads. MINIM_FULL_TESTS has them for all formats, which takes two minutes to compile. Otherwise
// the exact kernels compute the formats that are not named here.
#include <algorithm>
#include <iterator>
#include <type_traits>

#include "cuda/fast/grid_panels.h"
#include "cuda/fast/operations.inl"
#include "cuda/fast/panel_kernels.inl"
#include "cuda/fast/tile_kernels.inl"
#include "gpu/emulated_thread.h"
#include "panel/blocks_of_32.h"
#include "panel/k_quants.h"
#include "panel/ternary.h"
#include "panel/trellis.h"
#include "panel/value_tables.h"

namespace minim::cuda::fast {

// Those that the tests name most, and at least one of each family.
constexpr bool is_emulated([[maybe_unused]] Format format) {
#ifdef MINIM_FULL_TESTS
    return true;
#else
    constexpr Format k_emulated[] = {Format::q4_0,  Format::q8_0,  Format::nvfp4,  Format::q4_k,
                                     Format::q6_k,  Format::iq2_k, Format::iq3_k,  Format::iq4_k,
                                     Format::iq5_k, Format::iq6_k, Format::iq4_xs, Format::iq4_ks,
                                     Format::iq2_s, Format::iq3_s, Format::iq2_kt, Format::tq2_0};
    return std::ranges::find(k_emulated, format) != std::end(k_emulated);
#endif
}

template <class... Panels>
constexpr PanelKernelTable emulated(panel::PanelList<Panels...>) {
    PanelKernelTable table = {};
    const auto add = [&]<class Panel>(std::type_identity<Panel>) {
        if constexpr (is_emulated(Panel::Block::format)) {
            constexpr PanelKernelTable one = table_of(panel::PanelList<Panel>());
            table.by_format[static_cast<size_t>(Panel::Block::format)] =
                one.by_format[static_cast<size_t>(Panel::Block::format)];
        }
    };
    (add(std::type_identity<Panels>()), ...);
    return table;
}

template <class... Panels>
constexpr TileKernelTable emulated_tiles(panel::PanelList<Panels...>) {
    TileKernelTable table = {};
    const auto add = [&]<class Panel>(std::type_identity<Panel>) {
        if constexpr (is_emulated(Panel::Block::format))
            table.by_format[static_cast<size_t>(Panel::Block::format)] = tile_of<TilePanels<Panel>>;
    };
    (add(std::type_identity<Panels>()), ...);
    return table;
}

const PanelKernelTable k_blocks_of_32 = emulated(panel::BlocksOf32<Lanes>());
const PanelKernelTable k_k_quants = emulated(panel::KQuants<Lanes>());
const PanelKernelTable k_value_tables = emulated(panel::ValueTables<Lanes>());
const PanelKernelTable k_grids = emulated(GridPanels());
const PanelKernelTable k_trellis = emulated(panel::Trellis<Lanes>());
const PanelKernelTable k_ternary = emulated(panel::Ternary<Lanes>());

const TileKernelTable k_tile_blocks_of_32 = emulated_tiles(panel::BlocksOf32<Lanes>());
const TileKernelTable k_tile_k_quants = emulated_tiles(panel::KQuants<Lanes>());
const TileKernelTable k_tile_value_tables = emulated_tiles(panel::ValueTables<Lanes>());
const TileKernelTable k_tile_grids = emulated_tiles(GridPanels());
const TileKernelTable k_tile_trellis = emulated_tiles(panel::Trellis<Lanes>());
const TileKernelTable k_tile_ternary = emulated_tiles(panel::Ternary<Lanes>());
const TileKernelTable k_tile_unpacked = tile_table_of(BlockList<F16, BF16, FP8_E4M3_B128>());

}  // namespace minim::cuda::fast
