// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast_step.h"

#include <algorithm>
#include <utility>

#include "cuda/debug.h"
#include "cuda/fast/narrow.h"
#include "cuda/postponed_norm.h"
#include "cuda/views.h"
#include "panel/panel.h"

namespace minim::cuda::fast {
namespace {

using backend::ExpertStack;
using backend::ExpertWeights;
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
constexpr int64_t k_most_few_rows = 32;
// The same limit for other packed matrices. Their weights are read again for the next four rows: from the second-level
// cache, if they have no more bytes than k_most_reread_bytes. On an H100 q, k and v of 16 rows take as long either way.
constexpr int64_t k_most_reread_rows = 16;
constexpr int64_t k_most_reread_bytes = int64_t{32} << 20;
// The rows of a tile of many rows (linear_many.h). If there are fewer tiles than half the multiprocessors, kernels for
// a few rows are twice as fast up to k_most_few_rows (o on an H100: 48 tiles, 132 multiprocessors).
constexpr int64_t k_tile_rows = 64;
static_assert(k_most_together >= 3);  // q, k and v
// The most bytes of weights of a launch that are prefetched: on an H100 up to 16 MiB make no difference and 32 MiB cost
// 6 % of a decoding step, since its second-level cache does not keep them.
constexpr int64_t k_most_prefetched_bytes = int64_t{8} << 20;

// Returns whether a kernel asks for n_bytes of weights before the kernels ahead of it are done.
bool is_prefetched(int64_t n_bytes) {
    return debug_switches().prefetch && n_bytes <= k_most_prefetched_bytes;
}

// Returns the rows of h as 8-bit blocks; the norm before may have made them already.
const Q8Block* quantized_rows(cuda::Stream& s, const float* h, int64_t n, int64_t cols) {
    const auto& known = s.quantized;
    if (known.of != nullptr && known.cols == cols && h >= known.of &&
        h + n * cols <= known.of + known.n * cols && (h - known.of) % cols == 0)
        return s.fast_work.input + (h - known.of) / 32;
    quantize(s.stream, h, n, cols, s.fast_work.input);
    s.quantized = {h, n, cols};
    return s.fast_work.input;
}

// Invalidates the quantised rows if y overwrites them.
void forget_if_written(cuda::Stream& s, const float* y, int64_t count) {
    if (s.quantized.of != nullptr && overlap(y, count, s.quantized.of, s.quantized.n * s.quantized.cols))
        forget_input(s);
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

// The formats to which the rows of h have been converted, kept from task to task of one operation.
struct OtherRows {
    Format narrowed = Format::count_;
    Format halved = Format::count_;
};

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

bool takes_many(const cuda::Stream& s, int64_t n) {
    return n > k_rows_together || s.fixed;
}

// Returns whether packed matrices are multiplied on tensor cores.
bool takes_many(const cuda::Stream& s, const Products& products, int64_t n) {
    if (s.fixed || n <= k_rows_together) return s.fixed;
    int64_t n_tiles = 0;
    for (int i = 0; i < products.count; ++i) n_tiles += (products.rows[i] + k_tile_rows - 1) / k_tile_rows;
    if (2 * n_tiles <= s.n_processors) return n > k_most_few_rows;
    return n > k_most_reread_rows || weight_bytes(products) > k_most_reread_bytes;
}

// Returns whether slots are sorted by expert, so that the slots of an expert are multiplied together.
bool sorts_slots(const cuda::Stream& s, const ExpertWeights& weights, int64_t n) {
    const bool is_packed = weights.gate.packed && weights.up.packed && weights.down.packed;
    return s.fixed || n > (is_packed ? k_most_few_rows : k_rows_together);
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
    const LinearTask* task[k_most_together];
    int32_t count = 0;
};

Alike only(const LinearTask& task) {
    return {{&task}, 1};
}

// Returns task `first` and the later tasks that are like it. `done` has a bit for each task that has been taken.
Alike take_alike(std::span<const LinearTask> tasks, size_t first, uint64_t& done) {
    const Matrix& pattern = *tasks[first].weight;
    Alike alike;
    for (size_t i = first; i < tasks.size() && alike.count < k_most_together; ++i) {
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
Products products_of(const Alike& alike) {
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
    return products;
}

void multiply_unpacked(cuda::Stream& s, const LinearTask& task, const float* h, int64_t n, OtherRows& rows) {
    if (multiply_dense(s, task, h, n, rows)) return;
    const Weight weight = weight_of(*task.weight);
    if (takes_many(s, n) && has_half_tiles(weight.format, weight.cols)) {
        halve_for(s, weight.format, h, n * weight.cols / 128, s.fast_work.halved, rows.halved);
        linear_half_many(s.stream, weight, s.fast_work.halved, n, task.y, task.add);
    } else if (is_float(weight.format)) {
        linear_float(s.stream, products_of(only(task)), h, n, s.fixed);
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
    int64_t slots_a_row;
    Format halved = Format::count_;  // the format in `halves`; count_: none yet
};

// Returns whether slots in tiles are multiplied as halves.
bool multiplies_halves(const Experts& experts, const Slots& slots) {
    return slots.tiles != nullptr && has_half_tiles(experts.format, experts.cols);
}

const HalfBlock* halves_for(cuda::Stream& s, const Experts& experts, SlotInput& input) {
    halve_for(s, experts.format, input.x, input.n * experts.cols / 128, input.halves, input.halved);
    return input.halves;
}

// sums: not null only if the slots are summed at once.
void multiply_slots(cuda::Stream& s, const Experts& experts, bool is_packed, SlotInput& input,
                    const Slots& slots, float* y, const SlotSums* sums = nullptr) {
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
    if (experts.rows >= k_panel_rows)
        project(s.stream, experts, input.quantized, input.slots_a_row, slots, y, sums);
    const Experts rest = rest_of(experts);
    if (rest.rows > 0)
        exact::slots(s.stream, rest, input.x, input.slots_a_row, slots.ids, slots.n_slots,
                     y + experts.rows - rest.rows, experts.rows);
}

// Returns whether the kernel that multiplies slots can add them up as well.
bool adds_at_once(const ExpertStack& stack, const Slots& slots) {
    const bool is_taken = stack.packed ? stack.rows % k_panel_rows == 0 : is_float(stack.format);
    return slots.tiles == nullptr && is_taken;
}

// Returns whether gate, up, activation and quantisation are one kernel.
bool are_fused(const ExpertWeights& weights) {
    const ExpertStack& gate = weights.gate;
    return gate.packed && weights.up.packed && weights.down.packed && gate.format == weights.up.format &&
           gate.rows % 32 == 0 && weights.down.rows % k_panel_rows == 0;
}

// Computes silu(gate h) * (up h) of the slots' experts, in all forms that their down matrices need. The next kernel
// begins only when the ids have been written: both kernels that activate slots for a few rows hold it back until then,
// and exact kernels are not overtaken. For slots whose expert is not here, some forms are made from old contents of the
// memory; nothing reads them.
void activate_slots(cuda::Stream& s, const float* h, int64_t n, int64_t n_used, const Slots& slots,
                    const ExpertWeights& weights, const ExpertViews& views) {
    const Experts& gate = views.gate;
    const Experts& up = views.up;
    SlotInput rows = {h, n, nullptr, s.fast_work.halved, n_used};
    if (weights.gate.packed || weights.up.packed) rows.quantized = quantized_rows(s, h, n, gate.cols);
    if (are_fused(weights)) {
        activate(s.stream, gate, up, rows.quantized, n_used, slots, s.fast_work.quantized_slots);
        return;
    }
    if (gate.format == up.format && multiplies_halves(gate, slots)) {
        activate_half_many(s.stream, gate, up, halves_for(s, gate, rows), n_used, *slots.tiles,
                           s.work.activated);
    } else if (gate.format == up.format && slots.tiles == nullptr && is_float(gate.format)) {
        activate_float(s.stream, gate, up, h, n_used, slots.ids, slots.n_slots, s.work.activated);
    } else {
        multiply_slots(s, gate, weights.gate.packed, rows, slots, s.work.activated);
        multiply_slots(s, up, weights.up.packed, rows, slots, s.work.output);
        exact::activate(s.stream, s.work.activated, s.work.output, slots.n_slots * gate.rows);
    }
    if (weights.down.packed)
        quantize(s.stream, s.work.activated, slots.n_slots, gate.rows, s.fast_work.quantized_slots);
}

// Returns the slots of n rows; grouped in `tiles` if they are sorted by expert.
Slots slots_of(cuda::Stream& s, const int32_t* ids, int64_t n, int64_t n_used, const ExpertWeights& weights,
               ExpertTiles& tiles) {
    const int64_t n_slots = n * n_used;
    if (!sorts_slots(s, weights, n)) return {ids, n_slots, nullptr};
    tiles = s.fast_work.tiles;
    tiles.most = most_expert_tiles(n_slots, weights.n_expert());
    group_slots(s.stream, ids, n_slots, weights.places, weights.n_expert(), tiles);
    return {ids, n_slots, &tiles};
}

}  // namespace

int64_t n_arrival_counters(const backend::StepLimits& limits) {
    const int64_t few_rows = std::min(limits.n_rows, k_most_few_rows);
    return std::max(route_counters(limits.n_rows), few_rows * sum_counters(limits.hidden));
}

void norm_rows(cuda::Stream& s, const float* x, int64_t n, const backend::Vector& weight, float eps,
               float* h) {
    forget_input(s);
    if (n == 0) return;
    if (weight.size % 32 != 0) {
        exact::norm(s.stream, x, n, weight.data, weight.size, eps, h);
        return;
    }
    norm(s.stream, x, n, weight.data, weight.size, eps, h, s.fast_work.input);
    s.quantized = {h, n, weight.size};
}

void linear_tasks(cuda::Stream& s, const float* h, int64_t n, std::span<const LinearTask> tasks) {
    if (n == 0) return;
    NormRow norm = {};
    if (takes_norm(s, h, n, tasks)) {
        norm = take_norm(s);
    } else {
        launch_postponed(s);
    }
    const auto is_packed = [](const LinearTask& task) { return task.weight->packed; };
    const Q8Block* input = nullptr;
    if (std::ranges::any_of(tasks, is_packed)) input = quantized_rows(s, h, n, tasks[0].weight->cols);
    OtherRows other_rows;
    for (size_t group = 0; group < tasks.size(); group += 64) {
        const std::span<const LinearTask> some =
            tasks.subspan(group, std::min<size_t>(64, tasks.size() - group));
        uint64_t done = 0;
        for (size_t i = 0; i < some.size(); ++i) {
            const Matrix& weight = *some[i].weight;
            const bool is_done = (done >> i & 1U) != 0;
            if (weight.packed) {
                if (!is_done) {
                    const Products products = products_of(take_alike(some, i, done));
                    if (norm.x != nullptr) {
                        linear_norm(s.stream, products, std::exchange(norm, {}));
                    } else {
                        linear(s.stream, products, input, n, takes_many(s, products, n));
                    }
                }
                multiply_rest(s, some[i], h, n);
            } else if (is_float(weight.format) && !takes_many(s, n)) {
                if (!is_done) linear_float(s.stream, products_of(take_alike(some, i, done)), h, n, false);
            } else {
                multiply_unpacked(s, some[i], h, n, other_rows);
            }
        }
    }
    for (const LinearTask& task : tasks) forget_if_written(s, task.y, n * task.weight->rows);
}

void route_rows(cuda::Stream& s, const float* h, int64_t n, const Matrix& router, const backend::Vector& bias,
                int64_t n_used, int32_t* ids, float* gates) {
    if (n == 0) return;
    const Choice choice = {bias.data, n_used, ids, gates};
    // Rounded inputs must not decide which experts are chosen.
    if (is_float(router.format)) {
        const RouteWork work = {s.work.score, s.fast_work.router_partial, s.fast_work.arrived,
                                is_prefetched(router.rows * router.row_bytes)};
        if (is_postponed(s, h, n, router.cols))
            return route_norm(s.stream, weight_of(router), take_norm(s), choice, work);
        launch_postponed(s);
        return route_float(s.stream, weight_of(router), h, n, choice, work, s.fixed);
    }
    const LinearTask task = {&router, s.work.score, false};
    linear_tasks(s, h, n, {&task, 1});
    route(s.stream, s.work.score, n, router.rows, choice);
}

void add_experts(cuda::Stream& s, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const ExpertWeights& weights, float* y) {
    if (n == 0) return;
    const ExpertViews views(weights);
    ExpertTiles tiles = {};
    const Slots slots = slots_of(s, ids, n, n_used, weights, tiles);
    activate_slots(s, h, n, n_used, slots, weights, views);
    SlotInput activated = {s.work.activated, slots.n_slots, s.fast_work.quantized_slots,
                           s.fast_work.halved_slots, 1};
    if (adds_at_once(weights.down, slots)) {
        const SlotSums sums = {gates, n_used, y, s.fast_work.arrived};
        multiply_slots(s, views.down, weights.down.packed, activated, slots, s.work.output, &sums);
    } else {
        multiply_slots(s, views.down, weights.down.packed, activated, slots, s.work.output);
        exact::add_slots(s.stream, s.work.output, gates, n, n_used, weights.down.rows, y);
    }
    forget_if_written(s, y, n * weights.down.rows);
}

void make_slots(cuda::Stream& s, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                const ExpertWeights& weights, float* out) {
    if (n == 0) return;
    const ExpertViews views(weights);
    ExpertTiles tiles = {};
    const Slots slots = slots_of(s, ids, n, n_used, weights, tiles);
    activate_slots(s, h, n, n_used, slots, weights, views);
    SlotInput activated = {s.work.activated, slots.n_slots, s.fast_work.quantized_slots,
                           s.fast_work.halved_slots, 1};
    multiply_slots(s, views.down, weights.down.packed, activated, slots, out);
    forget_if_written(s, out, slots.n_slots * weights.down.rows);
}

}  // namespace minim::cuda::fast
