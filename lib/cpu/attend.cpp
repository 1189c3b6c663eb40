// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/choose_blocks.h"
#include "backend/hadamard.h"
#include "cpu/kernel_tables.h"
#include "cpu/operations.h"
#include "format/encode.h"

namespace minim::cpu {
namespace {

using backend::AttendArgs;
using backend::k_kv_page_tokens;
using backend::KvLayout;
using backend::KvRow;
using backend::KvSequence;

// Computes the cosines and sines of a position. Each angle is one product of position and frequency, in double: near the end of
// the context, a float angle is wrong by 0.005.
void find_rotation(int64_t position, std::span<const float> frequency, float* cosine, float* sine) {
    for (size_t i = 0; i < frequency.size(); ++i) {
        const double angle = static_cast<double>(position) * static_cast<double>(frequency[i]);
        cosine[i] = static_cast<float>(std::cos(angle));
        sine[i] = static_cast<float>(std::sin(angle));
    }
}

// Rotates the pairs (i, i + m) of each head, m being the number of frequencies. Components from 2m on stay unchanged.
void rotate_heads(float* heads, int64_t n_head, int64_t head_dim, int64_t m, const float* cosine,
                  const float* sine) {
    for (int64_t head = 0; head < n_head; ++head) {
        float* first = heads + head * head_dim;
        float* second = first + m;
        for (int64_t i = 0; i < m; ++i) {
            const float a = first[i];
            const float b = second[i];
            first[i] = a * cosine[i] - b * sine[i];
            second[i] = b * cosine[i] + a * sine[i];
        }
    }
}

void store(const KernelTable& kernels, Format format, const float* values, int64_t count, std::byte* out) {
    if (format == Format::f16) {
        kernels.narrow_f16(values, count, out);
    } else {
        row_encoder(format)(values, count, out);
    }
}

// Normalises q and k of row i.
void normalise_row(const KernelTable& kernels, const AttendArgs& args, int64_t i) {
    float* q = args.q + i * args.n_head * args.head_dim;
    float* k = args.k + i * args.n_head_kv * args.head_dim;
    if (args.squares == nullptr) {
        const auto norm = [&](float* heads, int64_t n_head, const backend::Vector& weight) {
            for (int64_t at = 0; at < n_head * args.head_dim; at += weight.size)
                kernels.rms_norm(heads + at, weight.size, weight.data, args.norm_eps, heads + at);
        };
        norm(q, args.n_head, args.q_norm);
        norm(k, args.n_head_kv, args.k_norm);
        return;
    }
    assert(args.q_norm.size == args.n_head * args.head_dim);
    assert(args.k_norm.size == args.n_head_kv * args.head_dim);
    const auto norm = [&](float* heads, float squares, int64_t n_head_all, const backend::Vector& weight) {
        const float mean = squares / static_cast<float>(n_head_all * args.head_dim);
        kernels.normalise(heads, weight.size, mean, weight.data, args.norm_eps, heads);
    };
    norm(q, args.squares[2 * i], args.n_head_all, args.q_norm);
    norm(k, args.squares[2 * i + 1], args.n_head_kv_all, args.k_norm);
}

// Normalises and rotates the index queries and the index key of row i, and puts the key into the row's page.
void prepare_index(const Machine& machine, const AttendArgs& args, int64_t i, const float* cosine,
                   const float* sine) {
    const backend::IndexArgs& index = *args.index;
    const int64_t dim = index.shape.dim;
    const auto m = static_cast<int64_t>(args.rope_frequency.size());
    const auto prepare = [&](float* heads, int64_t n_head, const backend::Vector& weight) {
        for (int64_t head = 0; head < n_head; ++head)
            machine.kernels.rms_norm(heads + head * dim, dim, weight.data, args.norm_eps, heads + head * dim);
        rotate_heads(heads, n_head, dim, m, cosine, sine);
    };
    prepare(index.q + i * index.shape.n_head * dim, index.shape.n_head, index.q_norm);
    prepare(index.k + i * dim, 1, index.k_norm);
    const KvRow& row = args.rows[i];
    const KvLayout& layout = *row.sequence->layout;
    std::byte* slot = row.sequence->pages[row.position / k_kv_page_tokens] + layout.index_offset(args.layer) +
                      row.position % k_kv_page_tokens * layout.index_token_bytes();
    store(machine.kernels, layout.index_format, index.k + i * dim, dim, slot);
}

// Normalises and rotates q and k of row i, and puts k and v into the row's page.
void prepare_row(const Machine& machine, const CpuScratch& scratch, const AttendArgs& args, int64_t i,
                 int32_t thread) {
    const KvRow& row = args.rows[i];
    const KvLayout& layout = *row.sequence->layout;
    assert(row.position < scratch.limits.n_context);
    float* q = args.q + i * args.n_head * args.head_dim;
    float* k = args.k + i * args.n_head_kv * args.head_dim;
    const float* v = args.v + i * args.n_head_kv * args.head_dim;
    normalise_row(machine.kernels, args, i);

    const auto m = static_cast<int64_t>(args.rope_frequency.size());
    float* cosine = scratch.of(thread).rotation;
    float* sine = cosine + m;
    find_rotation(row.position, args.rope_frequency, cosine, sine);
    rotate_heads(q, args.n_head, args.head_dim, m, cosine, sine);
    rotate_heads(k, args.n_head_kv, args.head_dim, m, cosine, sine);
    if (layout.rotates_keys()) {
        backend::hadamard_rows(q, args.n_head, args.head_dim);
        backend::hadamard_rows(k, args.n_head_kv, args.head_dim);
    }
    if (const auto quantize = kv_kernels(machine.kernels, layout.k_format).quantize_query) {
        for (int64_t head = 0; head < args.n_head; ++head) {
            const int64_t of_batch = i * args.n_head + head;
            scratch.query_scales[of_batch] = quantize(q + head * args.head_dim, args.head_dim,
                                                      scratch.query_codes + of_batch * args.head_dim);
        }
    }

    std::byte* page = row.sequence->pages[row.position / k_kv_page_tokens];
    const int64_t slot = row.position % k_kv_page_tokens;
    for (int64_t head = 0; head < args.n_head_kv; ++head) {
        std::byte* k_slot = page + layout.k_offset(args.layer, head) + slot * layout.k_token_bytes();
        std::byte* v_slot = page + layout.v_offset(args.layer, head) + slot * layout.v_token_bytes();
        store(machine.kernels, layout.k_format, k + head * args.head_dim, args.head_dim, k_slot);
        store(machine.kernels, layout.v_format, v + head * args.head_dim, args.head_dim, v_slot);
    }
    if (args.index != nullptr) prepare_index(machine, args, i, cosine, sine);
}

// Returns whether row i attends to some of its blocks only. That depends on its position alone.
bool is_sparse(const AttendArgs& args, int64_t i) {
    if (args.index == nullptr) return false;
    const backend::SparseAttention& shape = args.index->shape;
    return args.rows[i].position / shape.block >= shape.top;
}

// The number of positions of a span. The scores of a span are in scratch together. A row's history is summed span by span, each
// with its own largest score, and the spans are then joined in order. The bounds of spans depend only on positions, so a row has
// the same bits in any batch, chunk and division of the work.
constexpr int64_t k_span = k_attend_span_positions;

// Queries that are multiplied with a page of keys together: the query heads that share a KV head, of rows of one sequence at
// consecutive positions.
struct QueryBlock {
    const AttendArgs& args;
    const KvSequence& sequence;
    int64_t first_row;  // of the batch
    int64_t n_rows;
    int64_t head_kv;
    int64_t n_heads;  // query heads that share head_kv
    // The args.index->shape.top blocks that a sparse row, which is then the only one, attends to, in ascending order: its own is
    // the last. Null: all. Positions below count those of these blocks only.
    const int32_t* chosen = nullptr;
    // Of the layout, which computes them with divisions: the offsets of the head's slot 0 in a page, and the bytes of a slot.
    int64_t k_offset = 0, v_offset = 0;
    int64_t k_token_bytes = 0, v_token_bytes = 0;

