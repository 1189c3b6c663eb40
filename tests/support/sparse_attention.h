// SPDX-License-Identifier: Apache-2.0
// Attention with chosen blocks on any device, and the same as a plain loop over what the device has stored.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "support/rank_operations.h"

namespace minim::test {

// The second of two layers has index keys.
inline constexpr int64_t k_sparse_layers = 2;
inline constexpr int64_t k_sparse_layer = 1;

struct SparseModel {
    int64_t n_head = 4;
    int64_t head_dim = 32;
    int64_t rotary = 16;
    backend::SparseAttention sparse = {};  // sparse.n_head is the number of KV heads too
    Format k_format = Format::f32;
    Format v_format = Format::f32;

    int64_t n_head_kv() const { return sparse.n_head; }
    backend::StepLimits limits(int64_t n_rows, int64_t n_context) const {
        return {.n_rows = n_rows,
                .n_context = n_context,
                .hidden = n_head * head_dim,
                .n_head = n_head,
                .n_head_kv = n_head_kv(),
                .head_dim = head_dim,
                .n_expert = 1,
                .n_expert_used = 1,
                .expert_ff = 32,
                .n_vocab = 32,
                .index = sparse,
                .first_sparse_layer = k_sparse_layer};
    }
    backend::KvLayout layout() const {
        return backend::kv_layout_of(limits(1, 1), k_sparse_layers, k_format, v_format);
    }
};

// The rows of a sequence before normalisation.
struct SparseRows {
    int64_t n = 0;
    std::vector<float> q, k, v, index_q, index_k;
    std::vector<float> q_norm, k_norm, index_q_norm, index_k_norm, frequency;

    SparseRows(const SparseModel& model, int64_t count, uint32_t seed) : n(count) {
        std::mt19937 engine(seed);
        std::normal_distribution<float> normal;
        const auto fill = [&](std::vector<float>& to, int64_t size) {
            to.resize(size);
            for (float& x : to) x = normal(engine);
        };
        fill(q, n * model.n_head * model.head_dim);
        fill(k, n * model.n_head_kv() * model.head_dim);
        fill(v, n * model.n_head_kv() * model.head_dim);
        fill(index_q, n * model.sparse.n_head * model.sparse.dim);
        fill(index_k, n * model.sparse.dim);
        fill(q_norm, model.head_dim);
        fill(k_norm, model.head_dim);
        fill(index_q_norm, model.sparse.dim);
        fill(index_k_norm, model.sparse.dim);
        for (int64_t i = 0; i < model.rotary / 2; ++i)
            frequency.push_back(static_cast<float>(
                std::pow(5e6, -2.0 * static_cast<double>(i) / static_cast<double>(model.rotary))));
    }
};

// A sequence in the KV cache of a device.
class SparseSequence {
  public:
    SparseSequence(const backend::Backend& device, const SparseModel& model, const SparseRows& rows,
                   int64_t most_rows)
        : model_(model), rows_(rows), layout_(model.layout()), on_(device, model.limits(most_rows, rows.n)) {
        const std::vector<std::byte> unused(layout_.page_bytes(), std::byte{0xFF});
        for (int64_t p = 0; p < rows.n; p += backend::k_kv_page_tokens) pages_.push_back(on_.put(unused));
        for (const auto* norm : {&rows.q_norm, &rows.k_norm, &rows.index_q_norm, &rows.index_k_norm})
            norms_.push_back({on_.put(*norm), std::ssize(*norm)});
    }
    SparseSequence(const SparseSequence&) = delete;

