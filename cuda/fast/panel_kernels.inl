// SPDX-License-Identifier: Apache-2.0
// The table of a family of formats, over launch(stream, grid, kernel), which the including file defines.
#include <type_traits>

#include "cuda/fast/linear_few.h"
#include "cuda/fast/linear_many.h"
#include "cuda/fast/panel_kernels.h"
#include "cuda/fast/unpack.h"

namespace minim::cuda::fast {

template <class Kernel>
void launch_over_grid(Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

// Calls with(std::type_identity<P>()), or with ByTables<P> if the format has tables and they are wanted.
template <class P, class With>
void with_tables(bool by_tables, const With& with) {
    if constexpr (HasDotTables<P>) {
        if (by_tables) return with(std::type_identity<ByTables<P>>());
    }
    with(std::type_identity<P>());
}

// The experts and ids of kernels whose slots may have entries of their own.
inline Experts of_slots(const Experts& experts, const Slots& slots) {
    Experts own = experts;
    if (slots.chosen != nullptr) own.places = slots.chosen;
    return own;
}
inline const int32_t* ids_of(const Slots& slots) {
    return slots.chosen != nullptr ? nullptr : slots.ids;
}

template <class P>
void linear_one(Stream stream, const Products& products, const Q8Block* input) {
    if (LinearHalvesKernel<P>::takes(products, 1)) {
        launch_over_grid(stream, LinearHalvesKernel<P>{products, input});
    } else {
        launch_over_grid(stream, LinearFewKernel<P, 1>{products, input, 1});
    }
}

template <class P>
void linear_of(Stream stream, const Products& products, const Q8Block* input, int64_t n, bool many) {
    if (many) {
        launch_over_grid(stream, LinearManyKernel<P>{products, input, n});
    } else if (n == 1) {
        with_tables<P>(products.by_tables,
                       [&]<class Q>(std::type_identity<Q>) { linear_one<Q>(stream, products, input); });
    } else {
        launch_over_grid(stream, LinearFewKernel<P, 4>{products, input, n});
    }
}

template <class P>
void linear_norm_of(Stream stream, const Products& products, const NormRow& norm) {
    with_tables<P>(products.by_tables, [&]<class Q>(std::type_identity<Q>) {
        launch_over_grid(stream, LinearNormKernel<Q>{products, norm});
    });
}

template <class P>
void activate_of(Stream stream, const Experts& gate, const Experts& up, const Q8Block* h, int64_t n_used,
                 const Slots& slots, Q8Block* activated) {
    if (slots.tiles != nullptr) {
        launch_over_grid(stream, ActivateManyKernel<P>{gate, up, h, *slots.tiles, n_used, activated});
        return;
    }
    with_tables<P>(slots.by_tables, [&]<class Q>(std::type_identity<Q>) {
        launch_over_grid(stream, ActivateFewKernel<Q>{of_slots(gate, slots), of_slots(up, slots), h,
                                                      ids_of(slots), slots.n_slots, n_used, activated});
    });
}

template <class P>
void project_of(Stream stream, const Experts& experts, const Q8Block* input, int64_t slots_a_row,
                const Slots& slots, float* output, const SlotSums* sums) {
    if (slots.tiles != nullptr) {
        launch_over_grid(stream, ProjectManyKernel<P>{experts, input, slots_a_row, *slots.tiles, output});
        return;
    }
    with_tables<P>(slots.by_tables, [&]<class Q>(std::type_identity<Q>) {
        launch_over_grid(stream,
                         ProjectFewKernel<Q>{of_slots(experts, slots), input, slots_a_row, ids_of(slots),
                                             slots.n_slots, output, sums == nullptr ? SlotSums{} : *sums});
    });
}

template <class P>
void unpack_of(Stream stream, const Weight& weight, uint16_t* out) {
    launch_over_grid(stream, UnpackKernel<P>{weight.data, weight.rows, weight.cols, weight.row_bytes, out});
}

template <class... Panels>
constexpr PanelKernelTable table_of(panel::PanelList<Panels...>) {
    PanelKernelTable table = {};
    ((table.by_format[static_cast<size_t>(Panels::Block::format)] = {linear_of<Panels>,
                                                                     linear_norm_of<Panels>,
                                                                     activate_of<Panels>, project_of<Panels>,
                                                                     unpack_of<Panels>}),
     ...);
    return table;
}

}  // namespace minim::cuda::fast
