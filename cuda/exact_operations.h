// SPDX-License-Identifier: Apache-2.0
// The operations of a GPU in plain float arithmetic (exact/), one after the other, for weights of every format.
#pragma once

#include <algorithm>

#include "cuda/cuda_device.h"
#include "cuda/exact/operations.h"
#include "cuda/views.h"
#include "format/blocks.h"

namespace minim::cuda {

using backend::AttendArgs;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;
using backend::Vector;

class ExactOperations : public CudaDevice {
  public:
    using CudaDevice::CudaDevice;

    bool runs(Format format) const noexcept override {
        return with_block(AllBlocks{}, format, [](auto) {});
    }
    bool activates(const backend::Activation& /*activation*/) const noexcept override { return true; }
    bool packs(Format) const noexcept override { return false; }
    void pack(std::span<std::byte* const>, const Matrix&) const override {}
    void adopt(Scratch&, std::span<std::byte* const>, const Matrix&) const override {}

    void embed(Scratch& scratch, const Matrix& table, std::span<const int32_t> ids, float* x) const override {
        Stream& s = to_write(scratch);
        const bool is_of_batch = !ids.empty() && std::ranges::equal(s.batch.ids, ids);
        if (!is_of_batch) put(s, s.work.ids, ids);
        const int32_t* device_ids = is_of_batch ? s.batch.tables.ids : s.work.ids;
        launch(s, [&] { exact::embed(s.stream, weight_of(table), device_ids, std::ssize(ids), x); });
    }

    void norm(Scratch& scratch, const float* x, int64_t n, const Vector& weight, float eps,
              float* h) const override {
        Stream& s = own(scratch);
        launch(s, [&] { exact::norm(s.stream, x, n, weight.data, weight.size, eps, h); });
    }

    void linear(Scratch& scratch, const float* h, int64_t n,
                std::span<const LinearTask> tasks) const override {
        Stream& s = own(scratch);
        launch(s, [&] {
            for (const LinearTask& task : tasks)
                exact::linear(s.stream, weight_of(*task.weight), h, n, task.y, task.weight->rows, task.add);
        });
    }

    void head_squares(Scratch& scratch, const AttendArgs& args, float* squares) const override {
        Stream& s = to_write(scratch);
        launch(s, [&] {
            exact::head_squares(s.stream, args.q, args.n_head * args.head_dim, args.k,
                                args.n_head_kv * args.head_dim, args.n, squares);
        });
    }

    void attend(Scratch& scratch, const AttendArgs& args) const override {
        if (args.n == 0) return;
        Stream& s = to_write(scratch);
        const exact::Cache cache = put_cache(s, args);
        // squares: of the first row, in every second place; null without AttendArgs::squares.
        const auto prepare = [&](float* heads, const Vector& weight, int64_t n_head, const float* squares,
                                 int64_t n_head_all) {
            const int64_t n_norms = args.n * n_head * args.head_dim / weight.size;
            launch(s, [&] {
                if (squares == nullptr) {
                    exact::norm(s.stream, heads, n_norms, weight.data, weight.size, args.norm_eps, heads);
                } else {
                    exact::norm_divided(s.stream, heads, args.n, squares, n_head_all * args.head_dim,
                                        weight.data, weight.size, args.norm_eps, heads);
                }
            });
            launch(s, [&] {
                exact::rotate(s.stream, heads, args.n, n_head, args.head_dim, cache.position,
                              s.work.frequency, std::ssize(args.rope_frequency),
                              args.rows[0].sequence->layout->rotates_keys());
            });
        };
        const float* squares = args.squares;
        prepare(args.q, args.q_norm, args.n_head, squares, args.n_head_all);
        prepare(args.k, args.k_norm, args.n_head_kv, squares == nullptr ? nullptr : squares + 1,
                args.n_head_kv_all);
        launch(s, [&] { exact::store(s.stream, cache, args.k, args.v, args.n); });
        if (args.index == nullptr) {
            launch(s, [&] { exact::attend(s.stream, cache, args.q, args.n, args.o); });
            return;
        }
        const exact::Index index = index_of(s, args);
        const exact::IndexRows rows = index_rows(s, args);
        launch(s, [&] { exact::prepare_index(s.stream, cache, index, rows, args.n); });
        launch(s, [&] { exact::score_blocks(s.stream, cache, index, rows.q, args.n); });
        launch(s, [&] { exact::choose_blocks(s.stream, cache, index, args.n); });
        launch(s, [&] { exact::attend_chosen(s.stream, cache, index, args.q, args.n, args.o); });
    }

    void route(Scratch& scratch, const float* h, int64_t n, const Matrix& router, const Vector& bias,
               int64_t n_used, int32_t* ids, float* gates) const override {
        Stream& s = own(scratch);
        launch(s, [&] {
            exact::linear(s.stream, weight_of(router), h, n, s.work.score, router.rows, false);
            exact::route(s.stream, s.work.score, n, router.rows, bias.data, n_used, ids, gates);
        });
    }

