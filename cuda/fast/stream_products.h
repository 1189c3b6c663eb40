// SPDX-License-Identifier: Apache-2.0
// The stream kernel: packed weights times one to four input rows, for devices with bulk copies (sm_90 and newer). Replaces
// linear_few.h there if a GPU shows that it is faster.
//
// Shape: one block for each multiprocessor, with all of its shared memory; its warps have roles (stream_roles.h). An item is 32 rows of
// a matrix; 16 of gate and 16 of up; or 32 of a slot's down. Runs of items go to blocks in turn: two items of gate and up, whose 32
// results are quantised together, or all slots of a row for 32 rows of down, which are added up in the block. Layout: panels of
// lib/panel/; inputs are Q8Blocks in shared memory, copied, quantised or normalised once for a block. Bytes moved: every weight once for
// up to four inputs; 1.5 bytes of input for each column and block, or 4 of floats. Bound: memory bandwidth, or the instructions of a unit
// as in linear_few.h, but without barriers of the block, copies and addresses among them.
#pragma once

#include "cuda/fast/quantize_rows.h"
#include "cuda/fast/stream_roles.h"
#include "cuda/rounded_product.h"

namespace minim::cuda::fast {

// A slot's rows, kept in shared memory.
struct StreamPlace {
    const std::byte* data[2];  // gate and up, or down; null: the expert is not here
    float scale[2];
};

// The consumers as threads of a block of their own, for parts of kernels that have a barrier.
template <class T, int n_threads>
struct ConsumerThreads {
    T& all;

    MINIM_DEVICE int index() const { return all.index(); }
    MINIM_DEVICE void sync() { all.template sync_stages<n_threads>(); }
    MINIM_DEVICE void wait_for_inputs() { all.wait_for_inputs(); }
    template <typename Number>
    MINIM_DEVICE Number from_lane_xor(Number x, int mask) {
        return all.from_lane_xor(x, mask);
    }
};

template <class P, int n_tokens>
struct StreamProductsKernel {
    using Roles = StreamRoles<P, n_tokens>;
    static constexpr int k_threads = Roles::k_threads;
    static constexpr bool k_starts_early = true;
    static constexpr bool k_holds_next = true;
    static constexpr bool k_runs_together = true;
    static constexpr int k_shared_bytes = k_large_shared_bytes;
    static constexpr bool k_by_tables = k_is_by_tables<P>;

    StreamCall call;
    StreamMemory memory;
    int32_t n_blocks;
    int32_t n_runs;
    int32_t n_items;  // of a run

