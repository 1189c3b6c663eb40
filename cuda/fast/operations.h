// SPDX-License-Identifier: Apache-2.0
// The operations on packed weights (panel/panel.h), quantised inputs and F16 attention: the default arithmetic of a
// GPU. The exact kernels (../exact/) compute what these do not support: rows beyond the last panel, and formats
// without panels.
//
// All pointers lie in the device's memory; shapes are those of backend/backend.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "cuda/exact/operations.h"
#include "cuda/fast/device.h"
#include "cuda/fast/half_block.h"
#include "cuda/fast/piece.h"
#include "cuda/fast/q8_block.h"
#include "format/format.h"

namespace minim::cuda::fast {

using exact::Experts;
using exact::Weight;

inline constexpr int k_max_together = 4;  // products of one launch
inline constexpr int k_max_used = 32;     // experts of a row that route() chooses

// y = W x, or y += W x, for weights of one format and one number of columns, in one launch.
struct Products {
    Format format;
    int64_t cols;
    int64_t row_bytes;
    int32_t count;
    const uint8_t* weight[k_max_together];
    int64_t rows[k_max_together];
    int64_t y_stride[k_max_together];
    float scale[k_max_together];
    float* y[k_max_together];
    bool add[k_max_together];
    bool prefetches;  // the weights, while earlier kernels of the stream still run
    bool by_tables;   // products of one row, of formats that table_dots.h has
};
// Returns the bytes of the weights of all products.
MINIM_HOST_DEVICE constexpr int64_t weight_bytes(const Products& products) {
    int64_t n_rows = 0;
    for (int i = 0; i < products.count; ++i) n_rows += products.rows[i];
    return n_rows * products.row_bytes;
}

// Returns whether there are kernels for panels of the format.
bool has_panels(Format format);

// Returns the number of blocks in a row of `cols` columns.
MINIM_HOST_DEVICE constexpr int64_t q8_blocks(int64_t cols) {
    return cols / 32;
}

// The most inputs of a tile of a product for many rows, but for those of the tile kernel.
inline constexpr int k_tile_inputs = 64;
// Slots of one expert, computed together.
struct ExpertTile {
    int32_t expert;
    int32_t first;  // in ExpertTiles::slot
    int32_t count;
};
struct ExpertTiles {
    int32_t* slot;                 // [n_slots], by expert; as many as have a tile
    ExpertTile* tile;              // [most]
    int32_t* count;                // number of tiles
    int64_t most;                  // number of tiles that fit
    int32_t size = k_tile_inputs;  // the most slots of a tile
};
// Returns the number of tiles of `size` slots that n_slots slots can need.
int64_t most_expert_tiles(int64_t n_slots, int64_t n_expert, int32_t size = k_tile_inputs);
// Groups the slots whose expert is here.
void group_slots(Stream stream, const int32_t* ids, int64_t n_slots, const backend::ExpertPlace* places,
                 int64_t n_expert, const ExpertTiles& tiles);

// The order of bits in some words of a block in a panel.
enum class WordOrder {
    plain,         // as in the file
    nibbles,       // of codes: the low nibbles of the bytes, then the high ones
    sign_nibbles,  // sign 8i + j at bit 4j + i: a shift puts those of a point of eight columns into eight nibbles
    seven_sign_nibbles,  // the same of seven signs a point, 7i + j at bit 4j + i; the four bits above them stay
    sign_bytes,          // sign 4k + j at bit 8j + k: a shift puts those of four columns into four bytes
    units_of_5,          // the codes of each unit of 32 columns in words of their own: see source_of()
    units_of_6,
};
// Returns which bit of the file's word is at bit `to`.
MINIM_HOST_DEVICE constexpr uint32_t source_bit(WordOrder order, uint32_t to) {
    switch (order) {
        case WordOrder::nibbles:
            return 8 * (to / 4 % 4) + 4 * (to / 16) + to % 4;
        case WordOrder::sign_nibbles:
            return 8 * (to % 4) + to / 4;
        case WordOrder::seven_sign_nibbles:
            return to < 28 ? 7 * (to % 4) + to / 4 : to;
        case WordOrder::sign_bytes:
            return 4 * (to % 8) + to / 8;
        default:
            return to;
    }
}

// A bit of the words of a block that have an order of their own.
struct BitPlace {
    uint32_t word;
    uint32_t bit;
};
// Returns the bit of the file's words that is at bit `to` of word `word` in a panel. Most orders stay within a word. Those of
// units have, for unit u, four words of nibbles, 4u + m, and then, for all units, a word for each further bit of the codes:
//
//   nibble j of word 4u + m           the lower four bits of column 4 (m + 4 (j / 4)) + j % 4
//   bit 4j + m of the word of a bit   that bit of the same column
//
// So the lower half of word m has columns 4m to 4m + 3, the upper half those of input word m + 4, and one shift puts a further bit
// of all eight codes of a word into the top bits of eight nibbles.
MINIM_HOST_DEVICE constexpr BitPlace source_of(WordOrder order, uint32_t word, uint32_t to) {
    if (order != WordOrder::units_of_5 && order != WordOrder::units_of_6)
        return {word, source_bit(order, to)};
    constexpr uint32_t k_code_words = 32;  // of 256 codes
    const uint32_t nibble = to / 4;
    const uint32_t in_four = nibble % 4;  // of the four columns of a word of the file
    if (word < k_code_words) {
        const uint32_t unit = word / 4;
        const uint32_t columns = word % 4 + 4 * (nibble / 4);
        return {8 * (unit / 2) + columns, 8 * in_four + 4 * (unit % 2) + to % 4};
    }
    const uint32_t columns = to % 4 + 4 * (nibble / 4);
    const uint32_t further = word - k_code_words;
    if (order == WordOrder::units_of_5) return {k_code_words + columns, 8 * in_four + further};
    const uint32_t unit = further / 2;
    return {k_code_words + 8 * (unit / 4) + columns, 8 * in_four + 2 * (unit % 4) + further % 2};
}

// The properties of a matrix that packing needs.
struct PackShape {
    Format format;
    int64_t row_bytes;
    int64_t row_header_bytes;
    int64_t block_bytes;
    int64_t front_bytes;
    int64_t back_bytes;
    WordOrder word_order;
    int64_t words_at;  // offset in a block of the first word in that order
    int64_t word_bytes;
    int64_t word_step;  // bytes from one such word to the next
};
PackShape pack_shape(Format format, int64_t row_bytes);
// Packs rows to panels of 16; the two must not overlap.
void pack(Stream stream, const uint8_t* rows, const PackShape& shape, int64_t n_panels, uint8_t* panels);
// Changes the words of panels, in place, from the file's order to shape.word_order.
void reorder_words(Stream stream, const PackShape& shape, int64_t n_panels, uint8_t* panels);

// [n, cols] -> [n, cols / 32]
void quantize(Stream stream, const float* x, int64_t n, int64_t cols, Q8Block* out);
// h = x / sqrt(mean(x^2) + eps) * weight, and h quantised. size is a multiple of 32; h may be x.
void norm(Stream stream, const float* x, int64_t n, const float* weight, int64_t size, float eps, float* h,
          Q8Block* quantized);
// One row of norm(), for kernels that begin with it. size is at most k_max_norm_size; x, weight and h are aligned to 16
// bytes. h must not overlap x, nor may the results of the kernel overlap any of them: its blocks run in any order.
struct NormRow {
    const float* x;
    const float* weight;
    int64_t size;
    float eps;
    float* h;
    Q8Block* quantized;
};
inline constexpr int64_t k_max_norm_size = 8192;

// Multiplies packed weights, the rows of whole panels. `many`: on tensor cores, which decode a tile of weights once for
// 64 input rows and add up in an order that does not depend on n; else weights are decoded once for four input rows.
void linear(Stream stream, const Products& products, const Q8Block* input, int64_t n, bool many);
// norm() of one row and linear() of that row, in one launch. There is at least one panel.
void linear_norm(Stream stream, const Products& products, const NormRow& norm);

// Unpacks weights, rows of whole panels, to F16: out [rows, cols] = k_unpacked_factor * W, without the matrix' own scale. With the
// factor F16 has the usual weights, of 6e-8 to 64, with all its bits.
inline constexpr float k_unpacked_factor = 1024.0F;
void unpack(Stream stream, const Weight& weight, uint16_t* out);

// Returns whether weights of the format are multiplied as floats, with floats: F32, F16, BF16 and FP8_E4M3_B128.
bool is_float(Format format);
// `fixed`: one kernel for every n.
void linear_float(Stream stream, const Products& products, const float* x, int64_t n, bool fixed);
// Adds up the slots' products in the same kernel: y [n_rows, rows] = or += gates * output, a row's n_used slots in their
// order. The outputs of slots whose expert is not on this device become 0.
struct SlotSums {
    const float* gates;  // [n_slots]
    int64_t n_used;
    float* y;
    bool add;
    int32_t* arrived;  // [n_rows, sum_counters(rows)], all 0 before and afterwards
};
MINIM_HOST_DEVICE constexpr int64_t sum_counters(int64_t rows) {
    return (rows + 3) / 4;
}
// The operations on slots below compute the slots whose expert is on this device; they leave the other slots' rows of
// activated, y and output unchanged.
//
// activated [n_slots, rows] = silu(gate h) * (up h), or gate's other activation, of weights that is_float(); h has a row for
// n_used slots. Both of one format.
void activate_float(Stream stream, const Experts& gate, const Experts& up, const float* h, int64_t n_used,
                    const int32_t* ids, int64_t n_slots, float* activated);
// y [n_slots, rows] = W x of the slots' experts; the input has a row for every slots_a_row slots. `sums` may be null.
void project_float(Stream stream, const Experts& experts, const float* x, int64_t slots_a_row,
                   const int32_t* ids, int64_t n_slots, float* y, const SlotSums* sums);

// Products of F16, BF16 and FP8_E4M3_B128 weights and many rows on tensor cores, which add up in another order. Inputs
// are halves of half_format(), made of n_blocks of 128 elements.
bool has_half_tiles(Format format, int64_t cols);
Format half_format(Format weights);  // F16 or BF16
void halve(Stream stream, const float* x, int64_t n_blocks, Format format, HalfBlock* out);
void linear_half_many(Stream stream, const Weight& weight, const HalfBlock* x, int64_t n, float* y, bool add);
// activated [n_slots, rows] = silu(gate h) * (up h), or gate's other activation; h has a row for n_used slots. Both of one
// format and shape.
void activate_half_many(Stream stream, const Experts& gate, const Experts& up, const HalfBlock* h,
                        int64_t n_used, const ExpertTiles& tiles, float* activated);
void project_half_many(Stream stream, const Experts& experts, const HalfBlock* x, int64_t slots_a_row,
                       const ExpertTiles& tiles, float* y);

// The tile kernel (linear_tile.h): products of packed weights, decoded to F16, or of F16, BF16 and FP8_E4M3_B128 weights, and many rows
// in F16 or BF16. How much a block computes depends on the shared memory that a device gives it:
enum class TileSize : uint8_t {
    small,  // 128 rows of weights and 64 inputs, in k_max_shared_bytes
    large,  // 256 rows and 128 inputs, in k_large_shared_bytes
};
inline constexpr int k_large_shared_bytes = 227 * 1024;
MINIM_HOST_DEVICE constexpr TileSize tile_size(int64_t shared_bytes) {
    return shared_bytes >= k_large_shared_bytes ? TileSize::large : TileSize::small;
}
MINIM_HOST_DEVICE constexpr int32_t tile_inputs(TileSize size) {
    return size == TileSize::large ? 128 : 64;
}
// The columns of an input that have a factor of their own: the rows of gate that a block computes.
MINIM_HOST_DEVICE constexpr int64_t factor_cols(TileSize size) {
    return size == TileSize::large ? 128 : 64;
}
MINIM_HOST_DEVICE constexpr int64_t n_factors(int64_t cols, TileSize size) {
    return (cols + factor_cols(size) - 1) / factor_cols(size);
}
// Returns whether the tile kernel multiplies weights of the format that are not packed: F16, BF16 and FP8_E4M3_B128.
bool has_tile_rows(Format format, int64_t cols);
// The inputs of the tile kernel, by weights.
enum class HalfKind : uint8_t {
    packed,  // F16, in an order of columns of their own (half_inputs.h)
    f16,     // of F16 and FP8
    bf16,
};
MINIM_HOST_DEVICE constexpr HalfKind half_kind(Format weights, bool is_packed) {
    if (is_packed) return HalfKind::packed;
    return weights == Format::bf16 ? HalfKind::bf16 : HalfKind::f16;
}
struct HalfInputs {
    uint16_t* half;  // [n, cols]
    float* factor;   // [n, n_factors(cols, size)]: x = factor * half; of BF16 all 1
    HalfKind kind = HalfKind::packed;
};
void halve_rows(Stream stream, const float* x, int64_t n, int64_t cols, TileSize size, const HalfInputs& out);
// Of packed weights the rows of whole panels.
void linear_tile(Stream stream, const Products& products, const HalfInputs& input, int64_t n, TileSize size);
// activated [n_slots, rows] = silu(gate h) * (up h); h has a row for n_used slots. Both of one format; rows is a multiple of 32.
// `activated` has the kind of h; tiles.size is at most tile_inputs(size).
void activate_tile(Stream stream, const Experts& gate, const Experts& up, const HalfInputs& h, int64_t n_used,
                   const ExpertTiles& tiles, const HalfInputs& activated, TileSize size);
// output [n_slots, rows] = W x, of packed weights for the rows of whole panels; the input has a row for every slots_a_row slots.
void project_tile(Stream stream, const Experts& experts, const HalfInputs& input, int64_t slots_a_row,
                  const ExpertTiles& tiles, float* output, TileSize size);

// Chooses experts by score [n, n_expert], the router's outputs. bias may be null; n_used is at most k_max_used.
struct Choice {
    const float* bias;
    int64_t n_used;
    int32_t* ids;
    float* gates;
    // Null, or: the entries of the experts chosen are copied from the layer's table to chosen [n, n_used]. Those of another layer
    // may still be read until the kernel has waited for its inputs.
    const backend::ExpertPlace* places = nullptr;  // [n_expert]
    backend::ExpertPlace* chosen = nullptr;
};
void route(Stream stream, const float* score, int64_t n, int64_t n_expert, const Choice& choice);
// The same with a router that is_float(). `fixed`: one kernel for every n.
struct RouteWork {
    float* score;      // [n, n_expert]
    float* partial;    // [route_partial_floats(n)]
    int32_t* arrived;  // [route_counters(n)], all 0 before and afterwards
    bool prefetches;   // as Products::prefetches
};
// `post`: null, or where h and the choices of at most k_max_route_posted rows go in the same launch (post_pieces()).
struct PostedPieces;
inline constexpr int64_t k_max_route_posted = 4;
void route_float(Stream stream, const Weight& router, const float* h, int64_t n, const Choice& choice,
                 const RouteWork& work, bool fixed, const PostedPieces* post = nullptr);
// norm() of one row and route_float() of that row, in one launch.
void route_norm(Stream stream, const Weight& router, const NormRow& norm, const Choice& choice,
                const RouteWork& work, const PostedPieces* post = nullptr);
int64_t route_partial_floats(int64_t n);
int64_t route_counters(int64_t n);

// A flag in host memory through which the host and a device signal each other; it has a cache line of its own.
struct alignas(128) Flag {
    uint32_t value;
};
inline constexpr uint32_t k_flag_clear = 0;
inline constexpr uint32_t k_flag_set = 1;
inline constexpr uint32_t k_flag_given_up = 2;
// The host memory for inputs and choices; the flag is set when they have been written.
struct Posted {
    float* h;
    int32_t* ids;
    uint32_t* flag;
};
void post(Stream stream, const float* h, int64_t n_floats, const int32_t* ids, int64_t n_ids,
          const Posted& to);
// Waits, in the stream, until the host has changed the flag, and writes its value to `seen` in the device's memory. After
// `patience` nanoseconds without a change, writes k_flag_clear there and sets `late`, in memory of the host.
void await_host(Stream stream, const uint32_t* flag, uint32_t* late, int64_t patience, uint32_t* seen);
// If `seen` is k_flag_set, copies the answer from host memory to out [n_slots, hidden] for slots whose expert is not
// here.
void collect(Stream stream, const float* answer, const backend::ExpertPlace* places, const int32_t* ids,
             int64_t n_slots, int64_t hidden, const uint32_t* seen, float* out);

// The same exchange by pieces (piece.h), for at most k_max_posted_rows rows. A turn's number is that of the step times n_turns, and the
// turn and 1.
struct TurnNumber {
    const uint32_t* step;  // of the running step, in the device's memory
    uint32_t n_turns;      // of a step
    uint32_t index;        // of the turn
};
// Copies the number of the step that the host has begun to the device.
void take_step(Stream stream, const uint32_t* of_host, uint32_t* step);
// Host memory for inputs and choices. `flag` says that h has been written, and for how many rows and choices of each; ids are pieces
// of their own: pieces_of(n_used) for each row.
struct PostedPieces {
    float* h;
    Piece* ids;
    Piece* flag;
    TurnNumber turn;
};
// n_floats 0: h has been copied. n 0: so have the ids.
void post_pieces(Stream stream, const float* h, int64_t n_floats, const int32_t* ids, int64_t n,
                 int64_t n_used, const PostedPieces& to);
// The host's answer: pieces_of(hidden) pieces for each slot, only of slots whose expert is not here.
struct AwaitedPieces {
    const Piece* answer;
    TurnNumber turn;
    const uint32_t* ended;  // in host memory: the number of a step that was given up
    uint32_t* late;         // in host memory: set if the answer does not come within `patience` nanoseconds
    int64_t patience;
    const Piece* answered = nullptr;  // written behind the slots: rows without slots of the host wait for it
};
// out [n * n_used, hidden] = the answer, for slots whose expert is not here. With gates: y [n, hidden] += gates * out over a row's slots
// in their order, as exact::add_slots() does after that, and `out` is only read.
struct CollectedSlots {
    const backend::ExpertPlace* places;
    const int32_t* ids;
    int64_t n;
    int64_t n_used;
    int64_t hidden;
    float* out;
    const float* gates = nullptr;
    float* y = nullptr;
};
void collect_pieces(Stream stream, const AwaitedPieces& from, const CollectedSlots& slots);

// The products of every slot's expert. `tiles`: the slots by expert, for many rows; null: every slot alone.
struct Slots {
    const int32_t* ids;  // [n_slots]
    int64_t n_slots;
    const ExpertTiles* tiles;
    bool by_tables = false;  // as Products::by_tables, of slots without tiles
    // The entries of the slots' experts, as route() has copied them; null: they are read from the table by the ids.
    const backend::ExpertPlace* chosen = nullptr;
};
// activated [n_slots, rows / 32] = silu(gate h) * (up h), or gate's other activation, quantised; h has a row for n_used slots. Both
// of one format; rows is a multiple of 32.
void activate(Stream stream, const Experts& gate, const Experts& up, const Q8Block* h, int64_t n_used,
              const Slots& slots, Q8Block* activated);
// output [n_slots, rows] = W x, for the rows of whole panels; the input has a row for every slots_a_row slots. `sums`
// may be null, and must be null if slots have tiles.
void project(Stream stream, const Experts& experts, const Q8Block* input, int64_t slots_a_row,
             const Slots& slots, float* output, const SlotSums* sums);

}  // namespace minim::cuda::fast
