// SPDX-License-Identifier: Apache-2.0
// One item of each operation of operations.h. The comment of a struct names what one item computes.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/choose_blocks.h"
#include "backend/choose_experts.h"
#include "backend/hadamard.h"
#include "backend/kv_view.h"
#include "base/half.h"
#include "base/platform.h"
#include "cuda/exact/kv_rows.h"
#include "cuda/exact/operations.h"
#include "cuda/rounded_product.h"
#include "format/blocks.h"

namespace minim::cuda::exact {

using backend::k_kv_page_tokens;

MINIM_HOST_DEVICE float sigmoid(float z) {
    return 1.0F / (1.0F + std::exp(-z));
}

// row . x
template <typename Block>
MINIM_HOST_DEVICE float dot(const uint8_t* row, int64_t cols, const float* x) {
    const float row_scale = load_row_scale<Block>(row);
    const uint8_t* block = row + Block::row_header_bytes;
    float sum = 0.0F;
    float values[Block::block_elems];
    for (int64_t done = 0; done < cols; done += Block::block_elems) {
        Block::decode_block(block, row_scale, values);
        float part = 0.0F;
        for (int i = 0; i < Block::block_elems; ++i) part += values[i] * x[done + i];
        sum += part;
        block += Block::block_bytes;
    }
    return sum;
}

// A block of a row of x.
template <typename Block>
struct EmbedItem {
    Weight table;
    const int32_t* ids;
    float* x;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const int64_t n_blocks = table.cols / Block::block_elems;
        const int64_t row = item / n_blocks;
        const int64_t block = item % n_blocks;
        const uint8_t* data = table.data + ids[row] * table.row_bytes;
        float* out = x + row * table.cols + block * Block::block_elems;
        Block::decode_block(data + Block::row_header_bytes + block * Block::block_bytes,
                            load_row_scale<Block>(data), out);
        for (int i = 0; i < Block::block_elems; ++i) out[i] *= table.scale;
    }
};

MINIM_HOST_DEVICE double sum_squares(const float* x, int64_t size) {
    double sum = 0.0;
    for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return sum;
}

// h = x / sqrt(mean + eps) * weight
MINIM_HOST_DEVICE void normalise(const float* x, double mean, const float* weight, int64_t size, float eps,
                                 float* h) {
    const auto factor = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
    for (int64_t i = 0; i < size; ++i) h[i] = x[i] * factor * weight[i];
}

// A row.
struct NormItem {
    const float* x;
    const float* weight;
    int64_t size;
    float eps;
    float* h;
    MINIM_HOST_DEVICE void operator()(int64_t row) const {
        const double mean = sum_squares(x + row * size, size) / static_cast<double>(size);
        normalise(x + row * size, mean, weight, size, eps, h + row * size);
    }
};

// The sum of squares of a row of q (even items) or of k.
struct SquaresItem {
    const float* q;
    int64_t q_size;
    const float* k;
    int64_t k_size;
    float* squares;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const int64_t row = item / 2;
        squares[item] = static_cast<float>(item % 2 == 0 ? sum_squares(q + row * q_size, q_size)
                                                         : sum_squares(k + row * k_size, k_size));
    }
};

// A row, whose mean square is that of the heads of all ranks.
struct NormDividedItem {
    const float* x;
    const float* squares;  // of row i: squares[2 i]
    int64_t n_squares;
    const float* weight;
    int64_t size;
    float eps;
    float* h;
    MINIM_HOST_DEVICE void operator()(int64_t row) const {
        const double mean = static_cast<double>(squares[2 * row]) / static_cast<double>(n_squares);
        normalise(x + row * size, mean, weight, size, eps, h + row * size);
    }
};

// An element of y.
template <typename Block>
struct LinearItem {
    Weight weight;
    const float* h;
    float* y;
    int64_t y_stride;
    bool add;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const int64_t r = item % weight.rows;
        const float* x = h + item / weight.rows * weight.cols;
        const float value = dot<Block>(weight.data + r * weight.row_bytes, weight.cols, x) * weight.scale;
        float& out = y[item / weight.rows * y_stride + r];
        out = add ? out + value : value;
    }
};

// A head of a row: pairs (i, i + m) turned by the position, m frequencies; then, if wanted, the Hadamard rotation.
struct RotateItem {
    float* heads;
    int64_t n_head;
    int64_t head_dim;
    const int32_t* position;
    const float* frequency;
    int64_t n_frequency;
    bool hadamard;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        float* head = heads + item * head_dim;
        const auto at = static_cast<double>(position[item / n_head]);
        for (int64_t i = 0; i < n_frequency; ++i) {
            const double angle = at * static_cast<double>(frequency[i]);
            const auto cosine = static_cast<float>(std::cos(angle));
            const auto sine = static_cast<float>(std::sin(angle));
            const float a = head[i];
            const float b = head[i + n_frequency];
            head[i] = a * cosine - b * sine;
            head[i + n_frequency] = b * cosine + a * sine;
        }
        if (hadamard) backend::hadamard(head, head_dim);
    }
};

