// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast_step.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "cuda/debug.h"
#include "cuda/fast/narrow.h"
#include "cuda/fast_stream.h"
#include "cuda/views.h"
#include "panel/panel.h"

namespace minim::cuda::fast {
namespace {

using backend::LinearTask;
using backend::Matrix;
using panel::k_panel_rows;

// Up to this many rows, F16, BF16 and FP8 weights are multiplied without tensor cores, and the kernels of packed weights decode each
// weight once for all rows.
constexpr int64_t k_rows_together = 4;
// Up to this many rows, slots of packed experts are not sorted by expert: the kernels for a few rows then read the
// weights slot by slot. Tensor cores decode tiles for 64 slots, of which few are there. Measured on an H100 with
// experts chosen at random, steps of 16 and 32 rows: 1.76 and 1.52 times as fast as with tiles (IQ2_S), 1.53 and 1.32
// (Q4_K), 1.32 and 1.07 (IQ5_K).
constexpr int64_t k_max_few_rows = 32;
// The same limit for other packed matrices. Their weights are read again for the next four rows: from the second-level
// cache, if they have no more bytes than k_max_reread_bytes. On an H100 q, k and v of 16 rows take as long either way.
constexpr int64_t k_max_reread_rows = 16;
constexpr int64_t k_max_reread_bytes = int64_t{32} << 20;
// From this many rows on, the vendor's library multiplies packed matrices of at most k_max_unpacked weights (q and o of the model have
// 18.9 million), after they have been unpacked: that takes as long as some hundred rows. The rest of a prompt's time is experts'.
constexpr int64_t k_min_unpacked_rows = 256;
constexpr int64_t k_max_unpacked = int64_t{25} << 20;
// The rows of a tile of many rows (linear_many.h). If there are fewer tiles than half the multiprocessors, kernels for
// a few rows are twice as fast up to k_max_few_rows (o on an H100: 48 tiles, 132 multiprocessors).
constexpr int64_t k_tile_rows = 64;
static_assert(k_max_together >= 3);  // q, k and v
// The most bytes of weights of a launch that are prefetched: on an H100 up to 16 MiB make no difference and 32 MiB cost
// 6 % of a decoding step, since its second-level cache does not keep them.
constexpr int64_t k_max_prefetched_bytes = int64_t{8} << 20;

// Returns whether a kernel asks for n_bytes of weights before the kernels ahead of it are done.
bool is_prefetched(int64_t n_bytes) {
    return debug_switches().prefetch && n_bytes <= k_max_prefetched_bytes;
}

// Returns the rows after the last whole panel: they are not packed.
Weight rest_of(const Matrix& matrix) {
    Weight weight = weight_of(matrix);
    const int64_t packed = matrix.rows / k_panel_rows * k_panel_rows;
    weight.data += packed * weight.row_bytes;
    weight.rows -= packed;
    return weight;
}

Experts rest_of(const Experts& experts) {
    Experts rest = experts;
    const int64_t packed = experts.rows / k_panel_rows * k_panel_rows;
    rest.first_row += packed;
    rest.rows -= packed;
    return rest;
}

void multiply_rest(cuda::Stream& s, const LinearTask& task, const float* h, int64_t n) {
    const Weight rest = rest_of(*task.weight);
    if (rest.rows > 0)
        exact::linear(s.stream, rest, h, n, task.y + task.weight->rows - rest.rows, task.weight->rows,
                      task.add);
}

// The forms to which the rows of h have been converted, kept from task to task of one operation.
struct OtherRows {
    Format narrowed = Format::count_;
    Format halved = Format::count_;
    std::optional<HalfKind> tiled = {};  // in FastWork::tile_input
    bool lack_blocks = false;            // the blocks of the operation's input have not been made
};

// Returns the view of a packed matrix as F16 in the stream's work space.
Matrix unpacked_view(const cuda::Stream& s, const Matrix& packed) {
    return {.data = reinterpret_cast<const std::byte*>(s.fast_work.unpacked),
            .format = Format::f16,
            .rows = packed.rows,
            .cols = packed.cols,
            .row_bytes = 2 * packed.cols,
            .scale = packed.scale / k_unpacked_factor,
            .packed = false};
}

bool multiply_dense(cuda::Stream& s, const LinearTask& task, const float* h, int64_t n, OtherRows& rows) {
    if (s.fast_work.dense == nullptr || !s.fast_work.dense->takes(task, n) ||
        !s.fast_work.dense->has_way(task, n))
        return false;
    const Matrix& weight = *task.weight;
    const bool has_factors = weight.format == Format::f16;
    if (rows.narrowed != weight.format) {
        if (has_factors) {
            narrow_to_f16(s.stream, h, n, weight.cols, s.fast_work.narrowed, s.fast_work.narrowed_factor);
        } else {
            narrow_to_bf16(s.stream, h, n * weight.cols, s.fast_work.narrowed);
        }
    }
    rows.narrowed = weight.format;
    if (has_factors && task.add) divide_rows(s.stream, task.y, n, weight.rows, s.fast_work.narrowed_factor);
    const char* error = nullptr;
    const bool is_started = s.fast_work.dense->multiply(task, s.fast_work.narrowed, n,
                                                        s.fast_work.dense_workspace, s.stream, error);
    if (error == nullptr && debug_switches().sync) error = runtime::synchronize(s.device, s.stream);
    if (error != nullptr) s.dense_error = error;
    if (has_factors) multiply_rows(s.stream, task.y, n, weight.rows, s.fast_work.narrowed_factor);
    return is_started;
}

// Multiplies a packed matrix that is_unpacked().
void multiply_unpacked_dense(cuda::Stream& s, const LinearTask& task, const float* h, int64_t n,
                             OtherRows& rows) {
    unpack(s.stream, weight_of(*task.weight), s.fast_work.unpacked);
    const Matrix view = unpacked_view(s, *task.weight);
    if (!multiply_dense(s, {&view, task.y, task.add}, h, n, rows))
        s.dense_error = "cuBLASLt has no plan any more for a product of unpacked weights";
}

bool takes_many(const cuda::Stream& s, int64_t n) {
    return n > k_rows_together || s.fixed;
}

// Returns whether packed matrices are multiplied on tensor cores.
bool takes_many(const cuda::Stream& s, const Products& products, int64_t n) {
    if (s.fixed || n <= k_rows_together) return s.fixed;
    int64_t n_tiles = 0;
    for (int i = 0; i < products.count; ++i) n_tiles += (products.rows[i] + k_tile_rows - 1) / k_tile_rows;
    if (2 * n_tiles <= s.n_processors) return n > k_max_few_rows;
    return n > k_max_reread_rows || weight_bytes(products) > k_max_reread_bytes;
}

// Returns whether the tile kernel replaces the kernels that multiply many rows.
bool has_tile_kernel(const cuda::Stream& s) {
    return s.fast_work.tile_input.half != nullptr;
}

// Returns whether gate, up, activation and the conversion for down are one kernel of packed weights, which keeps no floats.
bool is_fused(const ExpertsCall& call) {
    const ExpertViews& weights = call.weights;
    return call.middle == nullptr && weights.gate_is_packed && weights.up_is_packed &&
           weights.down_is_packed && weights.gate.format == weights.up.format &&
           weights.gate.rows % 32 == 0 && weights.down.rows % k_panel_rows == 0;
}

// Returns whether the stream kernel multiplies experts in tiles of k_stream_tile_slots.
bool takes_stream_tiles(const cuda::Stream& s, const ExpertsCall& call) {
    const auto is_taken = [](const Experts& experts) {
        return has_stream_kernel(experts.format) && experts.cols % 256 == 0;
    };
    return s.stream_device.n_processors > 0 && call.n > k_max_stream_rows &&
           call.n <= k_max_stream_tile_rows && is_fused(call) && is_taken(call.weights.gate) &&
           is_taken(call.weights.down);
}

// Returns whether slots are sorted by expert, so that the slots of an expert are multiplied together.
bool sorts_slots(const cuda::Stream& s, const ExpertsCall& call) {
    const ExpertViews& weights = call.weights;
    const bool is_packed = weights.gate_is_packed && weights.up_is_packed && weights.down_is_packed;
    return s.fixed || call.n > (is_packed ? k_max_few_rows : k_rows_together) || takes_stream_tiles(s, call);
}

// Converts n_blocks blocks of x to the halves that the weights need, unless `out` already has them.
void halve_for(cuda::Stream& s, Format weights, const float* x, int64_t n_blocks, HalfBlock* out,
               Format& halved) {
    const Format wanted = half_format(weights);
    if (halved != wanted) halve(s.stream, x, n_blocks, wanted, out);
    halved = wanted;
}

// Tasks whose weights are alike, for one launch.
struct Alike {
    const LinearTask* task[k_max_together];
    int32_t count = 0;
};

Alike only(const LinearTask& task) {
    return {{&task}, 1};
}

// Returns task `first` and the later tasks that are like it. `done` has a bit for each task that has been taken.
Alike take_alike(std::span<const LinearTask> tasks, size_t first, uint64_t& done) {
    const Matrix& pattern = *tasks[first].weight;
    Alike alike;
    for (size_t i = first; i < tasks.size() && alike.count < k_max_together; ++i) {
        const Matrix& weight = *tasks[i].weight;
        const bool is_alike =
            weight.packed == pattern.packed && weight.format == pattern.format && weight.cols == pattern.cols;
        if ((done >> i & 1U) != 0 || !is_alike) continue;
        done |= uint64_t{1} << i;
        alike.task[alike.count++] = &tasks[i];
    }
    return alike;
}

// Returns the products of the tasks; of packed weights, only the rows of whole panels.
Products products_of(const Alike& alike, bool by_tables) {
    const Matrix& first = *alike.task[0]->weight;
    Products products = {};
    products.format = first.format;
    products.cols = first.cols;
    products.row_bytes = first.row_bytes;
    products.count = alike.count;
    for (int32_t i = 0; i < alike.count; ++i) {
        const LinearTask& task = *alike.task[i];
        const Matrix& weight = *task.weight;
        products.weight[i] = reinterpret_cast<const uint8_t*>(weight.data);
        products.rows[i] = weight.packed ? weight.rows / k_panel_rows * k_panel_rows : weight.rows;
        products.y_stride[i] = weight.rows;
        products.scale[i] = weight.scale;
        products.y[i] = task.y;
        products.add[i] = task.add;
    }
    products.prefetches = is_prefetched(weight_bytes(products));
    products.by_tables = by_tables;
    return products;
}

// Converts n rows of x to the halves that the tile kernel needs for the weights, unless `out` already has them.
HalfInputs tiles_for(cuda::Stream& s, HalfKind weights, const float* x, int64_t n, int64_t cols,
                     const HalfInputs& out, std::optional<HalfKind>& tiled) {
    const HalfInputs wanted = {out.half, out.factor, weights};
    if (tiled != weights) halve_rows(s.stream, x, n, cols, s.tile_size, wanted);
    tiled = weights;
    return wanted;
}

void multiply_tiles(cuda::Stream& s, const Products& products, bool is_packed, const float* h, int64_t n,
                    OtherRows& rows) {
    const HalfInputs input = tiles_for(s, half_kind(products.format, is_packed), h, n, products.cols,
                                       s.fast_work.tile_input, rows.tiled);
    linear_tile(s.stream, products, input, n, s.tile_size);
}

// Returns whether a stream kernel may quantise n rows that an operation needs in blocks.
bool quantizes_in_stream(const cuda::Stream& s, int64_t n) {
    return s.stream_device.n_processors > 0 && n <= k_max_stream_rows;
}

// Multiplies packed weights, the rows of whole panels. input: the blocks of h, or where they are if rows.lack_blocks; null if no kernel
// of the operation reads them.
void multiply_packed(cuda::Stream& s, const Products& products, const float* h, const Q8Block* input,
                     int64_t n, OtherRows& rows) {
    const bool is_many = takes_many(s, products, n);
    if (is_many && has_tile_kernel(s)) return multiply_tiles(s, products, true, h, n, rows);
    if (std::exchange(rows.lack_blocks, false)) {
        const StreamRows floats = {.x = h, .quantized = s.fast_work.input};
        if (linear_stream(s.stream, products, floats, n, s.stream_device)) return;
        quantize(s.stream, h, n, products.cols, s.fast_work.input);
    }
    if (linear_stream(s.stream, products, {input}, n, s.stream_device)) return;
    linear(s.stream, products, input, n, is_many);
}

void multiply_unpacked(cuda::Stream& s, const LinearTask& task, const float* h, int64_t n, OtherRows& rows) {
    if (multiply_dense(s, task, h, n, rows)) return;
    const Weight weight = weight_of(*task.weight);
    if (takes_many(s, n) && has_tile_kernel(s) && has_tile_rows(weight.format, weight.cols)) {
        multiply_tiles(s, products_of(only(task), false), false, h, n, rows);
    } else if (takes_many(s, n) && has_half_tiles(weight.format, weight.cols)) {
        halve_for(s, weight.format, h, n * weight.cols / 128, s.fast_work.halved, rows.halved);
        linear_half_many(s.stream, weight, s.fast_work.halved, n, task.y, task.add);
    } else if (is_float(weight.format)) {
        linear_float(s.stream, products_of(only(task), false), h, n, s.fixed);
    } else {
        exact::linear(s.stream, weight, h, n, task.y, weight.rows, task.add);
    }
}

// The inputs that the slots of a batch are multiplied with.
struct SlotInput {
    const float* x;
    int64_t n;
    const Q8Block* quantized;  // for packed weights
    HalfBlock* halves;         // room for weights that have tiles of halves
    HalfInputs tiled;          // room for the tile kernel
    int64_t slots_a_row;
    Format halved = Format::count_;         // the format in `halves`; count_: none yet
    std::optional<HalfKind> in_tiled = {};  // the same in `tiled`
    bool is_of_last_launch = false;  // the last launch has made `quantized`, and waited for the slots' ids
};

// Returns whether slots in tiles are multiplied as halves.
bool multiplies_halves(const Experts& experts, const Slots& slots) {
    return slots.tiles != nullptr && has_half_tiles(experts.format, experts.cols);
}

const HalfBlock* halves_for(cuda::Stream& s, const Experts& experts, SlotInput& input) {
    halve_for(s, experts.format, input.x, input.n * experts.cols / 128, input.halves, input.halved);
    return input.halves;
}

// Returns whether the stream kernel may multiply slots of packed experts.
bool is_for_stream(const Slots& slots) {
    return slots.tiles == nullptr || slots.tiles->size == k_stream_tile_slots;
}

// Returns whether the tile kernel multiplies slots of packed experts.
bool takes_tile_kernel(const cuda::Stream& s, const Slots& slots) {
    return slots.tiles != nullptr && slots.tiles->size != k_stream_tile_slots && has_tile_kernel(s);
}

// Returns whether the tile kernel multiplies slots of these experts.
bool takes_tile_kernel(const cuda::Stream& s, const Slots& slots, const Experts& experts, bool is_packed) {
    return takes_tile_kernel(s, slots) && (is_packed || has_tile_rows(experts.format, experts.cols));
}

// Returns whether the tile kernel computes the activated slots, and converts them for down.
bool is_fused_in_tiles(const cuda::Stream& s, const ExpertsCall& call, const Slots& slots) {
    const ExpertViews& weights = call.weights;
    if (is_fused(call)) return takes_tile_kernel(s, slots);
    const auto is_taken = [&](const Experts& experts, bool is_packed) {
        return !is_packed && takes_tile_kernel(s, slots, experts, is_packed);
    };
    return call.middle == nullptr && is_taken(weights.gate, weights.gate_is_packed) &&
           is_taken(weights.up, weights.up_is_packed) && is_taken(weights.down, weights.down_is_packed) &&
           weights.gate.format == weights.up.format && weights.gate.rows % 32 == 0 &&
           half_kind(weights.gate.format, false) == half_kind(weights.down.format, false);
}

HalfInputs tiled_for(cuda::Stream& s, const Experts& experts, bool is_packed, SlotInput& input) {
    return tiles_for(s, half_kind(experts.format, is_packed), input.x, input.n, experts.cols, input.tiled,
                     input.in_tiled);
}

// sums: not null only if the slots are summed at once.
void multiply_slots(cuda::Stream& s, const Experts& experts, bool is_packed, SlotInput& input,
                    const Slots& slots, float* y, const SlotSums* sums = nullptr) {
    if (takes_tile_kernel(s, slots, experts, is_packed) && !is_packed) {
        project_tile(s.stream, experts, tiled_for(s, experts, is_packed, input), input.slots_a_row,
                     *slots.tiles, y, s.tile_size);
        return;
    }
    if (multiplies_halves(experts, slots)) {
        project_half_many(s.stream, experts, halves_for(s, experts, input), input.slots_a_row, *slots.tiles,
                          y);
        return;
    }
    if (is_float(experts.format))
        return project_float(s.stream, experts, input.x, input.slots_a_row, slots.ids, slots.n_slots, y,
                             sums);
    if (!is_packed) {
        exact::slots(s.stream, experts, input.x, input.slots_a_row, slots.ids, slots.n_slots, y,
                     experts.rows);
        return;
    }
    if (experts.rows >= k_panel_rows && takes_tile_kernel(s, slots)) {
        project_tile(s.stream, experts, tiled_for(s, experts, is_packed, input), input.slots_a_row,
                     *slots.tiles, y, s.tile_size);
    } else if (experts.rows >= k_panel_rows) {
        if (!input.is_of_last_launch ||
            !project_stream(s.stream, experts, input.quantized, slots, y, sums, s.stream_device))
            project(s.stream, experts, input.quantized, input.slots_a_row, slots, y, sums);
    }
    const Experts rest = rest_of(experts);
    if (rest.rows > 0)
        exact::slots(s.stream, rest, input.x, input.slots_a_row, slots.ids, slots.n_slots,
                     y + experts.rows - rest.rows, experts.rows);
}

// Returns whether the kernel that multiplies slots can add them up as well.
bool adds_at_once(const ExpertViews& weights, const Slots& slots) {
    const Experts& down = weights.down;
    const bool is_taken = weights.down_is_packed ? down.rows % k_panel_rows == 0 : is_float(down.format);
    return slots.tiles == nullptr && is_taken;
}

// Returns where the inputs of `down` are as floats, unless the kernel is fused.
float* activated_of(const cuda::Stream& s, const ExpertsCall& call) {
    return call.middle != nullptr ? call.middle : s.work.activated;
}

// Computes the activation of gate h and up h of the slots' experts, in all forms that their down matrices need. The next kernel
// begins only when the ids have been written: both kernels that activate slots for a few rows hold it back until then,
// and exact kernels are not overtaken. For slots whose expert is not here, some forms are made from old contents of the
// memory; nothing reads them.
// lack_blocks: h has not been quantised, and gate and up are is_fused(); then `input` is where its blocks will be.
void activate_slots(cuda::Stream& s, const ExpertsCall& call, const Q8Block* input, bool lack_blocks,
                    const Slots& slots) {
    const Experts& gate = call.weights.gate;
    const Experts& up = call.weights.up;
    SlotInput rows = {call.h, call.n, input, s.fast_work.halved, s.fast_work.tile_input, call.n_used};
    if (is_fused_in_tiles(s, call, slots)) {
        const HalfInputs halves = tiled_for(s, gate, call.weights.gate_is_packed, rows);
        const HalfInputs activated = {s.fast_work.tile_slots.half, s.fast_work.tile_slots.factor,
                                      halves.kind};
        activate_tile(s.stream, gate, up, halves, call.n_used, *slots.tiles, activated, s.tile_size);
        return;
    }
    Q8Block* quantized = s.fast_work.quantized_slots;
    if (lack_blocks) {
        const StreamRows floats = {.x = call.h, .quantized = s.fast_work.input};
        if (activate_stream(s.stream, gate, up, floats, call.n_used, slots, quantized, s.stream_device))
            return;
        quantize(s.stream, call.h, call.n, gate.cols, s.fast_work.input);
    }
    if (is_fused(call) && is_for_stream(slots) &&
        activate_stream(s.stream, gate, up, {input}, call.n_used, slots, quantized, s.stream_device))
        return;
    if (is_fused(call)) return activate(s.stream, gate, up, input, call.n_used, slots, quantized);
    float* activated = activated_of(s, call);
    if (gate.format == up.format && multiplies_halves(gate, slots) && !takes_tile_kernel(s, slots)) {
        activate_half_many(s.stream, gate, up, halves_for(s, gate, rows), call.n_used, *slots.tiles,
                           activated);
    } else if (gate.format == up.format && slots.tiles == nullptr && is_float(gate.format)) {
        activate_float(s.stream, gate, up, call.h, call.n_used, slots.ids, slots.n_slots, activated);
    } else {
        multiply_slots(s, gate, call.weights.gate_is_packed, rows, slots, activated);
        multiply_slots(s, up, call.weights.up_is_packed, rows, slots, s.work.output);
        exact::activate(s.stream, activated, s.work.output, slots.n_slots * gate.rows, gate.activation);
    }
    if (call.weights.down_is_packed && !takes_tile_kernel(s, slots))
        quantize(s.stream, activated, slots.n_slots, gate.rows, quantized);
}

// Returns the slots; grouped in `tiles` if they are sorted by expert.
Slots slots_of(cuda::Stream& s, const ExpertsCall& call, ExpertTiles& tiles) {
    const int64_t n_slots = call.n * call.n_used;
    const ExpertViews& weights = call.weights;
    if (!sorts_slots(s, call)) return {call.ids, n_slots, nullptr, s.paths.two_tables, call.chosen};
    tiles = s.fast_work.tiles;
    if (takes_stream_tiles(s, call)) {
        tiles.size = k_stream_tile_slots;
    } else if (has_tile_kernel(s)) {
        tiles.size = tile_inputs(s.tile_size);
    }
    tiles.most = most_expert_tiles(n_slots, weights.n_expert, tiles.size);
    group_slots(s.stream, call.ids, n_slots, weights.gate.places, weights.n_expert, tiles);
    return {call.ids, n_slots, &tiles};
}

void launch_one(cuda::Stream& s, const Operation&, const NormCall& call) {
    if (call.size % 32 != 0)
        return exact::norm(s.stream, call.x, call.n, call.weight, call.size, call.eps, call.h);
    norm(s.stream, call.x, call.n, call.weight, call.size, call.eps, call.h, s.fast_work.input);
}

void launch_one(cuda::Stream& s, const Operation& operation, const LinearCall& call) {
    const float* h = call.h;
    const int64_t n = call.n;
    NormRow norm = operation.norm;
    OtherRows other_rows;
    other_rows.lack_blocks = operation.quantizes && quantizes_in_stream(s, n);
    if (operation.quantizes && !other_rows.lack_blocks)
        quantize(s.stream, h, n, call.tasks[0].weight->cols, s.fast_work.input);
    uint64_t done = 0;
    for (size_t i = 0; i < call.tasks.size(); ++i) {
        if (!is_unpacked(s, call.tasks[i], n)) continue;
        multiply_unpacked_dense(s, call.tasks[i], h, n, other_rows);
        done |= uint64_t{1} << i;
    }
    for (size_t i = 0; i < call.tasks.size(); ++i) {
        const LinearTask& task = call.tasks[i];
        const Matrix& weight = *task.weight;
        const bool is_done = (done >> i & 1U) != 0;
        if (is_unpacked(s, task, n)) continue;
        if (weight.packed) {
            if (!is_done) {
                const Products products = products_of(take_alike(call.tasks, i, done), s.paths.two_tables);
                if (norm.x != nullptr) {
                    const NormRow row = std::exchange(norm, {});
                    if (!linear_norm_stream(s.stream, products, row, s.stream_device))
                        linear_norm(s.stream, products, row);
                } else {
                    multiply_packed(s, products, h, operation.input, n, other_rows);
                }
            }
            multiply_rest(s, task, h, n);
        } else if (is_float(weight.format) && !takes_many(s, n)) {
            if (!is_done)
                linear_float(s.stream, products_of(take_alike(call.tasks, i, done), false), h, n, false);
        } else {
            multiply_unpacked(s, task, h, n, other_rows);
        }
    }
}

void launch_one(cuda::Stream& s, const Operation&, const SquaresCall& call) {
    head_squares(s.stream, call.args);
}

void launch_one(cuda::Stream& s, const Operation&, const AttendCall& call) {
    prepare(s.stream, call.prepare);
    if (call.choose.to.pages_a_head > 0) choose_pages(s.stream, call.choose);
    attend(s.stream, call.attend);
}

// Rounded inputs must not decide which experts are chosen.
void launch_one(cuda::Stream& s, const Operation& operation, const RouteCall& call) {
    const RouteWork work = {s.work.score, s.fast_work.router_partial, s.fast_work.arrived,
                            is_prefetched(call.router.rows * call.router.row_bytes)};
    const PostedPieces* post = call.with == nullptr ? nullptr : &call.post;
    if (call.step_to_take != nullptr) take_step(s.stream, call.step_to_take, s.work.step);
    if (operation.norm.x != nullptr)
        return route_norm(s.stream, call.router, operation.norm, call.choice, work, post);
    route_float(s.stream, call.router, call.h, call.n, call.choice, work, s.fixed, post);
}

void launch_one(cuda::Stream& s, const Operation&, const PostCall& call) {
    if (call.step_to_take != nullptr) take_step(s.stream, call.step_to_take, s.work.step);
    post_pieces(s.stream, call.h, call.n_floats, call.ids, call.n, call.n_used, call.to);
}

void launch_one(cuda::Stream& s, const Operation&, const CollectCall& call) {
    collect_pieces(s.stream, call.from, call.slots);
}

void launch_one(cuda::Stream& s, const Operation&, const ChooseCall& call) {
    route(s.stream, s.work.score, call.n, call.n_expert, call.choice);
}

void launch_one(cuda::Stream& s, const Operation& operation, const ExpertsCall& call) {
    const Experts& down = call.weights.down;
    const bool is_packed = call.weights.down_is_packed;
    ExpertTiles tiles = {};
    const Slots slots = slots_of(s, call, tiles);
    const bool lack_blocks =
        operation.quantizes && is_fused(call) && slots.tiles == nullptr && quantizes_in_stream(s, call.n);
    if (operation.quantizes && !lack_blocks)
        quantize(s.stream, call.h, call.n, call.weights.gate.cols, s.fast_work.input);
    activate_slots(s, call, operation.input, lack_blocks, slots);
    SlotInput activated = {activated_of(s, call),    slots.n_slots,          s.fast_work.quantized_slots,
                           s.fast_work.halved_slots, s.fast_work.tile_slots, 1};
    if (is_fused_in_tiles(s, call, slots)) activated.in_tiled = half_kind(down.format, is_packed);
    activated.is_of_last_launch =
        is_fused(call) && is_for_stream(slots) && (slots.tiles != nullptr || call.n <= k_max_stream_rows);
    if (call.gates == nullptr) return multiply_slots(s, down, is_packed, activated, slots, call.out);
    if (adds_at_once(call.weights, slots)) {
        const SlotSums sums = {call.gates, call.n_used, call.out, call.adds, s.fast_work.arrived};
        return multiply_slots(s, down, is_packed, activated, slots, s.work.output, &sums);
    }
    multiply_slots(s, down, is_packed, activated, slots, s.work.output);
    exact::add_slots(s.stream, s.work.output, call.gates, call.n, call.n_used, down.rows, call.out,
                     {call.ids, down.places, call.adds});
}

}  // namespace

bool is_unpacked(const cuda::Stream& s, const LinearTask& task, int64_t n) {
    const Matrix& weight = *task.weight;
    if (s.fast_work.unpacked == nullptr || s.fixed || n < k_min_unpacked_rows || !weight.packed ||
        weight.rows % k_panel_rows != 0 || weight.rows * weight.cols > s.fast_work.n_unpacked)
        return false;
    const Matrix view = unpacked_view(s, weight);
    const LinearTask dense = {&view, task.y, task.add};
    return s.fast_work.dense->takes(dense, n) && s.fast_work.dense->has_way(dense, n);
}

bool reads_blocks(const cuda::Stream& s, const LinearCall& call) {
    uint64_t done = 0;
    for (size_t i = 0; i < call.tasks.size(); ++i)
        done |= uint64_t{is_unpacked(s, call.tasks[i], call.n)} << i;
    for (size_t i = 0; i < call.tasks.size(); ++i) {
        if ((done >> i & 1U) != 0 || !call.tasks[i].weight->packed) continue;
        if (!has_tile_kernel(s)) return true;
        const Products products = products_of(take_alike(call.tasks, i, done), s.paths.two_tables);
        if (!takes_many(s, products, call.n)) return true;
    }
    return false;
}

bool reads_blocks(const cuda::Stream& s, const ExpertsCall& call) {
    if (!call.weights.gate_is_packed && !call.weights.up_is_packed) return false;
    return !has_tile_kernel(s) || !sorts_slots(s, call) || takes_stream_tiles(s, call);
}

int64_t n_unpacked_weights(const backend::StepLimits& limits) {
    if (limits.n_rows < k_min_unpacked_rows) return 0;
    return std::min(k_max_unpacked, limits.hidden * limits.n_head * limits.head_dim);
}

int64_t most_stream_tiles(const backend::StepLimits& limits) {
    const int64_t n_slots = std::min(limits.n_rows, k_max_stream_tile_rows) * limits.n_expert_used;
    return most_expert_tiles(n_slots, limits.n_expert, k_stream_tile_slots);
}

int64_t n_chosen_places(const backend::StepLimits& limits) {
    return std::min(limits.n_rows, k_max_few_rows) * limits.n_expert_used;
}

bool reads_chosen(const cuda::Stream& s, const ExpertsCall& call) {
    return s.fast_work.chosen != nullptr && is_fused(call) && !sorts_slots(s, call);
}

int64_t n_arrival_counters(const backend::StepLimits& limits) {
    const int64_t few_rows = std::min(limits.n_rows, k_max_few_rows);
    return std::max(route_counters(limits.n_rows), few_rows * sum_counters(limits.hidden));
}

// Attention: which of its kernels, and how many blocks share a context.
AttendCall attend_call(const cuda::Stream& s, const Cache& cache, const backend::AttendArgs& args) {
    const auto splits = [&](TileShape shape, int64_t n_tiles) {
        return attend_splits(shape, n_tiles, args.n_head_kv, s.batch.n_context, s.n_processors);
    };
    const TileCounts& n = s.batch.n_tiles;
    const int32_t* tiles = s.batch.tables.attend_tiles;
    TileList wide = {tiles, n.n_wide, splits(TileShape::wide, n.n_wide)};
    if (s.fixed) wide = {tiles, n.n_wide, k_fixed_parts, k_fixed_tiles};
    const TileList narrow = {tiles + 2 * n.n_wide, n.n_narrow, splits(TileShape::narrow, n.n_narrow)};
    return {
        .prepare = {.cache = cache,
                    .n = args.n,
                    .q = args.q,
                    .k = args.k,
                    .v = args.v,
                    .q_norm = args.q_norm.data,
                    .k_norm = args.k_norm.data,
                    .norm_eps = args.norm_eps,
                    .norms_heads = args.squares == nullptr && args.q_norm.size == args.head_dim,
                    .squares = args.squares,
                    .n_squares_q = args.n_head_all * args.head_dim,
                    .n_squares_k = args.n_head_kv_all * args.head_dim,
                    .frequency = s.work.frequency,
                    .n_frequency = std::ssize(args.rope_frequency),
                    .hadamard = args.rows[0].sequence->layout->rotates_keys(),
                    .query = s.fast_work.query},
        // Other batches have ended (CudaDevice::put_batch), so that only this one's row may still be written.
        .attend = {.cache = cache,
                   .query = s.fast_work.query,
                   .wide = wide,
                   .narrow = narrow,
                   .partial = s.fast_work.partial,
                   .o = args.o,
                   .quantized = s.fast_work.input,
                   .is_one_row = args.n == 1}};
}

AttendCall attend_chosen_call(const cuda::Stream& s, const Cache& cache, const backend::AttendArgs& args,
                              const exact::Index& index, const exact::IndexRows& rows) {
    AttendCall call = attend_call(s, cache, args);
    const ChosenPages& chosen = s.fast_work.chosen_pages;
    call.choose = {cache, index, rows, args.n, s.batch.n_context, chosen};
    call.attend.cache.position = chosen.position;
    call.attend.cache.first_page = chosen.first_page;
    call.attend.cache.pages = chosen.pages;
    call.attend.pages_a_head = chosen.pages_a_head;
    call.attend.is_one_row = false;
    call.attend.wide = {};
    TileList& each = call.attend.narrow;
    each = {chosen.tiles, args.n, 1};
    if (s.fixed) {
        // Parts of narrow tiles take an eighth of the memory.
        each.n_splits = std::min(k_fixed_parts, chosen.pages_a_head);
        each.n_together = k_fixed_tiles * (k_wide_rows / k_narrow_rows);
    } else {
        each.n_splits = attend_splits(TileShape::narrow, args.n, args.n_head_kv,
                                      chosen.pages_a_head * backend::k_kv_page_tokens, s.n_processors);
    }
    return call;
}

void launch_operation(cuda::Stream& s, const Operation& operation) {
    std::visit([&](const auto& call) { launch_one(s, operation, call); }, operation.call);
}

}  // namespace minim::cuda::fast
