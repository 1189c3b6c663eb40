// SPDX-License-Identifier: Apache-2.0
// A turn of an exchange with the host (backend/exchange.h): inputs and choices go to the host, and its answer comes
// back. Both lie in the host's memory, which a GPU reads and writes over the bus like its own.
//
// Shape: one block writes to the host; a warp waits for the answer, and then a block copies each 1,024 floats of a
// slot. Bytes moved: for a row of 3,072 columns 12 KB to the host and up to 98 KB back. Bound: latency, a microsecond
// each way; with more than a few rows, the bus.
#pragma once

#include "base/half.h"
#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"
#include "cuda/rounded_product.h"

namespace minim::cuda::fast {

// Copies `count` words; all threads of a block call it.
template <class Word, class T>
MINIM_DEVICE void copy_words(T& t, int n_threads, const Word* from, Word* to, int64_t count) {
    static_assert(sizeof(Word) == 4);
    const uintptr_t places = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
    const int64_t n_pieces = places % sizeof(SixteenBytes) == 0 ? count / 4 : 0;
    for (int64_t i = t.index(); i < n_pieces; i += n_threads)
        reinterpret_cast<SixteenBytes*>(to)[i] = reinterpret_cast<const SixteenBytes*>(from)[i];
    for (int64_t i = 4 * n_pieces + t.index(); i < count; i += n_threads) to[i] = from[i];
}

struct PostKernel {
    static constexpr int k_threads = 1024;

    const float* h;
    int64_t n_floats;
    const int32_t* ids;
    int64_t n_ids;
    Posted to;

    Grid grid() const { return {.n_blocks = 1}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        copy_words(t, k_threads, h, to.h, n_floats);
        copy_words(t, k_threads, ids, to.ids, n_ids);
        t.sync();
        if (t.index() == 0) t.set_flag(to.flag, k_flag_set);
    }
};

// Waits until the flag is no longer clear, or `patience` nanoseconds have passed.
struct AwaitKernel {
    static constexpr int k_threads = 32;
    static constexpr bool k_waits_for_host = true;
    static constexpr int k_nap = 200;  // nanoseconds

    const uint32_t* flag;
    uint32_t* late;
    uint64_t patience;
    uint32_t* seen;

    Grid grid() const { return {.n_blocks = 1}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if (t.index() == 0) {
            const uint64_t start = t.nanoseconds();
            uint32_t now = t.load_flag(flag);
            while (now == k_flag_clear && t.nanoseconds() - start < patience) {
                t.nap(k_nap);
                now = t.load_flag(flag);
            }
            if (now == k_flag_clear) t.set_flag(late, k_flag_set);
            *seen = now;
        }
    }
};

// Copies the host's answers for the slots whose expert is not here.
struct CollectKernel {
    static constexpr int k_threads = 256;
    static constexpr int k_floats = 4 * k_threads;  // of a block

    const float* answer;
    const backend::ExpertPlace* places;
    const int32_t* ids;
    int64_t n_slots;
    int64_t hidden;
    const uint32_t* seen;
    float* out;

    Grid grid() const { return {n_slots, (hidden + k_floats - 1) / k_floats}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if (*seen != k_flag_set || places[ids[t.block()]].gate != nullptr) return;
        const int64_t first = t.block() * hidden;
        const int64_t at = int64_t{t.block_y()} * k_floats;
        const bool is_aligned = hidden % 4 == 0 && reinterpret_cast<uintptr_t>(out) % sizeof(FourFloats) == 0;
        if (is_aligned) {
            const int64_t own = at + 4 * t.index();
            if (own >= hidden) return;
            *reinterpret_cast<FourFloats*>(out + first + own) =
                t.load_from_host(reinterpret_cast<const FourFloats*>(answer + first + own));
            return;
        }
        for (int64_t i = at + t.index(); i < hidden && i < at + k_floats; i += k_threads)
            out[first + i] = t.load_from_host(answer + first + i);
    }
};

// ---- by pieces ----

template <class T>
MINIM_DEVICE uint32_t number_of(T& t, const TurnNumber& turn) {
    return t.load_fresh(turn.step) * turn.n_turns + turn.index + 1;
}

// Writes the choices of a row as pieces; the threads first, first + step ... of a warp or a block call it.
template <class T>
MINIM_DEVICE void put_ids(T& t, const int32_t* ids, int64_t row, int64_t n_used, const PostedPieces& to,
                          uint32_t turn, int first, int step) {
    const int64_t n_pieces = pieces_of(n_used);
    MINIM_DEVICE_LOOP
    for (int64_t k = first; k < n_pieces; k += step) {
        uint32_t words[k_piece_words] = {};
        for (int64_t e = 0; e < k_piece_words; ++e) {
            const int64_t slot = k_piece_words * k + e;
            if (slot < n_used) words[e] = static_cast<uint32_t>(ids[row * n_used + slot]);
        }
        t.template put<Scope::system>(to.ids + row * n_pieces + k, words, turn);
    }
}

// Says that h has been written, by the threads of the block that calls it.
template <class T>
MINIM_DEVICE void put_flag(T& t, int64_t n, int64_t n_used, const PostedPieces& to, uint32_t turn) {
    t.sync();
    if (t.index() != 0) return;
    t.fence_for_host();
    t.template put<Scope::system>(to.flag, {static_cast<uint32_t>(n), static_cast<uint32_t>(n_used), 0},
                                  turn);
}

struct TakeStepKernel {
    static constexpr int k_threads = 32;

    const uint32_t* of_host;
    uint32_t* step;

    Grid grid() const { return {.n_blocks = 1}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if (t.index() == 0) *step = t.load_flag(of_host);
    }
};

struct PostPiecesKernel {
    static constexpr int k_threads = 1024;

