// SPDX-License-Identifier: Apache-2.0
// Prepares attention for all rows of a batch at once: RMS norm of q over all its heads together, and of k; rotary position
// embedding; the Hadamard rotation if keys have few bits; k and v into the cache, q to F16. If ranks divide the heads, a
// kernel before it sums the squares of a rank's heads, and this one gets the sums over all ranks.
//
// Shape: a block of threads takes K and V of a row, or a share of its query heads; a warp takes a head, 32
// elements side by side, so that a quantised block of the cache is one element per lane. Bytes moved for a row: 4 for
// each number of q, k and v in; out, 2 for each number of q, and k and v in the cache's format. Few rows: the query
// heads are shared among more blocks, and each of these reads all of q for its mean square. Bound: latency for a row,
// memory for a prompt.
//
// q is scaled before it is converted to F16, not after: there is one rounding either way, and no product for each score
// later.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/kv_view.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/device.h"
#include "cuda/rounded_product.h"
#include "format/encode_block.h"

namespace minim::cuda::fast {

// Encodes a block of 32, an element per lane, to the bytes of encode_block_q8_0.
template <class T>
MINIM_DEVICE void store_lanes_q8_0(T& t, float x, uint8_t* block) {
    float largest = std::fabs(x);
    for (int mask = 16; mask > 0; mask /= 2) largest = std::fmax(largest, t.from_lane_xor(largest, mask));
    const float d = largest / 127.0F;
    const int lane = t.index() % 32;
    const int code = truncate_clamped(std::round(x * reciprocal_or_zero(d)), -127, 127);
    block[Q8_0::codes_at + lane] = static_cast<uint8_t>(code);
    if (lane == 0) store_f16(block + Q8_0::d_at, d);
}

// The same, to the bytes of encode_block_q4_0.
template <class T>
MINIM_DEVICE void store_lanes_q4_0(T& t, float x, uint8_t* block) {
    const int lane = t.index() % 32;
    // The element of largest magnitude with its sign, the first of equals.
    float peak = x;
    int32_t peak_lane = lane;
    for (int mask = 16; mask > 0; mask /= 2) {
        const float other = t.from_lane_xor(peak, mask);
        const int32_t other_lane = t.from_lane_xor(peak_lane, mask);
        const float lead = std::fabs(other) - std::fabs(peak);
        if (lead > 0.0F || (lead == 0.0F && other_lane < peak_lane)) {
            peak = other;
            peak_lane = other_lane;
        }
    }
    if (peak == 0.0F) peak = 0.0F;  // also if it is -0
    const float d = peak / -8.0F;
    const int32_t code = truncate_clamped(rounded_product(x, reciprocal_or_zero(d)) + 8.5F, 0, 15);
    const int32_t high = t.from_lane_xor(code, 16);
    if (lane < 16) block[Q4_0::codes_at + lane] = static_cast<uint8_t>(code | high << 4);
    if (lane == 0) store_f16(block + Q4_0::d_at, d);
}

// Encodes a head of keys or values, whose element 32 b + lane is x[b], to the bytes of exact::encode_kv_row.
template <class T, int n_blocks>
MINIM_DEVICE void store_kv_row(T& t, Format format, const float (&x)[n_blocks], std::byte* place) {
    auto* row = reinterpret_cast<uint8_t*>(place);
    const int lane = t.index() % 32;
    for (int b = 0; b < n_blocks; ++b) {
        const int i = 32 * b + lane;
        if (format == Format::f32) {
            reinterpret_cast<float*>(row)[i] = x[b];
        } else if (format == Format::f16) {
            reinterpret_cast<uint16_t*>(row)[i] = static_cast<uint16_t>(t.pack_f16(x[b], 0.0F));
        } else if (format == Format::bf16) {
            reinterpret_cast<uint16_t*>(row)[i] = float_to_bf16(x[b]);
        } else if (format == Format::q8_0) {
            store_lanes_q8_0(t, x[b], row + b * Q8_0::block_bytes);
        } else {
            store_lanes_q4_0(t, x[b], row + b * Q4_0::block_bytes);
        }
    }
}

// Computes backend::hadamard of a head whose element 32 b + lane is x[b], with the same bits.
template <class T, int n_blocks>
MINIM_DEVICE void hadamard_lanes(T& t, float (&x)[n_blocks]) {
    const int lane = t.index() % 32;
    for (int half = 1; half < 32; half *= 2) {
        for (int b = 0; b < n_blocks; ++b) {
            const float other = t.from_lane_xor(x[b], half);
            x[b] = (lane & half) == 0 ? x[b] + other : other - x[b];
        }
    }
    for (int half = 1; half < n_blocks; half *= 2) {
        for (int b = 0; b + half < n_blocks; ++b) {
            if ((b & half) != 0) continue;
            const float sum = x[b] + x[b + half];
            x[b + half] = x[b] - x[b + half];
            x[b] = sum;
        }
    }
    const float scale = 1.0F / std::sqrt(static_cast<float>(32 * n_blocks));
    for (int b = 0; b < n_blocks; ++b) x[b] *= scale;
}

struct Turn {
    float cosine;
    float sine;
};
// Returns the cosine and sine of any angle. Whole quarters of a turn are subtracted in double, as a float has no digits
// left for the rest at position 100000. The polynomials (Moshier, Cephes), of an angle within an eighth of a turn, are
// accurate to a unit in the last place.
MINIM_DEVICE Turn turn_of(double angle) {
    constexpr double k_quarter = 1.570796326794896619231;
    const double quarters = angle * (1.0 / k_quarter);
    const double whole = std::rint(quarters);
    const auto x = static_cast<float>((quarters - whole) * k_quarter);
    const float y = x * x;
    const float sine = x + x * y * (-1.6666654611e-1F + y * (8.3321608736e-3F - y * 1.9515295891e-4F));
    const float cosine =
        1.0F - 0.5F * y +
        y * y * (4.166664568298827e-2F + y * (-1.388731625493765e-3F + y * 2.443315711809948e-5F));
    const auto quarter = static_cast<int64_t>(whole);
    const bool is_odd = quarter % 2 != 0;
    const float c = is_odd ? sine : cosine;
    const float s = is_odd ? cosine : sine;
    return {(quarter & 3) == 1 || (quarter & 3) == 2 ? -c : c, (quarter & 2) != 0 ? -s : s};
}

// Computes the cosines and sines of a position, one angle for each of n_threads threads at a time.
template <class T>
MINIM_DEVICE void turns_of(T& t, int n_threads, int32_t position, const float* frequency, int64_t n_frequency,
                           float* cosines, float* sines) {
    for (int i = t.index(); i < n_frequency; i += n_threads) {
        const Turn turned = turn_of(position * static_cast<double>(t.load_fresh(frequency + i)));
        cosines[i] = turned.cosine;
        sines[i] = turned.sine;
    }
}

// Returns 1 / sqrt(mean square + eps) of a warp's head, whose element 32 b + lane is x[b].
template <class T, int n_blocks>
MINIM_DEVICE float head_factor(T& t, const float (&x)[n_blocks], float eps) {
    float sum = 0.0F;
    for (int b = 0; b < n_blocks; ++b) sum += x[b] * x[b];
    for (int mask = 16; mask > 0; mask /= 2) sum += t.from_lane_xor(sum, mask);
    return 1.0F / std::sqrt(sum / static_cast<float>(32 * n_blocks) + eps);
}

// Rotates a warp's head by m angles. Pairs (i, i + m) lie in any two lanes, so the warp passes its head through shared memory.
template <class T, int n_blocks>
MINIM_DEVICE void rotate_head(T& t, float (&values)[n_blocks], float* head, int m, const float* cosines,
                              const float* sines) {
    const int lane = t.index() % 32;
    t.sync_warp();  // the previous head has been read
    for (int b = 0; b < n_blocks; ++b) head[32 * b + lane] = values[b];
    t.sync_warp();
    for (int b = 0; b < n_blocks; ++b) {
        const int i = 32 * b + lane;
        if (i < m) {
            values[b] = values[b] * cosines[i] - head[i + m] * sines[i];
        } else if (i < 2 * m) {
            values[b] = values[b] * cosines[i - m] + head[i - m] * sines[i - m];
        }
    }
}

inline constexpr int k_prepare_threads = 256;

// Returns the sum of squares of `count` numbers, the same in every thread of a block of k_prepare_threads. `sums` is in
// shared memory, a float for each warp.
template <class T>
MINIM_DEVICE float sum_squares(T& t, const float* x, int count, float* sums) {
    constexpr int k_together = 6;  // fours whose loads are under way at once: all of the model's row
    const auto* fours = reinterpret_cast<const FourFloats*>(x);
    float sum = 0.0F;
    MINIM_DEVICE_LOOP
    for (int first = t.index(); first < count / 4; first += k_together * k_prepare_threads) {
        FourFloats four[k_together] = {};
        for (int k = 0; k < k_together; ++k)
            if (first + k * k_prepare_threads < count / 4) four[k] = fours[first + k * k_prepare_threads];
        for (int k = 0; k < k_together; ++k)
            for (const float each : four[k].x) sum += each * each;
    }
    for (int mask = 16; mask > 0; mask /= 2) sum += t.from_lane_xor(sum, mask);
    if (t.index() % 32 == 0) sums[t.index() / 32] = sum;
    t.sync();
    float all = 0.0F;
    for (int i = 0; i < k_prepare_threads / 32; ++i) all += sums[i];
    return all;
}

// The sum of squares of a row of q, or of k.
struct SquaresKernel {
    static constexpr int k_threads = k_prepare_threads;
    static constexpr bool k_starts_early = true;

