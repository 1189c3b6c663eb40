// SPDX-License-Identifier: Apache-2.0
// The stream kernels of cuda/fast/ on emulated threads: of all formats with MINIM_FULL_TESTS, else of one format of each family, and one
// with row headers.
#include <algorithm>
#include <iterator>
#include <type_traits>

#include "cuda/fast/grid_panels.h"
#include "cuda/fast/stream_kernels.inl"
#include "gpu/emulated_thread.h"
#include "panel/blocks_of_32.h"
#include "panel/k_quants.h"
#include "panel/ternary.h"
#include "panel/trellis.h"
#include "panel/value_tables.h"

namespace minim::cuda::fast {

constexpr bool is_streamed([[maybe_unused]] Format format) {
#ifdef MINIM_FULL_TESTS
    return true;
#else
    constexpr Format k_streamed[] = {Format::q8_0,  Format::q4_k,   Format::iq4_xs, Format::iq4_ks,
                                     Format::iq2_s, Format::iq2_kt, Format::tq2_0};
    return std::ranges::find(k_streamed, format) != std::end(k_streamed);
#endif
}

template <class... Panels>
constexpr StreamKernelTable emulated_streams(panel::PanelList<Panels...>) {
    StreamKernelTable table = {};
    const auto add = [&]<class Panel>(std::type_identity<Panel>) {
        if constexpr (is_streamed(Panel::Block::format))
            table.by_format[static_cast<size_t>(Panel::Block::format)] = stream_of<Panel>;
    };
    (add(std::type_identity<Panels>()), ...);
    return table;
}

const StreamKernelTable k_stream_blocks_of_32 = emulated_streams(panel::BlocksOf32<Lanes>());
const StreamKernelTable k_stream_k_quants = emulated_streams(panel::KQuants<Lanes>());
const StreamKernelTable k_stream_value_tables = emulated_streams(panel::ValueTables<Lanes>());
const StreamKernelTable k_stream_grids = emulated_streams(GridPanels());
const StreamKernelTable k_stream_trellis = emulated_streams(panel::Trellis<Lanes>());
const StreamKernelTable k_stream_ternary = emulated_streams(panel::Ternary<Lanes>());

}  // namespace minim::cuda::fast