MINIM_HOST_DEVICE uint8_t* page_of(const Cache& cache, int64_t row, int64_t position) {
    return reinterpret_cast<uint8_t*>(cache.pages[cache.first_page[row] + position / k_kv_page_tokens]);
}

MINIM_HOST_DEVICE uint8_t* key_at(const Cache& cache, int64_t row, int64_t head, int64_t position) {
    return page_of(cache, row, position) + cache.k_at + head * cache.k_head_bytes +
           position % k_kv_page_tokens * cache.k_token_bytes;
}

MINIM_HOST_DEVICE uint8_t* value_at(const Cache& cache, int64_t row, int64_t head, int64_t position) {
    return page_of(cache, row, position) + cache.v_at + head * cache.v_head_bytes +
           position % k_kv_page_tokens * cache.v_token_bytes;
}

// A KV head of a row.
struct StoreItem {
    Cache cache;
    const float* k;
    const float* v;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const int64_t row = item / cache.n_head_kv;
        const int64_t head = item % cache.n_head_kv;
        const int64_t at = cache.position[row];
        encode_kv_row(cache.k_format, k + item * cache.head_dim, cache.head_dim,
                      key_at(cache, row, head, at));
        encode_kv_row(cache.v_format, v + item * cache.head_dim, cache.head_dim,
                      value_at(cache, row, head, at));
    }
};

// The attention of a head of a row to the positions up to the row's own. The sums are relative to the largest score so
// far.
struct AttendItem {
    Cache cache;
    const float* q;
    float* o;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        attend(item, cache.position[item / cache.n_head] + 1, [](int64_t p) { return p; });
    }
    // Attends to positions place(0) .. place(n_attended - 1).
    template <typename Place>
    MINIM_HOST_DEVICE void attend(int64_t item, int64_t n_attended, const Place& place) const {
        const int64_t row = item / cache.n_head;
        const int64_t head = item % cache.n_head / (cache.n_head / cache.n_head_kv);
        const float* query = q + item * cache.head_dim;
        float* out = o + item * cache.head_dim;
        const float scale = 1.0F / std::sqrt(static_cast<float>(cache.head_dim));
        for (int64_t d = 0; d < cache.head_dim; ++d) out[d] = 0.0F;
        float largest = -INFINITY;
        float sum = 0.0F;
        for (int64_t i = 0; i < n_attended; ++i) {
            const int64_t p = place(i);
            const uint8_t* key = key_at(cache, row, head, p);
            float score = 0.0F;
            for (int64_t d = 0; d < cache.head_dim; ++d)
                score += kv_element(cache.k_format, key, d) * query[d];
            score *= scale;
            if (score > largest) {
                const float shrink = std::exp(largest - score);
                sum *= shrink;
                for (int64_t d = 0; d < cache.head_dim; ++d) out[d] *= shrink;
                largest = score;
            }
            const float weight = std::exp(score - largest);
            sum += weight;
            const uint8_t* value = value_at(cache, row, head, p);
            for (int64_t d = 0; d < cache.head_dim; ++d)
                out[d] += weight * kv_element(cache.v_format, value, d);
        }
        for (int64_t d = 0; d < cache.head_dim; ++d) out[d] /= sum;
    }
};

MINIM_HOST_DEVICE uint8_t* index_key_at(const Cache& cache, const Index& index, int64_t row,
                                        int64_t position) {
    return page_of(cache, row, position) + index.at + position % k_kv_page_tokens * index.token_bytes;
}

// Returns the number of blocks that a row sees.
MINIM_HOST_DEVICE int64_t seen_blocks(const Cache& cache, const Index& index, int64_t row) {
    return cache.position[row] / index.shape.block + 1;
}

// A row.
struct StoreIndexItem {
    Cache cache;
    Index index;
    const float* k;
    MINIM_HOST_DEVICE void operator()(int64_t row) const {
        encode_kv_row(index.format, k + row * index.shape.dim, index.shape.dim,
                      index_key_at(cache, index, row, cache.position[row]));
    }
};