    // Attends rows first .. first + n - 1 in one step and returns their outputs. `all`: to all positions, without an index.
    std::vector<float> attend(int64_t first, int64_t n, bool all = false) {
        const backend::KvSequence sequence = {&layout_, pages_};
        std::vector<backend::KvRow> places;
        for (int64_t i = first; i < first + n; ++i) places.push_back({&sequence, i});
        const auto put = [&](const std::vector<float>& of_all) {
            const int64_t size = std::ssize(of_all) / rows_.n;
            return on_.put(std::vector(of_all.begin() + first * size, of_all.begin() + (first + n) * size));
        };
        backend::IndexArgs index;
        index.shape = model_.sparse;
        index.q = put(rows_.index_q);
        index.k = put(rows_.index_k);
        index.q_norm = norms_[2];
        index.k_norm = norms_[3];
        backend::AttendArgs args;
        args.n = n;
        args.q = put(rows_.q);
        args.k = put(rows_.k);
        args.v = put(rows_.v);
        args.o = on_.put(std::vector<float>(n * model_.n_head * model_.head_dim));
        args.rows = places;
        args.layer = k_sparse_layer;
        args.n_head = model_.n_head;
        args.n_head_kv = model_.n_head_kv();
        args.head_dim = model_.head_dim;
        args.q_norm = norms_[0];
        args.k_norm = norms_[1];
        args.norm_eps = 1e-6F;
        args.rope_frequency = rows_.frequency;
        args.index = all ? nullptr : &index;
        on_.device().attend(on_.scratch(), args);
        return on_.get(args.o, n * model_.n_head * model_.head_dim);
    }
    // Attends all rows, `chunk` in a step.
    std::vector<float> attend_all(int64_t chunk, bool all = false) {
        std::vector<float> o;
        for (int64_t i = 0; i < rows_.n; i += chunk) {
            const std::vector<float> part = attend(i, std::min(chunk, rows_.n - i), all);
            o.insert(o.end(), part.begin(), part.end());
        }
        return o;
    }
    // Returns the bytes of all pages.
    std::vector<std::vector<std::byte>> contents() {
        std::vector<std::vector<std::byte>> all;
        for (const std::byte* page : pages_) all.push_back(on_.get(page, layout_.page_bytes()));
        return all;
    }

