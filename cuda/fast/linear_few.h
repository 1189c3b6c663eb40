// SPDX-License-Identifier: Apache-2.0
// Multiplies packed weights by one to four input rows; one row may be normalised by the same kernel (norm_row.h).
//
// Shape: a block takes one or two pairs of panels, 16 rows each, and all columns, 256 at a time. Warp w of eight decodes unit w
// of them, one row in each lane, and multiplies it with the unit of each input. At the end the sums of the eight warps are
// added in order. Layout: panels of lib/panel/ in global memory, copied to a ring of stages in shared memory, where the lanes'
// words are side by side; inputs are Q8Blocks, whose unit all lanes of a warp read at once. Weights do not depend on earlier
// work in the stream, so their first stages are copied before the inputs are ready. Bytes moved: every weight once for four
// inputs; 1.5 bytes of input for each column and block, from the second-level cache. Bound: in theory by memory bandwidth above
// 4 bits and by instructions below: a unit takes some 70 (Q8_0) to 130 (IQ2_XXS) of them for 32 rows (cuda/README.md), and a
// multiprocessor starts at most four a cycle.
// One long file: dense products and those of experts share their loops over stages.
#pragma once

#include <cstddef>

#include "cuda/exact/items.h"
#include "cuda/fast/last_block.h"
#include "cuda/fast/norm_row.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/panel_dot.h"
#include "cuda/fast/quantize.h"
#include "cuda/fast/table_dots.h"

namespace minim::cuda::fast {

// The ring: as many stages as fit 40 KB for a pair. So several blocks have room on a multiprocessor, and enough bytes
// are in flight: 4.8 TB/s at a latency of 0.8 us need 29 KB for each multiprocessor. n_tokens: inputs in the ring. With none,
// the block has one input, of its own, behind everything else.
template <class P, int n_pairs, int n_tokens>
struct PanelStages {
    using Block = typename P::Block;
    static constexpr int k_panels = 2 * n_pairs;
    static constexpr int k_threads = 256 * n_pairs;
    static constexpr int k_input_bytes = k_stage_units * static_cast<int>(sizeof(Q8Block));
    static constexpr int k_inputs_at = k_panels * k_stage_panel_stride<Block>;
    static constexpr int k_stage_bytes = k_inputs_at + n_tokens * k_input_bytes;
    static constexpr int k_fitting = 40 * 1024 * n_pairs / k_stage_bytes;
    static constexpr int k_count = k_fitting < 2 ? 2 : k_fitting > 6 ? 6 : k_fitting;
    static constexpr int k_header_bytes = Block::row_header_bytes * static_cast<int>(k_panel_rows);
    static constexpr int k_headers_at = k_count * k_stage_bytes;
    static constexpr int k_sums_at = k_headers_at + k_panels * 64;
    static constexpr int k_table_at = k_sums_at + k_threads * (n_tokens > 0 ? n_tokens : 1) * 4;
    static constexpr int k_scales_at = k_table_at + k_table_bytes<P>;  // of ActivateFewKernel
    static constexpr int k_bytes = (k_scales_at + 8 + 15) / 16 * 16;
    static_assert(k_bytes <= k_max_shared_bytes);
};

// The work of a block.
template <int n_panels, int n_tokens>
struct PanelWork {
    const std::byte* panel[n_panels];
    const Q8Block* input[n_tokens];
    int64_t cols;
    bool prefetches;  // the stages beyond the first ones in the ring
};
// The same for a block that makes its input: the normalised row.
template <int n_panels>
struct PanelWork<n_panels, 0> {
    const std::byte* panel[n_panels];
    const NormRow* norm;
    int64_t cols;
    bool prefetches;
};

// The copies of a thread: the same pieces of 16 bytes in every stage. start_panels() copies only the panels of the first
// n_first stages: their inputs are copied separately.
template <class P, int n_pairs, int n_tokens>
struct StageCopies {
    using Stages = PanelStages<P, n_pairs, n_tokens>;
    using Block = typename P::Block;
    static constexpr int k_panel_bytes = k_stage_panel_bytes<Block>;
    static constexpr int k_panel_parts = k_panel_bytes / 16;
    static constexpr int k_input_parts = Stages::k_input_bytes / 16;
    static constexpr int k_of_panels = Stages::k_panels * k_panel_parts;
    static constexpr int k_parts = k_of_panels + n_tokens * k_input_parts;
    static constexpr int k_turns = (k_parts + Stages::k_threads - 1) / Stages::k_threads;
    static constexpr int k_panel_turns = k_of_panels / Stages::k_threads;  // turns that copy only panels