    SquaresArgs args;

    Grid grid() const { return {args.n, 2, k_threads / 32 * 4}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        t.wait_for_inputs();
        const int64_t row = t.block();
        const bool is_query = t.block_y() == 0;
        const int64_t size = is_query ? args.q_size : args.k_size;
        const float* x = (is_query ? args.q : args.k) + row * size;
        const float sum = sum_squares(t, x, static_cast<int>(size), reinterpret_cast<float*>(t.shared()));
        if (t.index() == 0) args.squares[2 * row + t.block_y()] = sum;
    }
};

template <int head_dim>
struct PrepareKernel {
    static constexpr int k_threads = k_prepare_threads;
    static constexpr int k_warps = k_threads / 32;
    static constexpr bool k_starts_early = true;
    static constexpr int k_blocks = head_dim / 32;  // of a head

    PrepareArgs args;
    float scale;      // of the queries
    int32_t q_parts;  // blocks that share the query heads of a row; a further one has K and V

    // Shared memory has the cosines and sines of a row's position, a head per warp, and a sum per warp.
    Grid grid() const {
        const int64_t n_floats = 2 * args.n_frequency + k_warps * head_dim + k_warps;
        return {args.n, q_parts + 1, n_floats * 4};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        auto* cosines = reinterpret_cast<float*>(t.shared());
        float* sines = cosines + args.n_frequency;
        float* heads = sines + args.n_frequency;
        float* sums = heads + k_warps * head_dim;
        const int64_t row = t.block();
        const bool is_query = t.block_y() < q_parts;
        const int n_head = static_cast<int>(is_query ? args.cache.n_head : args.cache.n_head_kv);
        const int n_parts = is_query ? q_parts : 1;
        const int part = is_query ? t.block_y() : 0;
        const float* x = (is_query ? args.q : args.k) + row * n_head * head_dim;
        const float* weight = is_query ? args.q_norm : args.k_norm;

        const int last = n_head * (part + 1) / n_parts;
        const int warp = t.index() / 32;
        int head = n_head * part / n_parts + warp;
        // The positions and pages are in tables that were copied before the step.
        const int32_t position = t.load_fresh(args.cache.position + row);
        std::byte* page = is_query ? nullptr : page_of(t, row, position);
        turns_of(t, k_threads, position, args.frequency, args.n_frequency, cosines, sines);
        Head gain = {};
        if (head < last) gain = load(t, weight, args.norms_heads ? 0 : head);
        t.wait_for_inputs();
        // The loads of the first head and of the sum are under way together.
        Head of_head = {};
        Head value = {};
        const auto load_head = [&] {
            of_head = load(t, x, head);
            if (!is_query) value = load(t, args.v + row * n_head * head_dim, head);
        };
        if (head < last) load_head();
        const float factor = norm_factor(t, x, n_head * head_dim, row, is_query, sums);
        MINIM_DEVICE_LOOP
        while (head < last) {
            const float own = args.norms_heads ? head_factor(t, of_head.x, args.norm_eps) : factor;
            for (int b = 0; b < k_blocks; ++b) of_head.x[b] = of_head.x[b] * own * gain.x[b];
            rotate_head(t, of_head.x, heads + warp * head_dim, static_cast<int>(args.n_frequency), cosines,
                        sines);
            if (args.hadamard) hadamard_lanes(t, of_head.x);
            if (is_query) {
                uint16_t* to = args.query + (row * n_head + head) * head_dim + t.index() % 32;
                for (int b = 0; b < k_blocks; ++b)
                    to[32 * b] = static_cast<uint16_t>(t.pack_f16(of_head.x[b] * scale, 0.0F));
            } else {
                const Cache& c = args.cache;
                const int64_t slot = position % backend::k_kv_page_tokens;
                store_kv_row(t, c.k_format, of_head.x,
                             page + c.k_at + head * c.k_head_bytes + slot * c.k_token_bytes);
                store_kv_row(t, c.v_format, value.x,
                             page + c.v_at + head * c.v_head_bytes + slot * c.v_token_bytes);
            }
            head += k_warps;
            if (head >= last) break;
            if (!args.norms_heads) gain = load(t, weight, head);
            load_head();
        }
    }

