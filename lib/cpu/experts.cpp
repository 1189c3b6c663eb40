// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cassert>

#include "cpu/matrix_tile.h"
#include "cpu/operations.h"
#include "cpu/row_tiles.h"

namespace minim::cpu {
namespace {

// Columns of y that one task sums.
constexpr int64_t k_sum_columns = 1024;
// Columns of a block of a quantised input row: tiles of gate and up are whole blocks.
constexpr int64_t k_block_cols = backend::k_split_rows;

// Sorts the slots whose expert is on this device by expert, so that an expert's weights are read once for all rows
// that chose it. Returns the number of experts that have slots.
int64_t group_by_expert(CpuScratch& scratch, const int32_t* ids, int64_t n_slots, int64_t n_used,
                        const backend::ExpertWeights& weights) {
    const int64_t n_expert = weights.n_expert();
    int32_t* first = scratch.first_of_expert;
    std::fill_n(first, n_expert + 1, 0);
    for (int64_t slot = 0; slot < n_slots; ++slot)
        if (weights.is_here(ids[slot])) ++first[ids[slot] + 1];
    int64_t n_active = 0;
    for (int64_t e = 0; e < n_expert; ++e) {
        if (first[e + 1] > 0) scratch.active_expert[n_active++] = static_cast<int32_t>(e);
        first[e + 1] += first[e];
    }
    // This loop moves the start of each expert to the expert's end, which is the start of the next expert. The copy behind the
    // loop shifts the starts back by one.
    for (int64_t slot = 0; slot < n_slots; ++slot) {
        if (!weights.is_here(ids[slot])) continue;
        const int32_t entry = first[ids[slot]]++;
        scratch.entry_row[entry] = static_cast<int32_t>(slot / n_used);
        scratch.entry_of_slot[slot] = entry;
    }
    std::copy_backward(first, first + n_expert, first + n_expert + 1);
    first[0] = 0;
    return n_active;
}

// Returns the entries of one expert from an input in sorted order.
InputRows entries_of(const InputRows& all, const CpuScratch& scratch, int32_t expert) {
    const int32_t first = scratch.first_of_expert[expert];
    return rows_of(all, first, scratch.first_of_expert[expert + 1] - first);
}

// A tile: rows first .. first + count of an active expert.
struct ExpertTile {
    int32_t expert;
    int64_t first;
    int64_t count;
};

// Calls task(tile, next tile, thread) for every tile of every active expert. The next tile is the one that the thread
// most likely reads next; after the last tile of a part, it has no rows.
template <typename Task>
void for_each_expert_tile(const Machine& machine, const CpuScratch& scratch, int64_t n_active,
                          const backend::ExpertStack& stack, int64_t tile_rows, const Task& task) {
    // Experts that are not here have no blocks.
    const backend::RowBlocks* blocks =
        stack.blocks.empty() ? nullptr : stack.blocks[scratch.active_expert[0]];
    const RowTiles tiles(stack.rows, blocks, tile_rows);
    TaskParts parts;
    for (int32_t part = 0; part < tiles.n_parts(); ++part) parts.add(n_active * tiles.count(part));
    const auto tile = [&](int32_t part, int64_t index) -> ExpertTile {
        if (index >= parts.end(part)) return {};
        const int64_t n_tiles = tiles.count(part);
        index -= parts.begin(part);
        const RowTile rows = tiles.tile(part, index % n_tiles);
        return {scratch.active_expert[index / n_tiles], rows.first, rows.count};
    };
    machine.pool.run_parts(parts.bounds(), [&](int64_t index, int32_t thread) {
        const int32_t part = parts.part_of(index);
        task(tile(part, index), tile(part, index + 1), thread);
    });
}

const std::byte* rows_from(const backend::ExpertStack& stack, const ExpertTile& tile) {
    return tile.count == 0 ? nullptr : stack.matrix(tile.expert).row(tile.first);
}

void apply(const KernelTable& kernels, const backend::Activation& function, const float* gate,
           const float* up, int64_t count, float* out) {
    if (function.limit == 0.0F) return kernels.silu_mul(gate, up, count, out);
    kernels.clamped_silu_mul(gate, up, count, function.alpha, function.limit, out);
}

// Computes columns first .. first + count of an input row of `down` from gate h and up h; gate is overwritten. If the
// row is quantised, first and count are multiples of 32.
void put_activated(const KernelTable& kernels, const backend::Activation& function, Activation activation,
                   float* gate, const float* up, int64_t first, int64_t count, std::byte* row) {
    if (activation == Activation::f32)
        return apply(kernels, function, gate, up, count, reinterpret_cast<float*>(row) + first);
    apply(kernels, function, gate, up, count, gate);
    kernels.quantize_q8(gate, count, row + first / k_block_cols * static_cast<int64_t>(sizeof(Q8Block)));
}

// Where the inputs of `down` are stored, by slot, before they are quantised.
struct ObservedMiddle {
    const int32_t* ids;  // [slots]
    int64_t n_used;
    float* values;  // [slots][ff]; null: they are not stored
};

// Returns the slot of an entry of the sorted order: the one of its row that chose the expert.
int64_t slot_of(const CpuScratch& scratch, const ObservedMiddle& middle, int64_t entry, int32_t expert) {
    int64_t slot = scratch.entry_row[entry] * middle.n_used;
    while (middle.ids[slot] != expert || scratch.entry_of_slot[slot] != entry) ++slot;
    return slot;
}

// activated = the activation of gate h and up h for every entry, in sorted order, as `down` reads it.
void activate(const Machine& machine, CpuScratch& scratch, int64_t n_active,
              const backend::ExpertWeights& weights, const InputRows& input, Activation activation,
              const ObservedMiddle& middle) {
    const int64_t row_bytes = activation_row_bytes(activation, weights.gate.rows);
    const auto task = [&](const ExpertTile& tile, const ExpertTile& next, int32_t thread) {
        const ThreadScratch& own = scratch.of(thread);
        const InputRows all = entries_of(input, scratch, tile.expert);
        std::byte* activated = scratch.activated + scratch.first_of_expert[tile.expert] * row_bytes;
        for (int64_t done = 0; done < all.n_tokens; done += k_gate_tile_tokens) {
            const InputRows rows = rows_of(all, done, std::min(k_gate_tile_tokens, all.n_tokens - done));
            const auto compute = [&](const backend::ExpertStack& stack, float* y,
                                     const std::byte* next_weight) {
                const backend::Matrix weight = stack.matrix(tile.expert);
                compute_tile(machine,
                             {.weight = weight,
                              .first = tile.first,
                              .count = tile.count,
                              .y = y,
                              .y_stride = tile.count,
                              .next_weight = next_weight},
                             rows, own.tile);
            };
            const bool is_last = done + rows.n_tokens == all.n_tokens;
            compute(weights.gate, own.gate, rows_from(weights.up, tile));
            compute(weights.up, own.up, rows_from(weights.gate, is_last ? next : tile));
            for (int64_t t = 0; t < rows.n_tokens; ++t) {
                std::byte* row = activated + (done + t) * row_bytes;
                put_activated(machine.kernels, weights.activation, activation, own.gate + t * tile.count,
                              own.up + t * tile.count, tile.first, tile.count, row);
                if (middle.values == nullptr) continue;
                const float* values = activation == Activation::f32
                                          ? reinterpret_cast<const float*>(row) + tile.first
                                          : own.gate + t * tile.count;
                const int64_t entry = scratch.first_of_expert[tile.expert] + done + t;
                const int64_t slot = slot_of(scratch, middle, entry, tile.expert);
                std::copy_n(values, tile.count, middle.values + slot * weights.gate.rows + tile.first);
            }
        }
    };
    const int64_t tile_rows = rows_of_tile(machine, weights.gate.matrix(0), n_active * weights.gate.rows);
    for_each_expert_tile(
        machine, scratch, n_active, weights.gate,
        std::min((tile_rows + k_block_cols - 1) / k_block_cols * k_block_cols, k_gate_tile_rows), task);
}

// output = down * input for every entry, in sorted order.
void project(const Machine& machine, CpuScratch& scratch, int64_t n_active, const backend::ExpertStack& down,
             const InputRows& input, float* output) {
    const auto task = [&](const ExpertTile& tile, const ExpertTile& next, int32_t thread) {
        const backend::Matrix weight = down.matrix(tile.expert);
        const MatrixTile rows = {.weight = weight,
                                 .first = tile.first,
                                 .count = tile.count,
                                 .y = output + scratch.first_of_expert[tile.expert] * down.rows + tile.first,
                                 .y_stride = down.rows,
                                 .next_weight = rows_from(down, next)};
        compute_tile(machine, rows, entries_of(input, scratch, tile.expert), scratch.of(thread).tile);
    };
    const int64_t tile_rows = rows_of_tile(machine, down.matrix(0), n_active * down.rows);
    for_each_expert_tile(machine, scratch, n_active, down, tile_rows, task);
}

// Calls task(row, first column, number of columns) for every piece of n rows. A piece is at most k_sum_columns columns of a row.
template <typename Task>
void for_each_piece(const Machine& machine, int64_t n, int64_t hidden, const Task& task) {
    const int64_t n_chunks = (hidden + k_sum_columns - 1) / k_sum_columns;
    machine.pool.run(n * n_chunks, [&](int64_t i, int32_t) {
        const int64_t first = i % n_chunks * k_sum_columns;
        task(i / n_chunks, first, std::min(k_sum_columns, hidden - first));
    });
}

// y = or, with `add`, += sum of gate * output, slot after slot of each row. output_of(slot) returns a slot's output, or
// null if the slot adds nothing.
template <typename OutputOf>
void add_outputs(const Machine& machine, int64_t n, int64_t hidden, const float* gates, int64_t n_used,
                 const OutputOf& output_of, float* y, bool add) {
    for_each_piece(machine, n, hidden, [&](int64_t i, int64_t first, int64_t count) {
        float* sums = y + i * hidden + first;
        if (!add) std::fill_n(sums, count, 0.0F);
        for (int64_t slot = i * n_used; slot < (i + 1) * n_used; ++slot) {
            const float* output = output_of(slot);
            if (output != nullptr) machine.kernels.add_scaled(output + first, gates[slot], count, sums);
        }
    });
}

// scratch.expert_output = down(activation of gate h and up h) for every slot whose expert is here, in sorted order. Returns the
// number of these slots. Stores the inputs of `down` in `middle` [slots][ff] unless it is null.
int64_t compute_entries(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n,
                        const int32_t* ids, int64_t n_used, const backend::ExpertWeights& weights,
                        float* middle) {
    const int64_t hidden = weights.gate.cols;
    const int64_t ff = weights.gate.rows;
    assert(n <= scratch.limits.n_rows && n_used <= scratch.limits.n_expert_used);
    assert(hidden <= scratch.limits.hidden && ff <= scratch.limits.longest_ff());
    assert(n * n_used * ff <=
           scratch.limits.n_rows * scratch.limits.n_expert_used * scratch.limits.slot_ff());
    assert(weights.n_expert() <= scratch.limits.n_expert);
    const int64_t n_active = group_by_expert(scratch, ids, n * n_used, n_used, weights);
    const int64_t n_entries = scratch.first_of_expert[weights.n_expert()];
    if (n_entries == 0) return 0;

    InputRows input = plain_rows(h, n, hidden);
    for (const Format format : {weights.gate.format, weights.up.format}) {
        const Activation activation = activation_for(machine.kernels, format);
        quantize_rows(machine, activation, h, n, hidden, scratch.input[static_cast<size_t>(activation)],
                      input);
    }
    // From here on, the input is in sorted order: entry t reads input row entry_row[t].
    input.rows = scratch.entry_row;
    input.n_tokens = n_entries;
    const Activation activation = activation_for(machine.kernels, weights.down.format);
    activate(machine, scratch, n_active, weights, input, activation, {ids, n_used, middle});

    InputRows activated;
    activated.data[static_cast<size_t>(activation)] = scratch.activated;
    activated.row_bytes[static_cast<size_t>(activation)] = activation_row_bytes(activation, ff);
    activated.n_tokens = n_entries;
    project(machine, scratch, n_active, weights.down, activated, scratch.expert_output);
    return n_entries;
}

}  // namespace

void experts(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n, const int32_t* ids,
             const float* gates, int64_t n_used, const backend::ExpertWeights& weights, float* y, bool add) {
    if (n == 0) return;
    const int64_t hidden = weights.gate.cols;
    compute_entries(machine, scratch, h, n, ids, n_used, weights, nullptr);
    const auto output_of = [&](int64_t slot) -> const float* {
        if (!weights.is_here(ids[slot])) return nullptr;
        return scratch.expert_output + scratch.entry_of_slot[slot] * hidden;
    };
    add_outputs(machine, n, hidden, gates, n_used, output_of, y, add);
}

void expert_slots(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n, const int32_t* ids,
                  int64_t n_used, const backend::ExpertWeights& weights, float* out) {
    observe_slots(machine, scratch, h, n, ids, n_used, weights, nullptr, out);
}

void observe_slots(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n, const int32_t* ids,
                   int64_t n_used, const backend::ExpertWeights& weights, float* middle, float* out) {
    const int64_t hidden = weights.gate.cols;
    if (n * n_used == 0 || compute_entries(machine, scratch, h, n, ids, n_used, weights, middle) == 0) return;
    for_each_piece(machine, n, hidden, [&](int64_t i, int64_t first, int64_t count) {
        for (int64_t slot = i * n_used; slot < (i + 1) * n_used; ++slot) {
            if (weights.is_here(ids[slot]))
                std::copy_n(scratch.expert_output + scratch.entry_of_slot[slot] * hidden + first, count,
                            out + slot * hidden + first);
        }
    });
}

void add_slots(const Machine& machine, const float* out, const float* gates, int64_t n, int64_t n_used,
               int64_t hidden, float* y) {
    const auto output_of = [&](int64_t slot) { return out + slot * hidden; };
    add_outputs(machine, n, hidden, gates, n_used, output_of, y, true);
}

}  // namespace minim::cpu
