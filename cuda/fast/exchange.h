// SPDX-License-Identifier: Apache-2.0
// A turn of an exchange with the host (backend/exchange.h): inputs and choices go to the host, and its answer comes
// back. Both lie in the host's memory, which a GPU reads and writes over the bus like its own.
//
// Shape: one block writes to the host; a warp waits for the answer, and then a block copies each 1,024 floats of a
// slot. Bytes moved: for a row of 3,072 columns 12 KB to the host and up to 98 KB back. Bound: latency, a microsecond
// each way; with more than a few rows, the bus.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"

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

}  // namespace minim::cuda::fast