// The score of a block for an index head of a row that does not attend to all of its blocks.
struct ScoreItem {
    Cache cache;
    Index index;
    const float* q;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const int64_t block = item % index.n_blocks;
        const int64_t head = item / index.n_blocks;  // of all rows
        const int64_t row = head / index.shape.n_head;
        const int64_t n_seen = seen_blocks(cache, index, row);
        if (n_seen <= index.shape.top || block >= n_seen) return;
        const float* query = q + head * index.shape.dim;
        const int64_t first = block * index.shape.block;
        const int64_t last = first + index.shape.block - 1;
        float largest = -INFINITY;
        for (int64_t p = first; p <= last && p <= cache.position[row]; ++p) {
            const uint8_t* key = index_key_at(cache, index, row, p);
            float product = 0.0F;
            for (int64_t d = 0; d < index.shape.dim; ++d)
                product += kv_element(index.format, key, d) * query[d];
            if (product > largest) largest = product;  // false for NaN
        }
        index.scores[item] = largest;
    }
};

// An index head of a row.
struct ChooseItem {
    Cache cache;
    Index index;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const int64_t n_seen = seen_blocks(cache, index, item / index.shape.n_head);
        if (n_seen <= index.shape.top) return;
        backend::choose_blocks(index.shape, index.scores + item * index.n_blocks, n_seen,
                               index.chosen + item * index.shape.top);
    }
};

// The attention of a head of a row to the chosen blocks.
struct AttendChosenItem {
    AttendItem dense;
    Index index;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const Cache& cache = dense.cache;
        const int64_t row = item / cache.n_head;
        const int64_t block = index.shape.block;
        if (seen_blocks(cache, index, row) <= index.shape.top) return dense(item);
        const int64_t head = item % cache.n_head / (cache.n_head / cache.n_head_kv);
        const int32_t* chosen = index.chosen + (row * index.shape.n_head + head) * index.shape.top;
        // The last one is the row's own, which ends at its position.
        const int64_t n_attended = (index.shape.top - 1) * block + cache.position[row] % block + 1;
        dense.attend(item, n_attended, [&](int64_t i) { return chosen[i / block] * block + i % block; });
    }
};

// A row.
struct RouteItem {
    float* score;
    int64_t n_expert;
    const float* bias;
    int64_t n_used;
    int32_t* ids;
    float* gates;
    MINIM_HOST_DEVICE void operator()(int64_t row) const {
        float* s = score + row * n_expert;
        for (int64_t e = 0; e < n_expert; ++e) s[e] = sigmoid(s[e]);
        backend::choose_experts(s, n_expert, bias, n_used, ids + row * n_used, gates + row * n_used);
    }
};

struct ScaleItem {
    float* x;
    float factor;
    MINIM_HOST_DEVICE void operator()(int64_t i) const { x[i] *= factor; }
};

// An element of a slot's product, if the slot's expert is here.
template <typename Block>
struct SlotItem {
    Experts experts;
    const float* x;
    int64_t slots_a_row;  // slots that share a row of x: n_used for the hidden state, 1 for rows of their own
    const int32_t* ids;
    float* y;
    int64_t y_stride;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const int64_t slot = item / experts.rows;
        const int64_t r = item % experts.rows;
        const ExpertRows expert = rows_of(experts, ids[slot]);
        if (expert.data == nullptr) return;
        const float* input = x + slot / slots_a_row * experts.cols;
        y[slot * y_stride + r] =
            dot<Block>(expert.data + r * experts.row_bytes, experts.cols, input) * expert.scale;
    }
};

struct ActivateItem {
    float* gate;
    const float* up;
    MINIM_HOST_DEVICE void operator()(int64_t i) const { gate[i] = gate[i] * sigmoid(gate[i]) * up[i]; }
};

struct ClampedActivateItem {
    float* gate;
    const float* up;
    backend::Activation activation;
    MINIM_HOST_DEVICE void operator()(int64_t i) const {
        const float limit = activation.limit;
        const float g = gate[i] > limit ? limit : gate[i];
        const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        gate[i] = g * sigmoid(activation.alpha * g) * (u + 1.0F);
    }
};

// Computes an element of y. Kernels that add the products themselves use it too, so that all round alike.
struct AddSlotsItem {
    const float* output;
    const float* gates;
    int64_t n_used;
    int64_t hidden;
    float* y;
    SlotSum which;
    MINIM_HOST_DEVICE void operator()(int64_t item) const {
        const int64_t row = item / hidden;
        float sum = which.add ? y[item] : 0.0F;
        for (int64_t slot = row * n_used; slot < (row + 1) * n_used; ++slot) {
            if (which.places != nullptr && which.places[which.ids[slot]].gate == nullptr) continue;
            sum += rounded_product(gates[slot], output[slot * hidden + item % hidden]);
        }
        y[item] = sum;
    }
};

}  // namespace minim::cuda::exact