  private:
    const SparseModel& model_;
    const SparseRows& rows_;
    const backend::KvLayout layout_;
    RankDevice on_;
    std::vector<std::byte*> pages_;
    std::vector<backend::Vector> norms_;
};

// The choice of a row's blocks for an index head.
struct PlainChoice {
    std::vector<int64_t> blocks;  // in ascending order
    // The lowest score of a block that was chosen for it, less the highest score of those left out; infinite if all are chosen.
    double margin = std::numeric_limits<double>::infinity();
};

inline PlainChoice choose_plainly(const backend::SparseAttention& shape, const std::vector<double>& scores) {
    const auto n = std::ssize(scores);
    std::vector<bool> is_chosen(n);
    int64_t count = 0;
    const auto choose = [&](int64_t b) {
        if (b < 0 || b >= n || count == shape.top || is_chosen[b]) return;
        is_chosen[b] = true;
        ++count;
    };
    for (int64_t l = 0; l < shape.local; ++l) choose(n - 1 - l);
    for (int64_t b = 0; b < shape.init; ++b) choose(b);
    PlainChoice choice;
    while (count < std::min(n, shape.top)) {
        int64_t best = -1;
        for (int64_t b = 0; b < n; ++b)
            if (!is_chosen[b] && (best < 0 || scores[b] > scores[best])) best = b;
        choose(best);
        double next = -std::numeric_limits<double>::infinity();
        for (int64_t b = 0; b < n; ++b)
            if (!is_chosen[b]) next = std::max(next, scores[b]);
        choice.margin = scores[best] - next;
    }
    for (int64_t b = 0; b < n; ++b)
        if (is_chosen[b]) choice.blocks.push_back(b);
    return choice;
}

struct PlainRow {
    std::vector<double> o;  // [n_head * head_dim]
    double margin;          // the smallest of all index heads
};

// Returns the output of a row by the formulas, in double, over the stored KV cache.
inline PlainRow attend_plainly(const SparseModel& model, const SparseRows& rows,
                               const std::vector<std::vector<std::byte>>& pages, int64_t position) {
    const backend::KvLayout layout = model.layout();
    const backend::SparseAttention& shape = model.sparse;
    const auto stored = [&](Format format, int64_t offset, int64_t token_bytes, int64_t cols, int64_t p) {
        std::vector<float> row(cols);
        traits(format).decode_row(pages[p / backend::k_kv_page_tokens].data() + offset +
                                      p % backend::k_kv_page_tokens * token_bytes,
                                  cols, row.data());
        return row;
    };
    const auto prepared = [&](const std::vector<float>& all, int64_t head, const std::vector<float>& norm) {
        const auto size = std::ssize(norm);
        std::vector<double> x(all.begin() + head * size, all.begin() + (head + 1) * size);
        const double mean =
            std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(size);
        for (int64_t i = 0; i < size; ++i) x[i] *= static_cast<double>(norm[i]) / std::sqrt(mean + 1e-6);
        const auto m = std::ssize(rows.frequency);
        for (int64_t i = 0; i < m; ++i) {
            const double angle = static_cast<double>(position) * static_cast<double>(rows.frequency[i]);
            const double a = x[i];
            const double b = x[i + m];
            x[i] = a * std::cos(angle) - b * std::sin(angle);
            x[i + m] = b * std::cos(angle) + a * std::sin(angle);
        }
        return x;
    };
    const auto dot = [](const std::vector<double>& a, const std::vector<float>& b) {
        return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    PlainRow row = {{}, std::numeric_limits<double>::infinity()};
    const int64_t group = model.n_head / model.n_head_kv();
    for (int64_t g = 0; g < shape.n_head; ++g) {
        const std::vector<double> index_query =
            prepared(rows.index_q, position * shape.n_head + g, rows.index_q_norm);
        std::vector<double> scores(position / shape.block + 1, -std::numeric_limits<double>::infinity());
        for (int64_t p = 0; p <= position; ++p) {
            const double score =
                dot(index_query, stored(layout.index_format, layout.index_offset(k_sparse_layer),
                                        layout.index_token_bytes(), shape.dim, p));
            double& of_block = scores[p / shape.block];
            if (score > of_block) of_block = score;
        }
        const PlainChoice choice = choose_plainly(shape, scores);
        row.margin = std::min(row.margin, choice.margin);
        for (int64_t head = g * group; head < (g + 1) * group; ++head) {
            std::vector<double> query = prepared(rows.q, position * model.n_head + head, rows.q_norm);
            if (layout.rotates_keys()) {
                // Component j of a rotated head is the sum of all components i, negated if i and j share an odd number of bits.
                std::vector<double> rotated(query.size());
                for (uint64_t j = 0; j < query.size(); ++j)
                    for (uint64_t i = 0; i < query.size(); ++i)
                        rotated[j] += (std::popcount(i & j) % 2 == 0 ? query[i] : -query[i]) /
                                      std::sqrt(static_cast<double>(query.size()));
                query = rotated;
            }
            std::vector<double> o(model.head_dim);
            double sum = 0.0;
            for (const int64_t block : choice.blocks) {
                for (int64_t p = block * shape.block; p < std::min((block + 1) * shape.block, position + 1);
                     ++p) {
                    const double score =
                        dot(query, stored(layout.k_format, layout.k_offset(k_sparse_layer, g),
                                          layout.k_token_bytes(), model.head_dim, p));
                    const double weight = std::exp(score / std::sqrt(static_cast<double>(model.head_dim)));
                    const std::vector<float> value =
                        stored(layout.v_format, layout.v_offset(k_sparse_layer, g), layout.v_token_bytes(),
                               model.head_dim, p);
                    sum += weight;
                    for (int64_t c = 0; c < model.head_dim; ++c)
                        o[c] += weight * static_cast<double>(value[c]);
                }
            }
            for (const double x : o) row.o.push_back(x / sum);
        }
    }
    return row;
}

}  // namespace minim::test
