// SPDX-License-Identifier: Apache-2.0
// The stream kernels of a family of formats, over launch(stream, grid, kernel) and runs_together<Kernel>(grid), which the including file
// defines.
#include "cuda/fast/stream_kernels.h"
#include "cuda/fast/stream_products.h"
#include "cuda/fast/stream_tiles.h"
#include "cuda/fast/table_dots.h"

namespace minim::cuda::fast {

template <class Kernel>
bool start_stream(Stream stream, const StreamCall& call, const StreamDevice& device) {
    const Kernel kernel = Kernel::make(call, device);
    if (!kernel.memory.fits() || !runs_together<Kernel>(kernel.grid())) return false;
    launch(stream, kernel.grid(), kernel);
    return true;
}

// Dots by tables are for one row (table_dots.h).
template <class P>
struct StreamPanelOfOne {
    using type = P;
};
template <HasDotTables P>
struct StreamPanelOfOne<P> {
    using type = ByTables<P>;
};

template <class P>
bool stream_of(Stream stream, const StreamCall& call, const StreamDevice& device) {
    if (call.tiles.count != nullptr) return start_stream<StreamTilesKernel<P>>(stream, call, device);
    if (call.kind != StreamKind::rows || call.n_inputs == 1) {
        using One = typename StreamPanelOfOne<P>::type;
        return start_stream<StreamProductsKernel<One, 1>>(stream, call, device);
    }
    if (call.n_inputs == 2) return start_stream<StreamProductsKernel<P, 2>>(stream, call, device);
    return start_stream<StreamProductsKernel<P, 4>>(stream, call, device);
}

template <class... Panels>
constexpr StreamKernelTable stream_table_of(panel::PanelList<Panels...>) {
    StreamKernelTable table = {};
    ((table.by_format[static_cast<size_t>(Panels::Block::format)] = stream_of<Panels>), ...);
    return table;
}

}  // namespace minim::cuda::fast