    const std::byte* from[k_turns];  // of the next stage
    int to[k_turns];                 // in a stage of the ring
    int step[k_turns];               // from stage to stage
    int n_stages[k_turns];           // stages still to come that have the piece

    template <class T>
    MINIM_DEVICE StageCopies(T& t, const PanelWork<2 * n_pairs, n_tokens>& work, int n_first) {
        const int cols = static_cast<int>(work.cols);
        const int n_whole = cols / k_stage_cols;
        const int rest = cols % k_stage_cols;  // of the last stage
        const int panel_rest =
            rest / Block::block_elems * Block::block_bytes * static_cast<int>(k_panel_rows);
        const int input_rest = rest / 32 * static_cast<int>(sizeof(Q8Block));
        for (int k = 0; k < k_turns; ++k) {
            const int part = k * Stages::k_threads + t.index();
            from[k] = nullptr;
            to[k] = 0;
            step[k] = k_panel_bytes;
            n_stages[k] = 0;
            for (int p = 0; p < Stages::k_panels; ++p) {
                const int at = 16 * (part - p * k_panel_parts);
                if (at < 0 || at >= k_panel_bytes) continue;
                from[k] = work.panel[p] + Stages::k_header_bytes + at;
                to[k] = p * k_stage_panel_stride<Block> + at;
                n_stages[k] = n_whole + (at < panel_rest ? 1 : 0);
            }
            if constexpr (n_tokens > 0) {
                for (int i = 0; i < n_tokens; ++i) {
                    const int at = 16 * (part - k_of_panels - i * k_input_parts);
                    if (at < 0 || at >= Stages::k_input_bytes) continue;
                    from[k] = reinterpret_cast<const std::byte*>(work.input[i]) +
                              n_first * Stages::k_input_bytes + at;
                    to[k] = Stages::k_inputs_at + i * Stages::k_input_bytes + at;
                    step[k] = Stages::k_input_bytes;
                    n_stages[k] = n_whole + (at < input_rest ? 1 : 0) - n_first;
                }
            }
        }
    }