    const float* h;
    int64_t n_floats;
    const int32_t* ids;
    int64_t n;
    int64_t n_used;
    PostedPieces to;

    Grid grid() const { return {.n_blocks = 1}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const uint32_t turn = number_of(t, to.turn);
        copy_words(t, k_threads, h, to.h, n_floats);
        for (int64_t row = t.index() / 32; row < n; row += k_threads / 32)
            put_ids(t, ids, row, n_used, to, turn, t.index() % 32, 32);
        put_flag(t, n, n_used, to, turn);
    }
};

// Waits for the host's slots of a row and adds all slots up, or only stores the host's.
//
// Shape: a block has 48 columns of a row; a thread has a piece, of three of them, of one of eight slots at a time. One thread looks for
// the last piece that is expected; the others begin when it has come. Bytes moved: 16 for three columns of a slot over the bus, 4 for
// each of a slot that is here. Bound: latency of the bus, about a microsecond.
struct CollectAddKernel {
    static constexpr int k_threads = 128;
    static constexpr bool k_starts_early = true;
    static constexpr bool k_waits_for_host = true;
    static constexpr int k_pieces = 16;  // of a slot in a block
    static constexpr int k_columns = k_pieces * k_piece_words;
    static constexpr int k_slots = k_threads / k_pieces;  // at a time
    static constexpr int k_nap = 50;                      // nanoseconds
    static constexpr int k_tries = 64;                    // between looks whether the step was given up

    AwaitedPieces from;
    CollectedSlots slots;

    static constexpr int k_columns_at = 16;

    // Shared memory: whether the answer is there; the columns of the slots.
    Grid grid() const {
        return {(slots.hidden + k_columns - 1) / k_columns, slots.n,
                k_columns_at + slots.n_used * k_columns * int64_t{sizeof(float)}};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        t.wait_for_inputs();
        const int64_t first_slot = int64_t{t.block_y()} * slots.n_used;
        const int64_t first_piece = int64_t{t.block()} * k_pieces;
        const uint32_t step = t.load_fresh(from.turn.step);
        const uint32_t turn = step * from.turn.n_turns + from.turn.index + 1;
        const uint64_t start = t.nanoseconds();
        uint32_t words[k_piece_words];
        const int64_t last = last_slot_of_host(first_slot);
        auto* is_there = reinterpret_cast<int32_t*>(t.shared());
        if (t.index() == 0)
            *is_there =
                await(t, last < 0 ? from.answered : piece_of(last, first_piece), turn, step, start, words)
                    ? 1
                    : 0;
        t.sync();
        auto* shared = reinterpret_cast<float*>(t.shared() + k_columns_at);
        const int64_t piece = first_piece + t.index() % k_pieces;
        const int64_t column = piece * k_piece_words;
        const int64_t n_columns =
            slots.hidden - column < k_piece_words ? slots.hidden - column : k_piece_words;
        for (int64_t own = t.index() / k_pieces; own < slots.n_used && n_columns > 0; own += k_slots) {
            const int64_t slot = first_slot + own;
            float* at = slots.out + slot * slots.hidden + column;
            float x[k_piece_words] = {};
            if (is_of_host(slot)) {
                if (*is_there != 0 && await(t, piece_of(slot, piece), turn, step, start, words)) {
                    for (int e = 0; e < k_piece_words; ++e) x[e] = bits_to_float(words[e]);
                    if (slots.gates == nullptr)
                        for (int e = 0; e < n_columns; ++e) at[e] = x[e];
                }
            } else if (slots.gates != nullptr) {
                for (int e = 0; e < n_columns; ++e) x[e] = at[e];
            }
            float* to = shared + own * k_columns + t.index() % k_pieces * k_piece_words;
            for (int e = 0; e < k_piece_words; ++e) to[e] = x[e];
        }
        if (slots.gates == nullptr) return;
        t.sync();
        const int64_t own_column = int64_t{t.block()} * k_columns + t.index();
        if (t.index() >= k_columns || own_column >= slots.hidden) return;
        float* y = slots.y + t.block_y() * slots.hidden + own_column;
        float sum = *y;
        for (int64_t own = 0; own < slots.n_used; ++own)
            sum += rounded_product(slots.gates[first_slot + own], shared[own * k_columns + t.index()]);
        *y = sum;
    }

  private:
    MINIM_DEVICE bool is_of_host(int64_t slot) const { return slots.places[slots.ids[slot]].gate == nullptr; }
    // Returns the row's last slot whose expert is not here; -1: there is none.
    MINIM_DEVICE int64_t last_slot_of_host(int64_t first_slot) const {
        int64_t last = -1;
        for (int64_t slot = first_slot; slot < first_slot + slots.n_used; ++slot)
            last = is_of_host(slot) ? slot : last;
        return last;
    }
    MINIM_DEVICE const Piece* piece_of(int64_t slot, int64_t piece) const {
        return from.answer + slot * pieces_of(slots.hidden) + piece;
    }
    // Waits for a piece. Returns false if it does not come: the step was given up, or the host takes too long.
    template <class T>
    MINIM_DEVICE bool await(T& t, const Piece* piece, uint32_t turn, uint32_t step, uint64_t start,
                            uint32_t (&words)[k_piece_words]) const {
        for (int n = 1; !t.template get<Scope::system>(piece, turn, words); ++n) {
            if (n % k_tries == 0) {
                if (t.load_flag(from.ended) == step) return false;
                if (t.nanoseconds() - start >= static_cast<uint64_t>(from.patience)) {
                    t.set_flag(from.late, k_flag_set);
                    return false;
                }
            }
            t.nap(k_nap);
        }
        return true;
    }
};

}  // namespace minim::cuda::fast