  private:
    struct Head {
        float x[k_blocks];  // element 32 b + lane
    };
    template <class T>
    MINIM_DEVICE static Head load(T& t, const float* x, int head) {
        Head loaded;
        for (int b = 0; b < k_blocks; ++b) loaded.x[b] = x[head * head_dim + 32 * b + t.index() % 32];
        return loaded;
    }
    // Returns the page of the KV cache that a row is stored to.
    template <class T>
    MINIM_DEVICE std::byte* page_of(T& t, int64_t row, int32_t position) const {
        const Cache& c = args.cache;
        const int64_t first = t.load_fresh(c.first_page + row);
        return reinterpret_cast<std::byte*>(
            t.load_fresh(c.pages + first + position / backend::k_kv_page_tokens));
    }

    // Returns 1 / sqrt(mean square + eps) of a row of q or k, the same in every thread; not read if heads have their own. Waits for
    // all threads.
    template <class T>
    MINIM_DEVICE float norm_factor(T& t, const float* x, int count, int64_t row, bool is_query,
                                   float* sums) const {
        float sum = 0.0F;
        int64_t n_summed = count;
        if (args.norms_heads) {
            t.sync();
            return 0.0F;
        }
        if (args.squares == nullptr) {
            sum = sum_squares(t, x, count, sums);
        } else {
            t.sync();
            sum = args.squares[2 * row + (is_query ? 0 : 1)];
            n_summed = is_query ? args.n_squares_q : args.n_squares_k;
        }
        return 1.0F / std::sqrt(sum / static_cast<float>(n_summed) + args.norm_eps);
    }
};

}  // namespace minim::cuda::fast
