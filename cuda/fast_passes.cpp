// SPDX-License-Identifier: Apache-2.0
#include "cuda/debug.h"
#include "cuda/fast_step.h"
#include "panel/panel.h"

namespace minim::cuda::fast {
namespace {

// The most rows of weights that are multiplied in the kernel that normalises their input. Each of its blocks, of 32 rows, does
// so for itself: these many begin at once on a large GPU (512 blocks on 132 multiprocessors), while those of a head of 200,064
// rows would do it one after another.
constexpr int64_t k_max_norm_rows = 16384;

bool overlap(const float* a, int64_t n_a, const float* b, int64_t n_b) {
    return a < b + n_b && b < a + n_a;
}

// Returns whether the first kernel of the operation can compute the norm, which may_fold().
bool takes_norm(const Operation& operation, const NormCall& norm) {
    if (const auto* route = std::get_if<RouteCall>(&operation.call))
        return route->h == norm.h && route->n == 1 && route->router.cols == norm.size;
    const auto* linear = std::get_if<LinearCall>(&operation.call);
    if (linear == nullptr || linear->h != norm.h || linear->n != 1) return false;
    const backend::Matrix& first = *linear->tasks[0].weight;
    if (first.cols != norm.size || !first.packed || first.rows < panel::k_panel_rows) return false;
    int64_t n_rows = 0;
    for (const backend::LinearTask& task : linear->tasks) {
        const int64_t rows = task.weight->rows;
        n_rows += rows;
        // Blocks that write y run beside others that read x.
        if (overlap(task.y, rows, norm.x, norm.size) || overlap(task.y, rows, norm.h, norm.size))
            return false;
    }
    return n_rows <= k_max_norm_rows;
}

// Returns the choice of the operation; null if it does not choose experts of n rows.
Choice* choice_of(Operation& operation, int64_t n) {
    if (auto* route = std::get_if<RouteCall>(&operation.call))
        return route->n == n ? &route->choice : nullptr;
    if (auto* choose = std::get_if<ChooseCall>(&operation.call))
        return choose->n == n ? &choose->choice : nullptr;
    return nullptr;
}

// Returns the rows that the operation needs in blocks.
QuantizedRows input_of(const cuda::Stream& s, const Operation& operation) {
    if (const auto* linear = std::get_if<LinearCall>(&operation.call)) {
        if (reads_blocks(s, *linear)) return {linear->h, linear->n, linear->tasks[0].weight->cols};
    } else if (const auto* experts = std::get_if<ExpertsCall>(&operation.call)) {
        if (reads_blocks(s, *experts)) return {experts->h, experts->n, experts->weights.gate.cols};
    }
    return {};
}

bool contains(const QuantizedRows& known, const QuantizedRows& wanted) {
    return known.of != nullptr && known.cols == wanted.cols && wanted.of >= known.of &&
           wanted.of + wanted.n * wanted.cols <= known.of + known.n * known.cols &&
           (wanted.of - known.of) % known.cols == 0;
}

// Returns the rows that are known after the operation, of those that were known before it or of its results.
QuantizedRows known_after(const Operation& operation, const QuantizedRows& known) {
    const auto are_written = [&](const float* y, int64_t count) {
        return known.of != nullptr && overlap(y, count, known.of, known.n * known.cols);
    };
    if (const auto* norm = std::get_if<NormCall>(&operation.call))
        return norm->size % 32 == 0 ? QuantizedRows{norm->h, norm->n, norm->size} : QuantizedRows{};
    if (const auto* squares = std::get_if<SquaresCall>(&operation.call))
        return are_written(squares->args.squares, 2 * squares->args.n) ? QuantizedRows{} : known;
    if (const auto* call = std::get_if<AttendCall>(&operation.call)) {
        const auto is_quantized = [](const TileList& list) { return list.n_tiles == 0 || list.n_splits > 1; };
        const Cache& cache = call->attend.cache;
        if (!is_quantized(call->attend.wide) || !is_quantized(call->attend.narrow)) return {};
        return {call->attend.o, call->prepare.n, cache.n_head * cache.head_dim};
    }
    if (const auto* linear = std::get_if<LinearCall>(&operation.call)) {
        for (const backend::LinearTask& task : linear->tasks)
            if (are_written(task.y, linear->n * task.weight->rows)) return {};
    } else if (const auto* experts = std::get_if<ExpertsCall>(&operation.call)) {
        const int64_t n_rows = experts->gates != nullptr ? experts->n : experts->n * experts->n_used;
        if (are_written(experts->out, n_rows * experts->weights.down.rows)) return {};
    } else if (const auto* collect = std::get_if<CollectCall>(&operation.call)) {
        const CollectedSlots& slots = collect->slots;
        if (are_written(slots.out, slots.n * slots.n_used * slots.hidden)) return {};
        if (slots.y != nullptr && are_written(slots.y, slots.n * slots.hidden)) return {};
    }
    return known;
}

}  // namespace

bool may_fold(const cuda::Stream& s, const Operation& operation) {
    const auto* norm = std::get_if<NormCall>(&operation.call);
    if (norm == nullptr || !debug_switches().fold || s.fixed || norm->n != 1) return false;
    const uintptr_t places = reinterpret_cast<uintptr_t>(norm->x) |
                             reinterpret_cast<uintptr_t>(norm->weight) | reinterpret_cast<uintptr_t>(norm->h);
    return norm->size % 32 == 0 && norm->size <= k_max_norm_size && places % sizeof(FourFloats) == 0 &&
           !overlap(norm->x, norm->size, norm->h, norm->size);
}

void fold_norms(cuda::Stream& s) {
    std::vector<Operation>& all = s.list.operations;
    for (size_t i = 1; i < all.size(); ++i) {
        if (!may_fold(s, all[i - 1])) continue;
        const auto& norm = std::get<NormCall>(all[i - 1].call);
        if (!takes_norm(all[i], norm)) continue;
        all[i].norm = {norm.x, norm.weight, norm.size, norm.eps, norm.h, s.fast_work.input};
        all[i - 1].is_folded = true;
    }
}

void share_places(cuda::Stream& s) {
    std::vector<Operation>& all = s.list.operations;
    for (size_t i = 1; i < all.size(); ++i) {
        auto* experts = std::get_if<ExpertsCall>(&all[i].call);
        if (experts == nullptr || !reads_chosen(s, *experts)) continue;
        Choice* choice = choice_of(all[i - 1], experts->n);
        if (choice == nullptr || choice->ids != experts->ids || choice->n_used != experts->n_used) continue;
        choice->places = experts->weights.gate.places;
        choice->chosen = s.fast_work.chosen;
        experts->chosen = s.fast_work.chosen;
    }
}

void find_inputs(cuda::Stream& s) {
    QuantizedRows& known = s.list.known;
    for (Operation& operation : s.list.operations) {
        const QuantizedRows wanted = input_of(s, operation);
        if (wanted.of != nullptr) {
            operation.quantizes = !contains(known, wanted);
            if (operation.quantizes) known = wanted;
            operation.input = s.fast_work.input + (wanted.of - known.of) / 32;
        }
        known = known_after(operation, known);
    }
}

}  // namespace minim::cuda::fast
