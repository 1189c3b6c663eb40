// SPDX-License-Identifier: Apache-2.0
// The operations in plain float arithmetic, one item for each thread: for exact results, and as the reference of the fast
// kernels. Nothing here is fast. The items (items.h) are host and device functions;
// operations.inl launches them, as CUDA kernels in operations.cu and as loops in the tests of a machine without a GPU.
//
// All pointers lie in the device's memory; shapes are those of backend/backend.h.
#pragma once

#include <cstdint>

#include "backend/experts.h"
#include "backend/sparse_attention.h"
#include "base/platform.h"
#include "format/format.h"

namespace minim::cuda::exact {

// A cudaStream_t; the host's loops need none.
using Stream = void*;

struct Weight {
    const uint8_t* data;
    Format format;
    int64_t rows;
    int64_t cols;
    int64_t row_bytes;
    float scale;
};

// The most experts of a layer. In the kernels that choose experts and group slots, a thread handles one expert or keeps
// the scores of some.
inline constexpr int64_t k_max_experts = 512;

// Rows first_row .. first_row + rows - 1 of one of the three matrices, for every expert.
struct Experts {
    Format format;
    int64_t rows;
    int64_t cols;
    int64_t row_bytes;
    int64_t first_row;
    const backend::ExpertPlace* places;  // [n_expert], in the device's memory
    // Which matrix: the offsets of its address and its scale in an entry, in bytes.
    uint32_t data_at;
    uint32_t scale_at;
    backend::Activation activation = {};  // of kernels that multiply gate and up
};

struct ExpertRows {
    const uint8_t* data;  // null: the expert is not here
    float scale;
};
// Reads the whole entry at once: it is in one cache line.
MINIM_HOST_DEVICE ExpertRows rows_of(const Experts& experts, int32_t expert) {
    const auto* place = reinterpret_cast<const std::byte*>(experts.places + expert);
    const std::byte* gate = experts.places[expert].gate;
    const std::byte* data = *reinterpret_cast<const std::byte* const*>(place + experts.data_at);
    const float scale = *reinterpret_cast<const float*>(place + experts.scale_at);
    if (gate == nullptr) return {nullptr, 0.0F};
    return {reinterpret_cast<const uint8_t*>(data) + experts.first_row * experts.row_bytes, scale};
}

// The KV cache of a layer, and the position of each row of the batch.
struct Cache {
    const uint64_t* pages;      // addresses, one sequence after the other
    const int64_t* first_page;  // [n]: where the pages of a row's sequence begin in `pages`
    const int32_t* position;    // [n]
    Format k_format, v_format;
    int64_t k_at, v_at;                    // offset of head 0 in a page
    int64_t k_head_bytes, v_head_bytes;    // from head to head
    int64_t k_token_bytes, v_token_bytes;  // from slot to slot
    int64_t n_head, n_head_kv, head_dim;
};

// The choice of blocks of sparse rows (backend/sparse_attention.h).
struct Index {
    backend::SparseAttention shape;
    Format format;        // of the stored keys
    int64_t at;           // offset of slot 0 in a page
    int64_t token_bytes;  // from slot to slot
    int64_t n_blocks;     // no less than the blocks that any row of the batch sees
    float* scores;        // [n, shape.n_head, n_blocks]
    int32_t*
        chosen;  // [n, shape.n_head, shape.top], in ascending order; not set for rows that attend to all blocks
};

void embed(Stream stream, const Weight& table, const int32_t* ids, int64_t n, float* x);
void norm(Stream stream, const float* x, int64_t n, const float* weight, int64_t size, float eps, float* h);
// y_stride: floats from row to row of y
void linear(Stream stream, const Weight& weight, const float* h, int64_t n, float* y, int64_t y_stride,
            bool add);
void rotate(Stream stream, float* heads, int64_t n, int64_t n_head, int64_t head_dim, const int32_t* position,
            const float* frequency, int64_t n_frequency, bool hadamard);
void store(Stream stream, const Cache& cache, const float* k, const float* v, int64_t n);
void attend(Stream stream, const Cache& cache, const float* q, int64_t n, float* o);
// Index queries [n, index heads * dim] and keys [n, dim], before normalisation and rotation, which happen in place.
struct IndexRows {
    float* q = nullptr;
    float* k = nullptr;
    const float* q_norm = nullptr;  // [dim]
    const float* k_norm = nullptr;
    float norm_eps = 0.0F;
    const float* frequency = nullptr;
    int64_t n_frequency = 0;
};
// Normalises and rotates n rows of an index, and stores their keys.
void prepare_index(Stream stream, const Cache& cache, const Index& index, const IndexRows& rows, int64_t n);
// Sets `scores`. q [n, n_head * dim], prepared
void score_blocks(Stream stream, const Cache& cache, const Index& index, const float* q, int64_t n);
// Sets `chosen` from the scores.
void choose_blocks(Stream stream, const Cache& cache, const Index& index, int64_t n);
void attend_chosen(Stream stream, const Cache& cache, const Index& index, const float* q, int64_t n,
                   float* o);
// score: the router's outputs, overwritten. bias may be null.
void route(Stream stream, float* score, int64_t n, int64_t n_expert, const float* bias, int64_t n_used,
           int32_t* ids, float* gates);
void scale(Stream stream, float* x, int64_t count, float factor);
// y [n_slots, y_stride] = W x of each slot's expert, of slots whose expert is here; x has a row for `slots_a_row` slots
void slots(Stream stream, const Experts& experts, const float* x, int64_t slots_a_row, const int32_t* ids,
           int64_t n_slots, float* y, int64_t y_stride);
// gate = silu(gate) * up, or the clamped activation (backend/experts.h)
void activate(Stream stream, float* gate, const float* up, int64_t count,
              const backend::Activation& activation);
// squares [n, 2] = the sums of squares of the rows of q [n, q_size] and of k [n, k_size]
void head_squares(Stream stream, const float* q, int64_t q_size, const float* k, int64_t k_size, int64_t n,
                  float* squares);
// h = x / sqrt(squares[2 i] / n_squares + eps) * weight, for row i of n
void norm_divided(Stream stream, const float* x, int64_t n, const float* squares, int64_t n_squares,
                  const float* weight, int64_t size, float eps, float* h);
// Which slots are added up, and to what.
struct SlotSum {
    const int32_t* ids;                  // [n, n_used], read with `places`
    const backend::ExpertPlace* places;  // slots whose expert is not here are left out; null: all are added
    bool add;                            // to y, else to 0
};
// y [n, hidden] = or += sum over slots, in their order, of gate * output
void add_slots(Stream stream, const float* output, const float* gates, int64_t n, int64_t n_used,
               int64_t hidden, float* y, const SlotSum& sum);

}  // namespace minim::cuda::exact