    void scale(Scratch& scratch, float* x, int64_t count, float factor) const override {
        Stream& s = to_write(scratch);
        launch(s, [&] { exact::scale(s.stream, x, count, factor); });
    }

    void experts(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const ExpertWeights& weights, float* y, bool add) const override {
        Stream& s = to_write(scratch);
        expert_slots(scratch, h, n, ids, n_used, weights, s.work.output);
        launch(s, [&] {
            exact::add_slots(s.stream, s.work.output, gates, n, n_used, weights.down.rows, y,
                             {ids, weights.places, add});
        });
    }

    void expert_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                      const ExpertWeights& weights, float* out) const override {
        ExactOperations::observe_slots(scratch, h, n, ids, n_used, weights, own(scratch).work.activated, out);
    }

    bool observes_slots() const noexcept override { return true; }
    void observe_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                       const ExpertWeights& weights, float* middle, float* out) const override {
        if (!has_table(scratch, weights)) return;
        Stream& s = own(scratch);
        const ExpertViews views(weights);
        const auto multiply = [&](const exact::Experts& experts, const float* x, int64_t slots_a_row,
                                  float* y) {
            exact::slots(s.stream, experts, x, slots_a_row, ids, n * n_used, y, experts.rows);
        };
        launch(s, [&] {
            multiply(views.gate, h, n_used, middle);
            multiply(views.up, h, n_used, s.work.output);
            exact::activate(s.stream, middle, s.work.output, n * n_used * weights.gate.rows,
                            weights.activation);
            multiply(views.down, middle, 1, out);
        });
    }

    void add_slots(Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                   int64_t hidden, float* y) const override {
        Stream& s = to_write(scratch);
        launch(s, [&] {
            exact::add_slots(s.stream, out, gates, n, n_used, hidden, y, {nullptr, nullptr, true});
        });
    }

    bool makes_top_k() const noexcept override { return true; }
    void top_k(Scratch& scratch, const float* logits, int64_t n, int64_t n_vocab,
               const backend::TopKTask& task) const override {
        Stream& s = own(scratch);
        launch(s, [&] { fast::top_k(s.stream, logits, n, n_vocab, s.work.top_k, task); });
    }

  protected:
    // Returns the index of a layer's rows, and where the choice goes.
    static exact::Index index_of(const Stream& s, const AttendArgs& args) {
        const backend::KvLayout& layout = *args.rows[0].sequence->layout;
        return {.shape = args.index->shape,
                .format = layout.index_format,
                .at = layout.index_offset(args.layer),
                .token_bytes = layout.index_token_bytes(),
                .n_blocks = index_blocks(s.limits),
                .scores = s.work.block_scores,
                .chosen = s.work.chosen_blocks};
    }
    static exact::IndexRows index_rows(const Stream& s, const AttendArgs& args) {
        const backend::IndexArgs& given = *args.index;
        return {.q = given.q,
                .k = given.k,
                .q_norm = given.q_norm.data,
                .k_norm = given.k_norm.data,
                .norm_eps = args.norm_eps,
                .frequency = s.work.frequency,
                .n_frequency = std::ssize(args.rope_frequency)};
    }

    // Returns the cache for attention. Brings the batch and the frequencies to the device, if it does not have them.
    exact::Cache put_cache(Stream& s, const AttendArgs& args) const {
        const backend::KvLayout& layout = *args.rows[0].sequence->layout;
        put_batch(s, {}, args.rows, args.n_head, args.n_head_kv);
        if (!std::ranges::equal(s.batch.frequency, args.rope_frequency)) {
            launch_all(s);
            s.batch.frequency.assign(args.rope_frequency.begin(), args.rope_frequency.end());
            put(s, s.work.frequency, std::span<const float>(s.batch.frequency));
        }
        return {
            .pages = s.batch.tables.pages,
            .first_page = s.batch.tables.first_page,
            .position = s.batch.tables.position,
            .k_format = layout.k_format,
            .v_format = layout.v_format,
            .k_at = layout.k_offset(args.layer, 0),
            .v_at = layout.v_offset(args.layer, 0),
            .k_head_bytes = backend::k_kv_page_tokens * layout.k_token_bytes(),
            .v_head_bytes = backend::k_kv_page_tokens * layout.v_token_bytes(),
            .k_token_bytes = layout.k_token_bytes(),
            .v_token_bytes = layout.v_token_bytes(),
            .n_head = args.n_head,
            .n_head_kv = args.n_head_kv,
            .head_dim = args.head_dim,
        };
    }

    // Returns whether the layer has a table of its experts. Without a table the kernels cannot find them: notes an
    // error, after all operations so far have been launched.
    bool has_table(Scratch& scratch, const ExpertWeights& weights) const noexcept {
        if (weights.places == nullptr) note(own(scratch), "the experts of a layer have no table");
        return weights.places != nullptr;
    }
};

}  // namespace minim::cuda