    const KvLayout& layout() const { return *sequence.layout; }
    int64_t n_queries() const { return n_rows * n_heads; }
    // Returns the number of positions that row r attends to: 0 .. n_positions(r) - 1.
    int64_t n_positions(int64_t r) const {
        const int64_t position = args.rows[first_row + r].position;
        if (chosen == nullptr) return position + 1;
        const backend::SparseAttention& shape = args.index->shape;
        return (shape.top - 1) * shape.block + position % shape.block + 1;
    }
    // Returns the number of positions from a multiple of it on whose keys lie together.
    int64_t n_together() const {
        return chosen == nullptr ? k_kv_page_tokens : std::min(k_kv_page_tokens, args.index->shape.block);
    }
    // Returns the position in the sequence.
    int64_t in_sequence(int64_t position) const {
        if (chosen == nullptr) return position;
        const int64_t size = args.index->shape.block;
        return chosen[position / size] * size + position % size;
    }
    int64_t n_spans() const { return (n_positions(n_rows - 1) + k_span - 1) / k_span; }
    // Returns how many of the `count` positions from `first` on row r attends to.
    int64_t n_seen(int64_t r, int64_t first, int64_t count) const {
        return std::clamp(n_positions(r) - first, int64_t{0}, count);
    }
    // Returns the head of query r * n_heads + h, counted from first_head() on.
    int64_t head_of(int64_t r, int64_t h) const { return r * args.n_head + head_kv * n_heads + h; }
    int64_t first_head() const { return first_row * args.n_head; }
    // Return the head's K and V from a position on, n_together() of them at a multiple of that.
    const std::byte* keys(int64_t position) const {
        const int64_t at = in_sequence(position);
        return page(at) + k_offset + at % k_kv_page_tokens * k_token_bytes;
    }
    const std::byte* values(int64_t position) const {
        const int64_t at = in_sequence(position);
        return page(at) + v_offset + at % k_kv_page_tokens * v_token_bytes;
    }
    const std::byte* page(int64_t at) const { return sequence.pages[at / k_kv_page_tokens]; }
};

// Work space of a thread, for the queries of a block and for a tile of keys.
struct QuerySpace {
    const int16_t* query_codes;  // of all rows of the batch, like query_scales
    const float* query_scales;
    float* key_tile;       // score_tile_floats(head_dim)
    float* scores;         // [queries][k_span]
    AttendedSpan* totals;  // [queries]: of one span
    float* sums;           // [queries][head_dim]: of one span
    int32_t* head;         // [queries]: its row among the heads of the batch