    static StreamProductsKernel make(const StreamCall& call, const StreamDevice& device) {
        const int64_t input_bytes = call.n_inputs * q8_blocks(call.cols) * int64_t{sizeof(Q8Block)};
        StreamProductsKernel kernel = {call,
                                       Roles::memory_for(call.n_slots * int64_t{sizeof(StreamPlace)},
                                                         input_bytes, 0, device.shared_bytes),
                                       0, 0, 1};
        if (call.kind == StreamKind::rows) {
            kernel.n_runs = static_cast<int32_t>(panel_pairs(call.products));
        } else if (call.kind == StreamKind::activate) {
            kernel.n_runs = kernel.runs_of_rows() * call.n_slots;
            kernel.n_items = 2;
        } else {
            kernel.n_runs = kernel.runs_of_rows() * (call.n_slots / call.n_used);
            kernel.n_items = call.n_used;
        }
        kernel.n_blocks = kernel.n_runs < device.n_processors ? kernel.n_runs : device.n_processors;
        return kernel;
    }
    Grid grid() const { return {.n_blocks = n_blocks, .shared_bytes = memory.bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if constexpr (T::k_has_bulk_copies) run(t);
    }

  private:
    template <class T>
    MINIM_DEVICE void run(T& t) const {
        // The experts of gate and up are known only when the inputs are. The kernel ahead of down has waited for them too, and let this
        // one begin only after that.
        if (call.kind == StreamKind::activate) t.wait_for_inputs();
        t.let_next_begin();
        Roles::start_barriers(t, memory);
        if (call.kind != StreamKind::rows) put_places(t);
        t.sync();
        if (t.index() < Roles::k_consumer_threads) {
            make_inputs(t);
            with_unit<P>(t.index() / 32 % k_stage_units % Roles::k_block_units,
                         [&](auto block_unit) { multiply_items<block_unit>(t); });
        } else if (t.index() < Roles::k_consumer_threads + 32) {
            if (t.index() == Roles::k_consumer_threads) load_items(t);
            t.wait_for_inputs();
        } else {
            store_items(t);
        }
    }

    template <class T>
    MINIM_DEVICE StreamPlace* places(T& t) const {
        return reinterpret_cast<StreamPlace*>(t.shared() + memory.places_at);
    }
    // Reads the places of all slots. All threads of the block call it, and a barrier must follow.
    template <class T>
    MINIM_DEVICE void put_places(T& t) const {
        for (int slot = t.index(); slot < call.n_slots; slot += k_threads) {
            StreamPlace place = {};
            const auto put = [&](int i, const exact::ExpertRows& rows) {
                place.data[i] = reinterpret_cast<const std::byte*>(rows.data);
                place.scale[i] = rows.scale;
            };
            // A multiprocessor's own cache may still have the ids and entries of the layer before.
            const int32_t expert = call.ids == nullptr ? slot : t.load_fresh(call.ids + slot);
            put(0, fresh_rows_of(t, call.experts, expert));
            if (call.kind == StreamKind::activate) put(1, fresh_rows_of(t, call.up, expert));
            places(t)[slot] = place;
        }
    }

    // The runs of a slot of gate and up, or of all slots of a row of down.
    MINIM_HOST_DEVICE int runs_of_rows() const {
        return static_cast<int>(call.kind == StreamKind::activate ? call.experts.rows / 32
                                                                  : panel_pairs(call.experts.rows));
    }
    MINIM_DEVICE int slot_of(int run, int k) const {
        const int first = run / runs_of_rows();
        return call.kind == StreamKind::activate ? first : first * n_items + k;
    }
    template <class T>
    MINIM_DEVICE bool is_here(T& t, int run, int k) const {
        return call.kind == StreamKind::rows || places(t)[slot_of(run, k)].data[0] != nullptr;
    }
    // Calls with(run, item of the run) for the block's items whose expert is here.
    template <class T, class With>
    MINIM_DEVICE void for_each_item(T& t, const With& with) const {
        MINIM_DEVICE_LOOP
        for (int run = t.block(); run < n_runs; run += n_blocks) {
            MINIM_DEVICE_LOOP
            for (int k = 0; k < n_items; ++k)
                if (is_here(t, run, k)) with(run, k);
        }
    }
    MINIM_DEVICE int n_groups() const { return static_cast<int>(call.cols) / k_stage_cols; }

    template <class T>
    MINIM_DEVICE void panels_of(T& t, int run, int k, const std::byte* (&panel)[2]) const {
        if (call.kind == StreamKind::rows) {
            const PanelPair pair(call.products, run);
            for (int p = 0; p < 2; ++p) panel[p] = pair.panel[p];
            return;
        }
        const StreamPlace& place = places(t)[slot_of(run, k)];
        const int64_t panel_bytes = k_panel_rows * call.row_bytes;
        const int64_t of_slot = run % runs_of_rows();
        if (call.kind == StreamKind::activate) {
            for (int p = 0; p < 2; ++p) panel[p] = place.data[p] + (2 * of_slot + k) * panel_bytes;
            return;
        }
        panel[0] = place.data[0] + 2 * of_slot * panel_bytes;
        panel[1] = panel[0] + (call.experts.rows - 32 * of_slot > k_panel_rows ? panel_bytes : 0);
    }

    template <class T>
    MINIM_DEVICE void load_items(T& t) const {
        const Ring ring = Roles::ring_of(t, memory);
        const RingShares shares = ring_shares(n_groups(), memory.slot_groups);
        RingPosition at;
        for_each_item(t, [&](int run, int k) {
            const std::byte* panel[2];
            panels_of(t, run, k, panel);
            MINIM_DEVICE_LOOP
            for (int s = 0; s < shares.n_slots; ++s) {
                const int first = Roles::k_header_bytes + shares.first_of(s) * Roles::k_group_bytes;
                const PanelPart part[2] = {{panel[0], panel[0] + first}, {panel[1], panel[1] + first}};
                ring.template load<Roles::k_header_bytes>(t, at, part,
                                                          shares.count_of(s) * Roles::k_group_bytes);
                at.next(ring.n_slots);
            }
        });
    }

    // Waits for the kernel's inputs, and makes the table and the input rows in shared memory. All consumers call it.
    template <class T>
    MINIM_DEVICE void make_inputs(T& t) const {
        constexpr int k_count = Roles::k_consumer_threads;
        std::byte* shared = t.shared();
        ConsumerThreads<T, k_count> consumers = {t};
        copy_table<P>(t, k_count, shared + memory.table_at);
        auto* inputs = reinterpret_cast<Q8Block*>(shared + memory.inputs_at);
        const StreamRows& rows = call.input;
        const bool is_first = t.block() == 0;  // keeps rows for later kernels
        if (rows.blocks == nullptr && rows.x == nullptr) {
            const NormRow& norm = call.norm;
            RowNorm<k_count>::run(consumers, norm, reinterpret_cast<float*>(shared + StreamMemory::k_norm_at),
                                  {is_first ? norm.h : nullptr, inputs, is_first ? norm.quantized : nullptr});
        } else if (rows.blocks == nullptr) {
            t.wait_for_inputs();
            quantize_rows<k_count>(consumers, rows.x, call.n_inputs * static_cast<int>(call.cols), inputs,
                                   is_first ? rows.quantized : nullptr);
        } else {
            t.wait_for_inputs();
            const int n_parts = call.n_inputs * static_cast<int>(q8_blocks(call.cols)) *
                                static_cast<int>(sizeof(Q8Block) / sizeof(SixteenBytes));
            MINIM_DEVICE_LOOP
            for (int part = t.index(); part < n_parts; part += k_count)
                reinterpret_cast<SixteenBytes*>(inputs)[part] =
                    reinterpret_cast<const SixteenBytes*>(rows.blocks)[part];
        }
        consumers.sync();
    }

    template <int block_unit, class T>
    MINIM_DEVICE void multiply_items(T& t) const {
        typename Roles::Consumer own = {t.index() / 32, t.index() % 32};
        const Ring ring = Roles::ring_of(t, memory);
        const auto row = static_cast<int>(q8_blocks(call.cols));
        const auto* inputs = reinterpret_cast<const Q8Block*>(t.shared() + memory.inputs_at) + own.unit();
        const RingShares shares = ring_shares(n_groups(), memory.slot_groups);
        for_each_item(t, [&](int run, int k) {
            const Q8Block* input = inputs;
            if (call.kind != StreamKind::rows) input += slot_of(run, k) / call.slots_an_input * row;
            float sum[n_tokens];
            for (float& each : sum) each = 0.0F;
            MINIM_DEVICE_LOOP
            for (int s = 0; s < shares.n_slots; ++s) {
                const std::byte* slot = ring.wait(t, own.at);
                const int count = shares.count_of(s);
                Roles::template multiply_slot<block_unit>(t, memory, own, slot, count, input, row,
                                                          call.n_inputs, sum);
                ring.release(t, own.at);
                own.at.next(ring.n_slots);
                own.n_before += count;
                input += count * k_stage_units;
            }
            Roles::put_sums(t, memory, own, sum);
        });
    }

    template <class T>
    MINIM_DEVICE void store_items(T& t) const {
        t.wait_for_inputs();
        int n_done = 0;
        float total[n_tokens];
        const auto add_up = [&] { Roles::add_up(t, memory, n_done, n_groups(), total); };
        if (call.kind == StreamKind::rows) {
            for_each_item(t, [&](int run, int) {
                add_up();
                store_rows(t, run, total);
            });
        } else if (call.kind == StreamKind::activate) {
            float kept = 0.0F;
            for_each_item(t, [&](int run, int k) {
                add_up();
                const int slot = slot_of(run, k);
                const float own = total[0] * places(t)[slot].scale[t.index() % 32 / Roles::k_rows];
                Roles::activate(t, call.experts.activation, k, own, kept);
                if (k == 0) return;
                quantize_lanes(t, kept,
                               call.activated + slot * q8_blocks(call.experts.rows) + run % runs_of_rows());
            });
        } else {
            MINIM_DEVICE_LOOP
            for (int run = t.block(); run < n_runs; run += n_blocks) project_run(t, run, add_up, total);
        }
    }

    template <class T>
    MINIM_DEVICE void store_rows(T& t, int run, const float (&total)[n_tokens]) const {
        const PanelPair pair(call.products, run);
        const int row = t.index() % 32;
        if (row >= pair.rows) return;
        const Products& products = call.products;
        for (int i = 0; i < n_tokens; ++i) {
            if (i >= call.n_inputs) continue;
            float& y = products.y[pair.product][i * products.y_stride[pair.product] + pair.first_row + row];
            const float value = total[i] * products.scale[pair.product];
            y = products.add[pair.product] ? y + value : value;
        }
    }

    // Rows of down for all slots of a row. Sums leave out slots whose expert is not here.
    template <class T, class AddUp>
    MINIM_DEVICE void project_run(T& t, int run, const AddUp& add_up, const float (&total)[n_tokens]) const {
        const int64_t row = int64_t{run % runs_of_rows()} * 32 + t.index() % 32;
        const bool has_row = row < call.experts.rows / k_panel_rows * k_panel_rows;
        const bool sums = call.sums.gates != nullptr;
        float* y = sums ? call.sums.y + run / runs_of_rows() * call.experts.rows + row : nullptr;
        float sum = sums && call.sums.add && has_row ? *y : 0.0F;
        MINIM_DEVICE_LOOP
        for (int k = 0; k < n_items; ++k) {
            if (!is_here(t, run, k)) continue;
            add_up();
            const int slot = slot_of(run, k);
            const float value = total[0] * places(t)[slot].scale[0];
            if (sums) {
                sum += rounded_product(call.sums.gates[slot], value);
            } else if (has_row) {
                call.output[slot * call.experts.rows + row] = value;
            }
        }
        if (sums && has_row) *y = sum;
    }
};

}  // namespace minim::cuda::fast