    // Starts copying the panels of the next stage.
    template <class T>
    MINIM_DEVICE void start_panels(T& t, std::byte* stage) {
        for (int k = 0; k < k_turns; ++k) {
            const bool is_panel = k < k_panel_turns || k * Stages::k_threads + t.index() < k_of_panels;
            t.copy_16_if(is_panel && n_stages[k] > 0, stage + to[k], from[k]);
            if (!is_panel) continue;
            --n_stages[k];
            from[k] += k_panel_bytes;
        }
    }
    // Starts copying the next stage.
    template <class T>
    MINIM_DEVICE void start(T& t, std::byte* stage) {
        for (int k = 0; k < k_turns; ++k) {
            t.copy_16_if(n_stages[k] > 0, stage + to[k], from[k]);
            --n_stages[k];
            from[k] += k < k_panel_turns ? k_panel_bytes : step[k];
        }
    }
};

// Loads the inputs of the first n_first stages by ordinary loads. To wait for asynchronous copies of them would mean to
// wait for all panels under way as well.
template <class P, int n_pairs, int n_tokens, class T>
MINIM_DEVICE void load_first_inputs(T& t, const PanelWork<2 * n_pairs, n_tokens>& work, int n_first,
                                    std::byte* shared) {
    using Stages = PanelStages<P, n_pairs, n_tokens>;
    constexpr int k_parts = Stages::k_input_bytes / 16;  // of a stage
    const int n_parts = static_cast<int>(work.cols) / 32 * static_cast<int>(sizeof(Q8Block)) / 16;
    const int n_first_parts = n_first * k_parts < n_parts ? n_first * k_parts : n_parts;
    for (int i = 0; i < n_tokens; ++i) {
        const auto* from = reinterpret_cast<const SixteenBytes*>(work.input[i]);
        for (int part = t.index(); part < n_first_parts; part += Stages::k_threads) {
            std::byte* stage = shared + part / k_parts * Stages::k_stage_bytes + Stages::k_inputs_at;
            reinterpret_cast<SixteenBytes*>(stage + i * Stages::k_input_bytes)[part % k_parts] = from[part];
        }
    }
}

// Waits for the kernel's inputs, and makes the input of the block. The first block also keeps it for later kernels.
template <class P, int n_pairs, class T>
MINIM_DEVICE void make_input(T& t, const NormRow& norm, std::byte* shared) {
    using Stages = PanelStages<P, n_pairs, 0>;
    const bool is_first = t.block() == 0;
    RowNorm<Stages::k_threads>::run(
        t, norm, reinterpret_cast<float*>(shared + Stages::k_sums_at),
        {is_first ? norm.h : nullptr, reinterpret_cast<Q8Block*>(shared + Stages::k_bytes),
         is_first ? norm.quantized : nullptr});
}

// The inputs that a pair of panels is multiplied with.
enum class Meets { all_inputs, its_own };

template <Meets meets, int n_tokens>
inline constexpr int k_pair_sums = meets == Meets::its_own || n_tokens == 0 ? 1 : n_tokens;

// The work of a thread: a row of one of the panels, and the same unit of every stage.
struct RowUnit {
    int panel;
    int row;   // of the panel
    int unit;  // of a stage
};

// Adds the unit's products, stage by stage, while the next stages are copied. Each unit of a block has a loop of its
// own, since units are decoded differently and a warp keeps its unit.
template <class P, int n_pairs, int n_tokens, Meets meets, int block_unit, class T>
MINIM_DEVICE void multiply_stages(T& t, StageCopies<P, n_pairs, n_tokens>& copies, const RowUnit& at,
                                  int cols, float (&sum)[k_pair_sums<meets, n_tokens>]) {
    using Stages = PanelStages<P, n_pairs, n_tokens>;
    using Block = typename P::Block;
    constexpr int k_block_units = Block::block_elems / 32;
    static_assert(k_stage_units % k_block_units == 0);
    constexpr int k_last_at = (Stages::k_count - 1) * Stages::k_stage_bytes;
    std::byte* shared = t.shared();
    using Dots = typename ForDots<P>::Panel;
    using DotBlock = PanelBlock<typename ForDots<P>::L>;
    const DotBlock header = {shared + Stages::k_headers_at + 64 * at.panel, at.row};
    int read_at = 0;
    int write_at = k_last_at;
    MINIM_DEVICE_LOOP
    for (int cols_left = cols; cols_left > 0; cols_left -= k_stage_cols) {
        t.template copies_wait<Stages::k_count - 2>();
        t.template sync_stages<
            Stages::k_threads>();  // this stage has arrived, and no thread reads the one before
        copies.start(t, shared + write_at);
        t.copies_end_group();
        if (32 * at.unit < cols_left) {
            const std::byte* data = shared + read_at;
            const DotBlock block = {
                data + at.panel * k_stage_panel_stride<Block> +
                    at.unit / k_block_units * Block::block_bytes * static_cast<int>(k_panel_rows),
                at.row};
            panel::Unit<typename ForDots<P>::L> weights;
            unpack_unit<Dots, block_unit>(header, block, shared + Stages::k_table_at, weights);
            const std::byte* of_stage = data + Stages::k_inputs_at;
            if constexpr (n_tokens == 0)
                of_stage =
                    shared + Stages::k_bytes + (cols - cols_left) / k_stage_cols * Stages::k_input_bytes;
            const auto* inputs = reinterpret_cast<const Q8Block*>(of_stage) + at.unit;
            if constexpr (meets == Meets::its_own) inputs += at.panel / 2 * k_stage_units;
            for (int i = 0; i < k_pair_sums<meets, n_tokens>; ++i) {
                const InputUnit input = load_input(inputs + i * k_stage_units);
                if constexpr (k_is_by_tables<P>) {
                    sum[i] = add_unit_by_tables<typename Dots::Kind, Block, block_unit>(block, weights, input,
                                                                                        sum[i]);
                } else {
                    sum[i] = add_unit<typename Dots::Kind>(weights, input, sum[i]);
                }
            }
        }
        write_at = read_at;
        read_at = read_at == k_last_at ? 0 : read_at + Stages::k_stage_bytes;
    }
}

// Computes the row's products with every input and leaves them in shared memory: [token][pair][32 lanes], where the
// first 16 lanes are the first panel's rows. If each pair meets its own input: [pair][32 lanes].
template <class P, int n_pairs, int n_tokens, Meets meets = Meets::all_inputs, class T>
MINIM_DEVICE float* multiply_panels(T& t, const PanelWork<2 * n_pairs, n_tokens>& work) {
    using Stages = PanelStages<P, n_pairs, n_tokens>;
    using Block = typename P::Block;
    std::byte* shared = t.shared();
    const int warp = t.index() / 32;
    const int pair = warp / k_stage_units;
    const int unit = warp % k_stage_units;

    constexpr int k_first = Stages::k_count - 1;
    StageCopies<P, n_pairs, n_tokens> copies(t, work, k_first);
    copy_table<P>(t, Stages::k_threads, shared + Stages::k_table_at);
    if constexpr (Stages::k_header_bytes > 0) {
        constexpr int k_parts = Stages::k_header_bytes / 16;
        const int at = t.index() % k_parts * 16;
        for (int p = 0; p < Stages::k_panels; ++p) {
            if (t.index() / k_parts == p)
                t.copy_16(shared + Stages::k_headers_at + 64 * p + at, work.panel[p] + at);
        }
    }
    for (int s = 0; s < k_first; ++s) {
        copies.start_panels(t, shared + s * Stages::k_stage_bytes);
        t.copies_end_group();
    }
    if (work.prefetches) {
        for (const std::byte* panel : work.panel)
            prefetch_panel<Block>(t, Stages::k_threads, panel, work.cols, k_first);
    }
    if constexpr (n_tokens == 0) {
        make_input<P, n_pairs>(t, *work.norm, shared);
    } else {
        t.wait_for_inputs();
        load_first_inputs<P, n_pairs, n_tokens>(t, work, k_first, shared);
    }
    constexpr int k_sums = k_pair_sums<meets, n_tokens>;
    float sum[k_sums];
    for (float& s : sum) s = 0.0F;
    const RowUnit at = {2 * pair + t.index() % 32 / static_cast<int>(k_panel_rows),
                        t.index() % static_cast<int>(k_panel_rows), unit};
    with_unit<P>(unit % (Block::block_elems / 32), [&](auto block_unit) {
        multiply_stages<P, n_pairs, n_tokens, meets, block_unit>(t, copies, at, static_cast<int>(work.cols),
                                                                 sum);
    });

    // [unit][token][pair][lane]
    auto* sums = reinterpret_cast<float*>(shared + Stages::k_sums_at);
    constexpr int k_outputs = k_sums * n_pairs * 32;
    for (int i = 0; i < k_sums; ++i)
        sums[unit * k_outputs + (i * n_pairs + pair) * 32 + t.index() % 32] = sum[i];
    t.sync();
    if (t.index() < k_outputs) {
        float total = sums[t.index()];
        for (int u = 1; u < k_stage_units; ++u) total += sums[u * k_outputs + t.index()];
        sums[t.index()] = total;
    }
    t.sync();
    return sums;
}

// Returns the number of pairs of panels that `rows` rows make; the last pair may be one panel.
MINIM_HOST_DEVICE constexpr int64_t panel_pairs(int64_t rows) {
    return (rows / k_panel_rows + 1) / 2;
}
MINIM_HOST_DEVICE constexpr int64_t panel_pairs(const Products& products) {
    int64_t n = 0;
    for (int i = 0; i < products.count; ++i) n += panel_pairs(products.rows[i]);
    return n;
}

// A pair of panels of one of the products.
struct PanelPair {
    int product;
    int64_t first_row;
    int64_t rows;  // from there on: 16, or 32 and more
    const std::byte* panel[2];

