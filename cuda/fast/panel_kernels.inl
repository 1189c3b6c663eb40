// SPDX-License-Identifier: Apache-2.0
// The table of a family of formats, over launch(stream, grid, kernel), which the including file defines.
#include "cuda/fast/linear_few.h"
#include "cuda/fast/linear_many.h"
#include "cuda/fast/panel_kernels.h"

namespace minim::cuda::fast {

template <class Kernel>
void launch_over_grid(Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

template <class P>
void linear_of(Stream stream, const Products& products, const Q8Block* input, int64_t n, bool many) {
    if (many) {
        launch_over_grid(stream, LinearManyKernel<P>{products, input, n});
    } else if (LinearHalvesKernel<P>::takes(products, n)) {
        launch_over_grid(stream, LinearHalvesKernel<P>{products, input});
    } else if (n == 1) {
        launch_over_grid(stream, LinearFewKernel<P, 1>{products, input, n});
    } else {
        launch_over_grid(stream, LinearFewKernel<P, 4>{products, input, n});
    }
}

template <class P>
void linear_norm_of(Stream stream, const Products& products, const NormRow& norm) {
    launch_over_grid(stream, LinearNormKernel<P>{products, norm});
}

template <class P>
void activate_of(Stream stream, const Experts& gate, const Experts& up, const Q8Block* h, int64_t n_used,
                 const Slots& slots, Q8Block* activated) {
    if (slots.tiles == nullptr) {
        launch_over_grid(stream,
                         ActivateFewKernel<P>{gate, up, h, slots.ids, slots.n_slots, n_used, activated});
    } else {
        launch_over_grid(stream, ActivateManyKernel<P>{gate, up, h, *slots.tiles, n_used, activated});
    }
}

template <class P>
void project_of(Stream stream, const Experts& experts, const Q8Block* input, int64_t slots_a_row,
                const Slots& slots, float* output, const SlotSums* sums) {
    if (slots.tiles == nullptr) {
        launch_over_grid(stream, ProjectFewKernel<P>{experts, input, slots_a_row, slots.ids, slots.n_slots,
                                                     output, sums == nullptr ? SlotSums{} : *sums});
    } else {
        launch_over_grid(stream, ProjectManyKernel<P>{experts, input, slots_a_row, *slots.tiles, output});
    }
}

template <class... Panels>
constexpr PanelKernelTable table_of(panel::PanelList<Panels...>) {
    PanelKernelTable table = {};
    ((table.by_format[static_cast<size_t>(Panels::Block::format)] =
          {linear_of<Panels>, linear_norm_of<Panels>, activate_of<Panels>, project_of<Panels>}),
     ...);
    return table;
}

}  // namespace minim::cuda::fast