    QuerySpace(const CpuScratch& scratch, int32_t thread) {
        const ThreadScratch& own = scratch.of(thread);
        query_codes = scratch.query_codes;
        query_scales = scratch.query_scales;
        key_tile = own.key_tile;
        scores = own.scores;
        totals = own.span_totals;
        sums = own.span_sums;
        head = own.query_head;
    }
};

// Computes the scores of positions begin .. end - 1 for all queries of a block. Scores of positions that a row must not attend to
// are computed too; the callers ignore them.
void find_scores(const KernelTable& kernels, const QueryBlock& block, int64_t begin, int64_t end,
                 const QuerySpace& space) {
    const KvLayout& layout = block.layout();
    ScoreArgs args = {};
    args.key_bytes = layout.k_token_bytes();
    args.cols = layout.head_dim;
    args.scale = 1.0F / std::sqrt(static_cast<float>(layout.head_dim));
    args.queries = block.args.q + block.first_head() * layout.head_dim;
    args.query_codes = space.query_codes + block.first_head() * layout.head_dim;
    args.query_scales = space.query_scales + block.first_head();
    args.query_rows = space.head;
    args.n_queries = block.n_queries();
    args.y_stride = k_span;
    args.tile = space.key_tile;
    const auto scores = kv_kernels(kernels, layout.k_format).scores;
    const int64_t n_together = block.n_together();
    for (int64_t first = begin; first < end; first += n_together) {
        args.keys = block.keys(first);
        args.n_keys = std::min(n_together, end - first);
        const int64_t next = first + n_together;
        args.next_keys = next < end ? block.keys(next) : block.values(begin);
        args.y = space.scores + (first - begin);
        scores(args);
    }
}

// sums = sum over positions, in their order, of weight * value.
void sum_values(const KernelTable& kernels, const QueryBlock& block, int64_t begin, int64_t end,
                const QuerySpace& space) {
    const KvLayout& layout = block.layout();
    std::fill_n(space.sums, block.n_queries() * layout.head_dim, 0.0F);
    WeightedSumArgs args = {};
    args.row_bytes = layout.v_token_bytes();
    args.cols = layout.head_dim;
    args.weight_stride = k_span;
    args.n_sums = block.n_heads;
    args.y_stride = layout.head_dim;
    const auto weighted_sum = kv_kernels(kernels, layout.v_format).weighted_sum;
    const int64_t n_together = block.n_together();
    for (int64_t first = begin; first < end; first += n_together) {
        args.rows = block.values(first);
        for (int64_t r = 0; r < block.n_rows; ++r) {
            const bool fetches = r == 0 && first + n_together < end;
            args.next_rows = fetches ? block.values(first + n_together) : nullptr;
            args.n_rows = block.n_seen(r, first, std::min(n_together, end - first));
            args.weight = space.scores + r * block.n_heads * k_span + (first - begin);
            args.y = space.sums + r * block.n_heads * layout.head_dim;
            if (args.n_rows > 0) weighted_sum(args);
        }
    }
}

// Computes the totals and sums of a span for every query of the block.
void attend_span(const KernelTable& kernels, const QueryBlock& block, int64_t span, const QuerySpace& space) {
    const int64_t begin = span * k_span;
    const int64_t end = std::min(begin + k_span, block.n_positions(block.n_rows - 1));
    for (int64_t r = 0; r < block.n_rows; ++r) {
        for (int64_t h = 0; h < block.n_heads; ++h)
            space.head[r * block.n_heads + h] = static_cast<int32_t>(block.head_of(r, h));
    }
    find_scores(kernels, block, begin, end, space);
    for (int64_t query = 0; query < block.n_queries(); ++query) {
        const int64_t n_seen = block.n_seen(query / block.n_heads, begin, end - begin);
        const SoftmaxTotals softmax = kernels.softmax_exp(space.scores + query * k_span, n_seen);
        space.totals[query] = {softmax.largest, softmax.sum};
    }
    sum_values(kernels, block, begin, end, space);
}

// Joins a later span to o and total, which have the sums of the earlier spans. Both sides are scaled to the larger of the two
// largest scores. A span that the row does not attend to (sum 0) changes nothing.
void join_span(const KernelTable& kernels, const AttendedSpan& span, const float* sums, int64_t head_dim,
               AttendedSpan& total, float* o) {
    if (span.sum == 0.0F) return;
    if (total.sum == 0.0F) {
        total = span;
        std::copy_n(sums, head_dim, o);
        return;
    }
    float factor[2] = {total.largest, span.largest};
    total.largest = kernels.softmax_exp(factor, 2).largest;
    total.sum = total.sum * factor[0] + span.sum * factor[1];
    for (int64_t c = 0; c < head_dim; ++c) o[c] = o[c] * factor[0] + sums[c] * factor[1];
}

void divide(float sum, int64_t head_dim, float* o) {
    for (int64_t c = 0; c < head_dim; ++c) o[c] /= sum;
}

// Attends all spans of a block, one after the other.
void attend_block(const Machine& machine, const CpuScratch& scratch, const QueryBlock& block,
                  int32_t thread) {
    const QuerySpace space(scratch, thread);
    const int64_t head_dim = block.args.head_dim;
    AttendedSpan* totals = scratch.of(thread).query_totals;
    std::fill_n(totals, block.n_queries(), AttendedSpan{});
    float* o = block.args.o + block.first_head() * head_dim;
    for (int64_t span = 0; span < block.n_spans(); ++span) {
        attend_span(machine.kernels, block, span, space);
        for (int64_t query = 0; query < block.n_queries(); ++query) {
            join_span(machine.kernels, space.totals[query], space.sums + query * head_dim, head_dim,
                      totals[query], o + space.head[query] * head_dim);
        }
    }
    for (int64_t query = 0; query < block.n_queries(); ++query)
        divide(totals[query].sum, head_dim, o + space.head[query] * head_dim);
}

// Returns the queries of some rows that share a KV head.
QueryBlock block_of(const CpuScratch& scratch, const AttendArgs& args, int64_t first_row, int64_t n_rows,
                    int64_t head_kv) {
    QueryBlock block = {args,    *args.rows[first_row].sequence, first_row, n_rows,
                        head_kv, args.n_head / args.n_head_kv};
    const KvLayout& layout = block.layout();
    block.k_offset = layout.k_offset(args.layer, head_kv);
    block.v_offset = layout.v_offset(args.layer, head_kv);
    block.k_token_bytes = layout.k_token_bytes();
    block.v_token_bytes = layout.v_token_bytes();
    if (is_sparse(args, first_row))
        block.chosen = scratch.chosen_blocks + (first_row * args.n_head_kv + head_kv) * args.index->shape.top;
    return block;
}

// Attends one row with a long history, its spans in parallel, so that every thread is busy.
void attend_long_row(const Machine& machine, const CpuScratch& scratch, const AttendArgs& args) {
    const QueryBlock any_head = block_of(scratch, args, 0, 1, 0);
    const int64_t n_spans = any_head.n_spans();
    // Partial results: [span][n_head].
    machine.pool.run(args.n_head_kv * n_spans, [&](int64_t task, int32_t thread) {
        const QueryBlock block = block_of(scratch, args, 0, 1, task % args.n_head_kv);
        const int64_t span = task / args.n_head_kv;
        QuerySpace space(scratch, thread);
        const int64_t first = span * args.n_head + block.head_of(0, 0);
        space.totals = scratch.row_totals + first;
        space.sums = scratch.row_sums + first * args.head_dim;
        attend_span(machine.kernels, block, span, space);
    });
    machine.pool.run(args.n_head, [&](int64_t head, int32_t) {
        AttendedSpan total;
        float* o = args.o + (any_head.first_head() + head) * args.head_dim;
        for (int64_t span = 0; span < n_spans; ++span) {
            const int64_t at = span * args.n_head + head;
            join_span(machine.kernels, scratch.row_totals[at], scratch.row_sums + at * args.head_dim,
                      args.head_dim, total, o);
        }
        divide(total.sum, args.head_dim, o);
    });
}

// Cuts rows begin .. end - 1 of the batch into runs of rows of one sequence at consecutive positions, either all sparse or none; run b
// goes from first_row[b] to first_row[b + 1].
int64_t find_runs(const AttendArgs& args, int64_t begin, int64_t end, int64_t longest, int64_t longest_sparse,
                  int32_t* first_row) {
    int64_t n_runs = 0;
    for (int64_t i = begin; i < end; ++i) {
        const KvRow& row = args.rows[i];
        const bool goes_on =
            n_runs > 0 && i - first_row[n_runs - 1] < (is_sparse(args, i) ? longest_sparse : longest) &&
            row.sequence == args.rows[i - 1].sequence && row.position == args.rows[i - 1].position + 1 &&
            is_sparse(args, i) == is_sparse(args, i - 1);
        if (!goes_on) first_row[n_runs++] = static_cast<int32_t>(i);
    }
    first_row[n_runs] = static_cast<int32_t>(end);
    return n_runs;
}

// ---- the choice of blocks ----

// Returns the largest of n numbers; NaN counts as minus infinity. The order does not matter: 16 lanes take one instruction each.
float largest_of(const float* x, int64_t n) {
    constexpr int64_t k_lanes = 16;
    float lane[k_lanes];
    std::fill_n(lane, k_lanes, -std::numeric_limits<float>::infinity());
    const auto larger = [](float a, float b) { return b > a ? b : a; };
    int64_t i = 0;
    for (; i + k_lanes <= n; i += k_lanes)
        for (int64_t l = 0; l < k_lanes; ++l) lane[l] = larger(lane[l], x[i + l]);
    for (; i < n; ++i) lane[0] = larger(lane[0], x[i]);
    return std::accumulate(lane + 1, lane + k_lanes, lane[0], larger);
}

// A span has whole blocks of every size.
static_assert(k_span % 1024 == 0);

// Computes the scores of a span's blocks for all index heads of the sparse rows first_row .. first_row + n_rows - 1, which follow each
// other in one sequence. to_row: of these rows among those in scratch.block_scores.
void score_blocks(const Machine& machine, const CpuScratch& scratch, const AttendArgs& args,
                  int64_t first_row, int64_t n_rows, int64_t span, int64_t to_row, int32_t thread) {
    const backend::IndexArgs& index = *args.index;
    const int64_t n_head = index.shape.n_head;
    const int64_t dim = index.shape.dim;
    const KvSequence& sequence = *args.rows[first_row].sequence;
    const KvLayout& layout = *sequence.layout;
    const ThreadScratch& own = scratch.of(thread);
    const int64_t begin = span * k_span;
    const int64_t end = std::min(begin + k_span, args.rows[first_row + n_rows - 1].position + 1);
    std::iota(own.query_head, own.query_head + n_rows * n_head, 0);
    ScoreArgs scores = {};
    scores.key_bytes = layout.index_token_bytes();
    scores.cols = dim;
    scores.scale = 1.0F;
    scores.queries = index.q + first_row * n_head * dim;
    scores.query_rows = own.query_head;
    scores.n_queries = n_rows * n_head;
    scores.y_stride = k_span;
    scores.tile = own.key_tile;
    const int64_t offset = layout.index_offset(args.layer);
    const auto keys = [&](int64_t position) { return sequence.pages[position / k_kv_page_tokens] + offset; };
    for (int64_t first = begin; first < end; first += k_kv_page_tokens) {
        const int64_t next = first + k_kv_page_tokens;
        scores.keys = keys(first);
        scores.n_keys = std::min(k_kv_page_tokens, end - first);
        scores.next_keys = next < end ? keys(next) : nullptr;
        scores.y = own.scores + (first - begin);
        kv_kernels(machine.kernels, layout.index_format).scores(scores);
    }
    for (int64_t query = 0; query < n_rows * n_head; ++query) {
        const int64_t seen_end = std::min(end, args.rows[first_row + query / n_head].position + 1);
        float* of_blocks = scratch.block_scores + (to_row * n_head + query) * scratch.n_index_blocks;
        for (int64_t first = begin; first < seen_end; first += index.shape.block)
            of_blocks[first / index.shape.block] = largest_of(own.scores + query * k_span + (first - begin),
                                                              std::min(index.shape.block, seen_end - first));
    }
}

// Chooses the blocks of all sparse rows.
void choose_all_blocks(const Machine& machine, const CpuScratch& scratch, const AttendArgs& args) {
    const backend::SparseAttention& shape = args.index->shape;
    const int64_t longest = scratch.n_block_queries / shape.n_head;
    int32_t* first_row = scratch.first_row_of_run;
    for (int64_t begin = 0; begin < args.n; begin += scratch.n_scored_rows) {
        const int64_t end = std::min(begin + scratch.n_scored_rows, args.n);
        const int64_t n_runs = find_runs(args, begin, end, args.n, longest, first_row);
        int64_t n_positions = 0;
        for (int64_t i = begin; i < end; ++i)
            if (is_sparse(args, i)) n_positions = std::max(n_positions, args.rows[i].position + 1);
        const int64_t n_spans = (n_positions + k_span - 1) / k_span;
        machine.pool.run(n_runs * n_spans, [&](int64_t task, int32_t thread) {
            const int64_t first = first_row[task % n_runs];
            const int64_t after = first_row[task % n_runs + 1];
            const int64_t span = task / n_runs;
            if (is_sparse(args, first) && span * k_span <= args.rows[after - 1].position)
                score_blocks(machine, scratch, args, first, after - first, span, first - begin, thread);
        });
        if (n_spans == 0) continue;
        machine.pool.run((end - begin) * shape.n_head, [&](int64_t task, int32_t) {
            const int64_t i = begin + task / shape.n_head;
            if (!is_sparse(args, i)) return;
            backend::choose_blocks(shape, scratch.block_scores + task * scratch.n_index_blocks,
                                   args.rows[i].position / shape.block + 1,
                                   scratch.chosen_blocks + (begin * shape.n_head + task) * shape.top);
        });
    }
}

}  // namespace

void head_squares(const Machine& machine, const AttendArgs& args, float* squares) {
    const int64_t q_size = args.n_head * args.head_dim;
    const int64_t k_size = args.n_head_kv * args.head_dim;
    machine.pool.run(args.n, [&](int64_t i, int32_t) {
        squares[2 * i] = machine.kernels.sum_squares(args.q + i * q_size, q_size);
        squares[2 * i + 1] = machine.kernels.sum_squares(args.k + i * k_size, k_size);
    });
}

void attend(const Machine& machine, CpuScratch& scratch, const AttendArgs& args) {
    assert(args.n <= scratch.limits.n_rows);
    if (args.n == 0) return;
    // Rows of one sequence attend to each other through the cache, so all rows are stored before the first one attends.
    machine.pool.run(args.n,
                     [&](int64_t i, int32_t thread) { prepare_row(machine, scratch, args, i, thread); });
    if (args.index != nullptr) {
        assert(args.index->shape == scratch.limits.index && args.index->shape.n_head == args.n_head_kv);
        choose_all_blocks(machine, scratch, args);
    }
    if (args.n == 1 && machine.pool.n_threads() > 1 && block_of(scratch, args, 0, 1, 0).n_spans() > 1)
        return attend_long_row(machine, scratch, args);
    const int64_t n_heads = args.n_head / args.n_head_kv;
    const int32_t* first_row = scratch.first_row_of_run;
    // A sparse row has blocks of its own, so it is alone.
    const int64_t n_runs =
        find_runs(args, 0, args.n, scratch.n_block_queries / n_heads, 1, scratch.first_row_of_run);
    // The last rows of a prompt attend to more positions than others. They are computed first, so that no thread ends late with one of
    // them.
    machine.pool.run(n_runs * args.n_head_kv, [&](int64_t task, int32_t thread) {
        const int64_t run = n_runs - 1 - task / args.n_head_kv;
        const QueryBlock block = block_of(scratch, args, first_row[run], first_row[run + 1] - first_row[run],
                                          task % args.n_head_kv);
        attend_block(machine, scratch, block, thread);
    });
}

}  // namespace minim::cpu