    MINIM_DEVICE PanelPair(const Products& products, int64_t pair) : product(0) {
        for (; pair >= panel_pairs(products.rows[product]); ++product)
            pair -= panel_pairs(products.rows[product]);
        first_row = pair * 2 * k_panel_rows;
        rows = products.rows[product] - first_row;
        panel[0] =
            reinterpret_cast<const std::byte*>(products.weight[product]) + first_row * products.row_bytes;
        panel[1] = panel[0] + (rows > k_panel_rows ? k_panel_rows * products.row_bytes : 0);
    }
};

// A pair of panels of one of the products, for n_tokens input rows.
template <class P, int n_tokens>
struct LinearFewKernel {
    using Stages = PanelStages<P, 1, n_tokens>;
    static constexpr int k_threads = Stages::k_threads;
    static constexpr bool k_starts_early = true;
    static constexpr bool k_by_tables = k_is_by_tables<P>;

    Products products;
    const Q8Block* input;
    int64_t n;

    Grid grid() const { return {panel_pairs(products), (n + n_tokens - 1) / n_tokens, Stages::k_bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const PanelPair pair(products, t.block());
        const int64_t first_token = int64_t{t.block_y()} * n_tokens;
        PanelWork<2, n_tokens> work;
        work.cols = products.cols;
        work.prefetches = products.prefetches;
        for (int p = 0; p < 2; ++p) work.panel[p] = pair.panel[p];
        for (int i = 0; i < n_tokens; ++i) {
            const int64_t token = first_token + i < n ? first_token + i : first_token;
            work.input[i] = input + token * q8_blocks(products.cols);
        }
        const float* sums = multiply_panels<P, 1, n_tokens>(t, work);
        const int64_t row = t.index() % 32;
        const int64_t token = first_token + t.index() / 32;
        if (t.index() >= 32 * n_tokens || token >= n || row >= pair.rows) return;
        const int product = pair.product;
        float& y = products.y[product][token * products.y_stride[product] + pair.first_row + row];
        const float value = sums[t.index()] * products.scale[product];
        y = products.add[product] ? y + value : value;
    }
};

// A pair of panels of one of the products, for one input row that every block normalises for itself.
template <class P>
struct LinearNormKernel {
    using Stages = PanelStages<P, 1, 0>;
    static constexpr int k_threads = Stages::k_threads;
    static constexpr int k_min_blocks = 4;  // 64 registers, like LinearFewKernel for one row
    static constexpr bool k_starts_early = true;
    static constexpr bool k_by_tables = k_is_by_tables<P>;
    static_assert(Stages::k_bytes + k_max_norm_size / 32 * int64_t{sizeof(Q8Block)} <= k_max_shared_bytes);

