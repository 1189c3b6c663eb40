// SPDX-License-Identifier: Apache-2.0
// The functions of operations.h, over launch(stream, grid, kernel), which the including file defines.
#include <type_traits>

#include "cuda/fast/exchange.h"
#include "cuda/fast/group_slots.h"
#include "cuda/fast/half_inputs.h"
#include "cuda/fast/halve.h"
#include "cuda/fast/linear_float.h"
#include "cuda/fast/linear_half_many.h"
#include "cuda/fast/pack.h"
#include "cuda/fast/panel_kernels.h"
#include "cuda/fast/quantize.h"
#include "cuda/fast/route.h"
#include "cuda/fast/route_many.h"
#include "cuda/fast/route_row.h"
#include "cuda/fast/tile_kernels.h"
#include "format/blocks.h"

namespace minim::cuda::fast {
namespace {

using FloatBlocks = BlockList<F32, F16, BF16, FP8_E4M3_B128>;
using HalfTileBlocks = BlockList<F16, BF16, FP8_E4M3_B128>;

// Returns null if the format has no kernels.
const PanelKernels* panel_kernels(Format format) {
    for (const PanelKernelTable* family :
         {&k_blocks_of_32, &k_k_quants, &k_value_tables, &k_grids, &k_trellis, &k_ternary}) {
        const PanelKernels& kernels = family->by_format[static_cast<size_t>(format)];
        if (kernels.linear != nullptr) return &kernels;
    }
    return nullptr;
}

// Requires that the format has panels or tile rows.
void launch_tile(Stream stream, Format format, const TileCall& call, TileSize size) {
    for (const TileKernelTable* family :
         {&k_tile_blocks_of_32, &k_tile_k_quants, &k_tile_value_tables, &k_tile_grids, &k_tile_trellis,
          &k_tile_ternary, &k_tile_unpacked}) {
        const TileKernel kernel = family->by_format[static_cast<size_t>(format)];
        if (kernel != nullptr) return kernel(stream, call, size);
    }
}

// With this number of rows or more, a warp for each row keeps every multiprocessor busy.
constexpr int64_t k_rows_of_one_warp = 4096;

// With this number of rows or more, a router's outputs are computed in tiles.
constexpr int64_t k_router_tile_rows = 5;

template <class Kernel>
void start(Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

}  // namespace

bool has_panels(Format format) {
    return panel_kernels(format) != nullptr;
}

PackShape pack_shape(Format format, int64_t row_bytes) {
    const FormatTraits& f = traits(format);
    const panel::PanelShape shape = panel::panel_shape(format);
    PackShape pack = {.format = format,
                      .row_bytes = row_bytes,
                      .row_header_bytes = f.row_header_bytes,
                      .block_bytes = f.block_bytes,
                      .front_bytes = shape.front_bytes,
                      .back_bytes = shape.back_bytes,
                      .word_order = WordOrder::plain,
                      .words_at = 0,
                      .word_bytes = 0,
                      .word_step = 4};
    const auto reorder = [&](WordOrder order, int at, int64_t bytes) {
        pack.word_order = order;
        pack.words_at = at;
        pack.word_bytes = bytes;
    };
    const int64_t sign_bytes = f.block_elems / 8;
    const int64_t code_bytes = f.block_elems / 2;
    switch (format) {
        case Format::iq2_s:
            reorder(WordOrder::sign_nibbles, IQ2_S::signs_at, sign_bytes);
            break;
        case Format::iq2_xxs:  // every second word of the groups
            reorder(WordOrder::seven_sign_nibbles, IQ2_XXS::groups_at + 4, f.block_elems / 4 - 4);
            pack.word_step = 8;
            break;
        case Format::iq3_s:
            reorder(WordOrder::sign_bytes, IQ3_S::signs_at, sign_bytes);
            break;
        case Format::iq4_nl:
            reorder(WordOrder::nibbles, IQ4_NL::codes_at, code_bytes);
            break;
        case Format::iq4_xs:
            reorder(WordOrder::nibbles, IQ4_XS::codes_at, code_bytes);
            break;
        case Format::mxfp4:
            reorder(WordOrder::nibbles, MXFP4::codes_at, code_bytes);
            break;
        case Format::nvfp4:
            reorder(WordOrder::nibbles, NVFP4::codes_at, code_bytes);
            break;
        case Format::iq4_k:
            reorder(WordOrder::nibbles, IQ4_K::codes_at, code_bytes);
            break;
        case Format::iq4_ks:
            reorder(WordOrder::nibbles, IQ4_KS::codes_at, code_bytes);
            break;
        // With the upper bits of the codes, which come next.
        case Format::iq5_k:
            reorder(WordOrder::units_of_5, IQ5_K::codes_at, code_bytes + sign_bytes);
            break;
        case Format::iq5_ks:
            reorder(WordOrder::units_of_5, IQ5_KS::codes_at, code_bytes + sign_bytes);
            break;
        case Format::iq6_k:
            reorder(WordOrder::units_of_6, IQ6_K::codes_at, code_bytes + 2 * sign_bytes);
            break;
        default:
            break;
    }
    return pack;
}

void pack(Stream stream, const uint8_t* rows, const PackShape& shape, int64_t n_panels, uint8_t* panels) {
    start(stream, PackKernel{rows, shape, n_panels, panels});
}

void reorder_words(Stream stream, const PackShape& shape, int64_t n_panels, uint8_t* panels) {
    if (shape.word_order != WordOrder::plain) start(stream, ReorderKernel{shape, n_panels, panels});
}

void quantize(Stream stream, const float* x, int64_t n, int64_t cols, Q8Block* out) {
    start(stream, QuantizeKernel{x, n * q8_blocks(cols), out});
}

void norm(Stream stream, const float* x, int64_t n, const float* weight, int64_t size, float eps, float* h,
          Q8Block* quantized) {
    start(stream, NormKernel{x, n, weight, size, eps, h, quantized});
}

void linear(Stream stream, const Products& products, const Q8Block* input, int64_t n, bool many) {
    if (n > 0) panel_kernels(products.format)->linear(stream, products, input, n, many);
}

void linear_norm(Stream stream, const Products& products, const NormRow& norm) {
    panel_kernels(products.format)->linear_norm(stream, products, norm);
}

void unpack(Stream stream, const Weight& weight, uint16_t* out) {
    panel_kernels(weight.format)->unpack(stream, weight, out);
}

bool is_float(Format format) {
    return with_block(FloatBlocks{}, format, [](auto) {});
}

void linear_float(Stream stream, const Products& products, const float* x, int64_t n, bool fixed) {
    int64_t n_rows = 0;
    for (int i = 0; i < products.count; ++i) n_rows += products.rows[i];
    with_block(FloatBlocks{}, products.format, [&](auto block) {
        using Block = decltype(block);
        const auto start_with = [&](auto n_warps) {
            if (n == 1 && !fixed) {
                start(stream, LinearFloatKernel<Block, 1, n_warps>{products, x, n});
            } else {
                start(stream, LinearFloatKernel<Block, 4, n_warps>{products, x, n});
            }
        };
        if (n_rows < k_rows_of_one_warp) {
            start_with(std::integral_constant<int, 4>{});
        } else {
            start_with(std::integral_constant<int, 1>{});
        }
    });
}

void activate_float(Stream stream, const Experts& gate, const Experts& up, const float* h, int64_t n_used,
                    const int32_t* ids, int64_t n_slots, float* activated) {
    with_block(FloatBlocks{}, gate.format, [&](auto block) {
        start(stream, ActivateFloatKernel<decltype(block)>{gate, up, h, n_used, ids, n_slots, activated});
    });
}

void project_float(Stream stream, const Experts& experts, const float* x, int64_t slots_a_row,
                   const int32_t* ids, int64_t n_slots, float* y, const SlotSums* sums) {
    with_block(FloatBlocks{}, experts.format, [&](auto block) {
        start(stream, ProjectFloatKernel<decltype(block)>{experts, x, slots_a_row, ids, n_slots, y,
                                                          sums == nullptr ? SlotSums{} : *sums});
    });
}

bool has_half_tiles(Format format, int64_t cols) {
    return cols % k_half_cols == 0 && with_block(HalfTileBlocks{}, format, [](auto) {});
}

Format half_format(Format weights) {
    return weights == Format::bf16 ? Format::bf16 : Format::f16;
}

void halve(Stream stream, const float* x, int64_t n_blocks, Format format, HalfBlock* out) {
    start(stream, HalveKernel{x, n_blocks, format, out});
}

void linear_half_many(Stream stream, const Weight& weight, const HalfBlock* x, int64_t n, float* y,
                      bool add) {
    with_block(HalfTileBlocks{}, weight.format, [&](auto block) {
        start(stream, LinearHalfManyKernel<decltype(block)>{weight, x, n, y, add});
    });
}

void activate_half_many(Stream stream, const Experts& gate, const Experts& up, const HalfBlock* h,
                        int64_t n_used, const ExpertTiles& tiles, float* activated) {
    with_block(HalfTileBlocks{}, gate.format, [&](auto block) {
        start(stream, ActivateHalfManyKernel<decltype(block)>{gate, up, h, tiles, n_used, activated});
    });
}

void project_half_many(Stream stream, const Experts& experts, const HalfBlock* x, int64_t slots_a_row,
                       const ExpertTiles& tiles, float* y) {
    with_block(HalfTileBlocks{}, experts.format, [&](auto block) {
        start(stream, ProjectHalfManyKernel<decltype(block)>{experts, x, slots_a_row, tiles, y});
    });
}

bool has_tile_rows(Format format, int64_t cols) {
    return cols % 32 == 0 && k_tile_unpacked.by_format[static_cast<size_t>(format)] != nullptr;
}

void halve_rows(Stream stream, const float* x, int64_t n, int64_t cols, TileSize size,
                const HalfInputs& out) {
    if (size == TileSize::large) {
        start(stream, HalveRowsKernel<factor_cols(TileSize::large)>{x, n, cols, out});
    } else {
        start(stream, HalveRowsKernel<factor_cols(TileSize::small)>{x, n, cols, out});
    }
}

void linear_tile(Stream stream, const Products& products, const HalfInputs& input, int64_t n, TileSize size) {
    launch_tile(stream, products.format,
                {.kind = TileKind::linear,
                 .input = input,
                 .cols = products.cols,
                 .row_bytes = products.row_bytes,
                 .products = products,
                 .n = n},
                size);
}

void activate_tile(Stream stream, const Experts& gate, const Experts& up, const HalfInputs& h, int64_t n_used,
                   const ExpertTiles& tiles, const HalfInputs& activated, TileSize size) {
    launch_tile(stream, gate.format,
                {.kind = TileKind::activate,
                 .input = h,
                 .cols = gate.cols,
                 .row_bytes = gate.row_bytes,
                 .experts = gate,
                 .up = up,
                 .slots_a_row = n_used,
                 .tiles = tiles,
                 .activated = activated},
                size);
}

void project_tile(Stream stream, const Experts& experts, const HalfInputs& input, int64_t slots_a_row,
                  const ExpertTiles& tiles, float* output, TileSize size) {
    launch_tile(stream, experts.format,
                {.kind = TileKind::project,
                 .input = input,
                 .cols = experts.cols,
                 .row_bytes = experts.row_bytes,
                 .experts = experts,
                 .slots_a_row = slots_a_row,
                 .tiles = tiles,
                 .output = output},
                size);
}

void route(Stream stream, const float* score, int64_t n, int64_t n_expert, const Choice& choice) {
    start(stream, RouteKernel{score, n, n_expert, choice});
}

namespace {

template <class Block>
void route_row(Stream stream, const Weight& router, const float* h, const NormRow& norm, const Choice& choice,
               const RouteWork& work, const PostedPieces* post) {
    if (post != nullptr)
        return start(stream,
                     RouteRowKernel<Block, true>{router, h, norm, choice, work.score, work.arrived, *post});
    start(stream, RouteRowKernel<Block>{router, h, norm, choice, work.score, work.arrived, {}});
}

}  // namespace

void route_float(Stream stream, const Weight& router, const float* h, int64_t n, const Choice& choice,
                 const RouteWork& work, bool fixed, const PostedPieces* post) {
    with_block(FloatBlocks{}, router.format, [&](auto block) {
        using Block = decltype(block);
        if (n == 1 && !fixed) return route_row<Block>(stream, router, h, {}, choice, work, post);
        if constexpr (Block::block_elems == 1) {
            using Outputs = RouterOutputsKernel<Block>;
            const uintptr_t places =
                reinterpret_cast<uintptr_t>(router.data) | reinterpret_cast<uintptr_t>(h);
            if (n >= k_router_tile_rows && !fixed && router.cols % Outputs::k_step == 0 &&
                places % sizeof(SixteenBytes) == 0) {
                Outputs outputs = {router, h, n, 1, work.partial, work.arrived, work.score};
                outputs.n_parts = router_parts(outputs.grid().n_blocks, router.cols);
                start(stream, outputs);
                start(stream, RouteKernel{work.score, n, router.rows, choice});
                return;
            }
        }
        Products outputs = {};
        outputs.format = router.format;
        outputs.cols = router.cols;
        outputs.row_bytes = router.row_bytes;
        outputs.count = 1;
        outputs.weight[0] = router.data;
        outputs.rows[0] = outputs.y_stride[0] = router.rows;
        outputs.scale[0] = router.scale;
        outputs.y[0] = work.score;
        outputs.prefetches = work.prefetches;
        if (post != nullptr)
            return start(stream, RouteFloatKernel<Block, true>{{outputs, h, n}, choice, work.arrived, *post});
        start(stream, RouteFloatKernel<Block>{{outputs, h, n}, choice, work.arrived, {}});
    });
}

void route_norm(Stream stream, const Weight& router, const NormRow& norm, const Choice& choice,
                const RouteWork& work, const PostedPieces* post) {
    with_block(FloatBlocks{}, router.format, [&](auto block) {
        route_row<decltype(block)>(stream, router, norm.h, norm, choice, work, post);
    });
}

int64_t route_partial_floats(int64_t n) {
    using Outputs = RouterOutputsKernel<F32>;
    return n < k_router_tile_rows ? 0 : k_router_blocks * Outputs::k_tile_rows * Outputs::k_tile_experts;
}

int64_t route_counters(int64_t n) {
    return n < k_router_tile_rows || n > k_router_blocks ? n : k_router_blocks;
}

void activate(Stream stream, const Experts& gate, const Experts& up, const Q8Block* h, int64_t n_used,
              const Slots& slots, Q8Block* activated) {
    panel_kernels(gate.format)->activate(stream, gate, up, h, n_used, slots, activated);
}

void project(Stream stream, const Experts& experts, const Q8Block* input, int64_t slots_a_row,
             const Slots& slots, float* output, const SlotSums* sums) {
    panel_kernels(experts.format)->project(stream, experts, input, slots_a_row, slots, output, sums);
}

void post(Stream stream, const float* h, int64_t n_floats, const int32_t* ids, int64_t n_ids,
          const Posted& to) {
    start(stream, PostKernel{h, n_floats, ids, n_ids, to});
}

void await_host(Stream stream, const uint32_t* flag, uint32_t* late, int64_t patience, uint32_t* seen) {
    start(stream, AwaitKernel{flag, late, static_cast<uint64_t>(patience), seen});
}

void collect(Stream stream, const float* answer, const backend::ExpertPlace* places, const int32_t* ids,
             int64_t n_slots, int64_t hidden, const uint32_t* seen, float* out) {
    start(stream, CollectKernel{answer, places, ids, n_slots, hidden, seen, out});
}

void take_step(Stream stream, const uint32_t* of_host, uint32_t* step) {
    start(stream, TakeStepKernel{of_host, step});
}

void post_pieces(Stream stream, const float* h, int64_t n_floats, const int32_t* ids, int64_t n,
                 int64_t n_used, const PostedPieces& to) {
    start(stream, PostPiecesKernel{h, n_floats, ids, n, n_used, to});
}

void collect_pieces(Stream stream, const AwaitedPieces& from, const CollectedSlots& slots) {
    start(stream, CollectAddKernel{from, slots});
}

int64_t most_expert_tiles(int64_t n_slots, int64_t n_expert, int32_t size) {
    // Each expert may have one tile that is not full.
    return n_slots < n_expert ? n_slots : n_expert + (n_slots - n_expert) / size;
}

void group_slots(Stream stream, const int32_t* ids, int64_t n_slots, const backend::ExpertPlace* places,
                 int64_t n_expert, const ExpertTiles& tiles) {
    start(stream, GroupSlotsKernel{ids, places, static_cast<int32_t>(n_slots), static_cast<int32_t>(n_expert),
                                   tiles});
}

}  // namespace minim::cuda::fast
