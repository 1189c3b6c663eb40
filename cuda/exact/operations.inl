// SPDX-License-Identifier: Apache-2.0
// The functions of operations.h, over launch(stream, n, item), which the including file defines: it calls
// item(i) for every i < n, in any order.
#include "cuda/exact/items.h"

namespace minim::cuda::exact {

void embed(Stream stream, const Weight& table, const int32_t* ids, int64_t n, float* x) {
    with_block(AllBlocks{}, table.format, [&](auto block) {
        using Block = decltype(block);
        launch(stream, n * (table.cols / Block::block_elems), EmbedItem<Block>{table, ids, x});
    });
}

void norm(Stream stream, const float* x, int64_t n, const float* weight, int64_t size, float eps, float* h) {
    launch(stream, n, NormItem{x, weight, size, eps, h});
}

void linear(Stream stream, const Weight& weight, const float* h, int64_t n, float* y, int64_t y_stride,
            bool add) {
    with_block(AllBlocks{}, weight.format, [&](auto block) {
        launch(stream, n * weight.rows, LinearItem<decltype(block)>{weight, h, y, y_stride, add});
    });
}

void rotate(Stream stream, float* heads, int64_t n, int64_t n_head, int64_t head_dim, const int32_t* position,
            const float* frequency, int64_t n_frequency, bool hadamard) {
    launch(stream, n * n_head,
           RotateItem{heads, n_head, head_dim, position, frequency, n_frequency, hadamard});
}

void store(Stream stream, const Cache& cache, const float* k, const float* v, int64_t n) {
    launch(stream, n * cache.n_head_kv, StoreItem{cache, k, v});
}

void attend(Stream stream, const Cache& cache, const float* q, int64_t n, float* o) {
    launch(stream, n * cache.n_head, AttendItem{cache, q, o});
}

void score_blocks(Stream stream, const Cache& cache, const Index& index, const float* q, int64_t n) {
    launch(stream, n * index.shape.n_head * index.n_blocks, ScoreItem{cache, index, q});
}

void choose_blocks(Stream stream, const Cache& cache, const Index& index, int64_t n) {
    launch(stream, n * index.shape.n_head, ChooseItem{cache, index});
}

void attend_chosen(Stream stream, const Cache& cache, const Index& index, const float* q, int64_t n,
                   float* o) {
    launch(stream, n * cache.n_head, AttendChosenItem{{cache, q, o}, index});
}

void route(Stream stream, float* score, int64_t n, int64_t n_expert, const float* bias, int64_t n_used,
           int32_t* ids, float* gates) {
    launch(stream, n, RouteItem{score, n_expert, bias, n_used, ids, gates});
}

void scale(Stream stream, float* x, int64_t count, float factor) {
    launch(stream, count, ScaleItem{x, factor});
}

void slots(Stream stream, const Experts& experts, const float* x, int64_t slots_a_row, const int32_t* ids,
           int64_t n_slots, float* y, int64_t y_stride) {
    with_block(AllBlocks{}, experts.format, [&](auto block) {
        launch(stream, n_slots * experts.rows,
               SlotItem<decltype(block)>{experts, x, slots_a_row, ids, y, y_stride});
    });
}

void prepare_index(Stream stream, const Cache& cache, const Index& index, const IndexRows& rows, int64_t n) {
    const auto prepare = [&](float* heads, const float* weight, int64_t n_head) {
        norm(stream, heads, n * n_head, weight, index.shape.dim, rows.norm_eps, heads);
        rotate(stream, heads, n, n_head, index.shape.dim, cache.position, rows.frequency, rows.n_frequency,
               false);
    };
    prepare(rows.q, rows.q_norm, index.shape.n_head);
    prepare(rows.k, rows.k_norm, 1);
    launch(stream, n, StoreIndexItem{cache, index, rows.k});
}

void activate(Stream stream, float* gate, const float* up, int64_t count,
              const backend::Activation& activation) {
    if (activation.limit == 0.0F) return launch(stream, count, ActivateItem{gate, up});
    launch(stream, count, ClampedActivateItem{gate, up, activation});
}

void head_squares(Stream stream, const float* q, int64_t q_size, const float* k, int64_t k_size, int64_t n,
                  float* squares) {
    launch(stream, 2 * n, SquaresItem{q, q_size, k, k_size, squares});
}

void norm_divided(Stream stream, const float* x, int64_t n, const float* squares, int64_t n_squares,
                  const float* weight, int64_t size, float eps, float* h) {
    launch(stream, n, NormDividedItem{x, squares, n_squares, weight, size, eps, h});
}

void add_slots(Stream stream, const float* output, const float* gates, int64_t n, int64_t n_used,
               int64_t hidden, float* y, const SlotSum& sum) {
    launch(stream, n * hidden, AddSlotsItem{output, gates, n_used, hidden, y, sum});
}

}  // namespace minim::cuda::exact