    Products products;
    NormRow norm;

    Grid grid() const {
        return {panel_pairs(products), 1,
                Stages::k_bytes + q8_blocks(products.cols) * int64_t{sizeof(Q8Block)}};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const PanelPair pair(products, t.block());
        const PanelWork<2, 0> work = {
            {pair.panel[0], pair.panel[1]}, &norm, products.cols, products.prefetches};
        const float* sums = multiply_panels<P, 1, 0>(t, work);
        if (t.index() >= 32 || t.index() >= pair.rows) return;
        float& y = products.y[pair.product][pair.first_row + t.index()];
        const float value = sums[t.index()] * products.scale[pair.product];
        y = products.add[pair.product] ? y + value : value;
    }
};

// A pair of panels of one of the products, for one input row, if there are few panels: a block's two pairs are the halves of
// the columns, so there are twice as many warps, each with half of the stages.
template <class P>
struct LinearHalvesKernel {
    using Block = typename P::Block;
    using Stages = PanelStages<P, 2, 2>;
    static constexpr int k_threads = Stages::k_threads;
    static constexpr bool k_starts_early = true;
    static constexpr bool k_by_tables = k_is_by_tables<P>;
    static constexpr int64_t k_max_blocks = 128;  // more blocks keep a large GPU busy without this

    Products products;
    const Q8Block* input;

    static bool takes(const Products& products, int64_t n) {
        return n == 1 && Block::row_header_bytes == 0 && products.cols % (2 * Block::block_elems) == 0 &&
               panel_pairs(products) <= k_max_blocks;
    }
    Grid grid() const { return {panel_pairs(products), 1, Stages::k_bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const PanelPair pair(products, t.block());
        PanelWork<4, 2> work;
        work.cols = products.cols / 2;
        work.prefetches = products.prefetches;
        const int64_t half_bytes = work.cols / Block::block_elems * Block::block_bytes * k_panel_rows;
        for (int half = 0; half < 2; ++half) {
            for (int p = 0; p < 2; ++p) work.panel[2 * half + p] = pair.panel[p] + half * half_bytes;
            work.input[half] = input + half * q8_blocks(work.cols);
        }
        const float* sums = multiply_panels<P, 2, 2, Meets::its_own>(t, work);
        if (t.index() >= 32 || t.index() >= pair.rows) return;
        const int product = pair.product;
        float& y = products.y[product][pair.first_row + t.index()];
        const float value = (sums[t.index()] + sums[32 + t.index()]) * products.scale[product];
        y = products.add[product] ? y + value : value;
    }
};

// As exact::rows_of(), of an entry that a kernel which is known to be done has written.
template <class T>
MINIM_DEVICE exact::ExpertRows fresh_rows_of(T& t, const Experts& experts, int slot) {
    const auto* place = reinterpret_cast<const std::byte*>(experts.places + slot);
    const auto address = [&](size_t at) {
        return t.load_fresh(reinterpret_cast<const unsigned long long*>(place + at));
    };
    const unsigned long long gate = address(offsetof(backend::ExpertPlace, gate));
    const unsigned long long data = address(experts.data_at);
    const float scale = t.load_fresh(reinterpret_cast<const float*>(place + experts.scale_at));
    if (gate == 0) return {nullptr, 0.0F};
    return {reinterpret_cast<const uint8_t*>(data) + experts.first_row * experts.row_bytes, scale};
}

// 32 rows of gate and of up for a slot, if its expert is here: each pair is a panel of gate and a panel of up.
template <class P>
struct ActivateFewKernel {
    using Stages = PanelStages<P, 2, 1>;
    static constexpr int k_threads = Stages::k_threads;
    static constexpr int k_min_blocks =
        k_needs_registers<P> ? 2 : 3;  // with 3, 48 x 8 blocks are one wave on a large GPU
    static constexpr bool k_starts_early = true;
    static constexpr bool k_by_tables = k_is_by_tables<P>;
    static constexpr bool k_holds_next = true;

    Experts gate;
    Experts up;
    const Q8Block* h;
    const int32_t* ids;  // null: the entries of gate and up are those of the slots
    int64_t n_slots;
    int64_t n_used;
    Q8Block* activated;

    Grid grid() const { return {gate.rows / 32, n_slots, Stages::k_bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int slot = t.block_y();
        t.wait_for_inputs();
        t.let_next_begin();  // the product after it may read the ids at once
        const int32_t expert = ids == nullptr ? slot : ids[slot];
        const exact::ExpertRows gate_rows = rows_of(gate, expert);
        const exact::ExpertRows up_rows = rows_of(up, expert);
        if (gate_rows.data == nullptr) return;  // the whole block returns
        PanelWork<4, 1> work = {};
        work.cols = gate.cols;
        work.input[0] = h + slot / static_cast<int>(n_used) * q8_blocks(gate.cols);
        for (int half = 0; half < 2; ++half) {
            const int64_t at = (int64_t{t.block()} * 2 + half) * k_panel_rows * gate.row_bytes;
            work.panel[2 * half] = reinterpret_cast<const std::byte*>(gate_rows.data) + at;
            work.panel[2 * half + 1] = reinterpret_cast<const std::byte*>(up_rows.data) + at;
        }
        // Not in registers meanwhile: some formats need all that three blocks leave a thread.
        auto* scale = reinterpret_cast<float*>(t.shared() + Stages::k_scales_at);
        if (t.index() == 0) {
            scale[0] = gate_rows.scale;
            scale[1] = up_rows.scale;
        }
        const float* sums = multiply_panels<P, 2, 1>(t, work);
        if (t.index() >= 32) return;
        const int at = t.index() / 16 * 32 + t.index() % 16;
        const float g = sums[at] * scale[0];
        const float u = sums[at + 16] * scale[1];
        quantize_lanes(t, activate_pair(gate.activation, g, u),
                       activated + slot * q8_blocks(gate.rows) + t.block());
    }
};

// 32 rows of a slot's product, if its expert is here. If slots are summed, the product of a slot whose expert is not here
// is 0, and the last block of a row's slots computes the sum.
template <class P>
struct ProjectFewKernel {
    using Stages = PanelStages<P, 1, 1>;
    static constexpr int k_threads = Stages::k_threads;
    static constexpr bool k_starts_early = true;
    static constexpr bool k_by_tables = k_is_by_tables<P>;

    Experts experts;
    const Q8Block* input;
    int64_t slots_a_row;  // of the input
    const int32_t* ids;   // null: the entries of `experts` are those of the slots
    int64_t n_slots;
    float* output;
    SlotSums sums;  // gates null: none

    Grid grid() const { return {(experts.rows / k_panel_rows + 1) / 2, n_slots, Stages::k_bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int slot = t.block_y();
        // If slots are summed, the kernel before this one has activated them, and let this one begin only after the ids
        // had been written. A multiprocessor's own cache may still have the ids of the layer before.
        if (sums.gates == nullptr) t.wait_for_inputs();
        const exact::ExpertRows expert =
            ids == nullptr ? fresh_rows_of(t, experts, slot) : rows_of(experts, t.load_fresh(ids + slot));
        const bool is_here = expert.data != nullptr;
        if (!is_here && sums.gates == nullptr) return;  // the whole block returns
        const int64_t first_row = int64_t{t.block()} * 2 * k_panel_rows;
        const int64_t rows = experts.rows / k_panel_rows * k_panel_rows - first_row;
        const bool has_row = t.index() < 32 && t.index() < rows;
        float product = 0.0F;
        if (is_here) {
            product = multiply(t, slot, expert, first_row, rows) * expert.scale;
        } else {
            t.wait_for_inputs();
        }
        if (has_row) output[int64_t{slot} * experts.rows + first_row + t.index()] = product;
        if (sums.gates == nullptr) return;
        const auto n_used = static_cast<int>(sums.n_used);
        const int row = slot / n_used;
        int32_t* arrived = sums.arrived + row * sum_counters(experts.rows) + t.block();
        auto* is_last = reinterpret_cast<int32_t*>(t.shared() + Stages::k_sums_at) + 32;
        if (!is_last_block(t, arrived, n_used, is_last) || !has_row) return;
        const exact::AddSlotsItem add = {output,       sums.gates, n_used,
                                         experts.rows, sums.y,     {nullptr, nullptr, sums.add}};
        add(row * experts.rows + first_row + t.index());
    }

  private:
    // Returns the product of the thread's row, without the expert's scale; only in the first 32 threads.
    template <class T>
    MINIM_DEVICE float multiply(T& t, int slot, const exact::ExpertRows& expert, int64_t first_row,
                                int64_t rows) const {
        const auto* data = reinterpret_cast<const std::byte*>(expert.data) + first_row * experts.row_bytes;
        PanelWork<2, 1> work = {};
        work.cols = experts.cols;
        work.input[0] = input + slot / static_cast<int>(slots_a_row) * q8_blocks(experts.cols);
        work.panel[0] = data;
        work.panel[1] = rows > k_panel_rows ? data + k_panel_rows * experts.row_bytes : data;
        const float* products = multiply_panels<P, 1, 1>(t, work);
        return t.index() < 32 ? products[t.index()] : 0.0F;
    }
};

}  // namespace minim::cuda::fast
