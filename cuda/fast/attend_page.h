// SPDX-License-Identifier: Apache-2.0
// Copies K or V of a KV head from the cache's pages to shared memory, as F16.
//
// A tile is the 64 tokens of a page, each a row of head_dim halves and 16 bytes of padding: an odd number of 16
// bytes, so that the eight rows of a matrix load are in different banks. Pages in F16 are copied directly into one of
// two tiles, in turn. Pages in other formats are copied unchanged and converted to a tile after they arrive: one tile
// is enough, because the copy in progress has a place of its own. Every page is read from memory once for each block
// of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/kv_view.h"
#include "cuda/fast/device.h"
#include "cuda/fast/lanes.h"
#include "format/q4_0.h"
#include "format/q8_0.h"

namespace minim::cuda::fast {

inline constexpr int k_page_tokens = static_cast<int>(backend::k_kv_page_tokens);

template <typename Word>
MINIM_DEVICE Word word_at(const std::byte* p) {
    return *reinterpret_cast<const Word*>(p);
}

struct alignas(16) FourWords {
    uint32_t x[4];
};

// Eight bytes at a multiple of 2, loaded in words. is_between: it is no multiple of 4.
struct EightBytes {
    uint32_t word[2];

    MINIM_DEVICE EightBytes(const std::byte* p, bool is_between) {
        const auto* words = reinterpret_cast<const uint32_t*>(p - (is_between ? 2 : 0));
        const uint32_t middle = words[1];
        const uint32_t last = is_between ? words[2] : 0;
        const uint32_t selector = is_between ? 0x5432U : 0x3210U;
        word[0] = Lanes::permute(words[0], middle, selector);
        word[1] = Lanes::permute(middle, last, selector);
    }
};

// Returns eight numbers, each a byte less `zero`, times the half d. Only the product is rounded.
template <class T>
MINIM_DEVICE FourWords scaled_halves(T& t, const EightBytes& bytes, uint32_t zero, uint32_t d) {
    // The half 0x6400 + x is 1024 + x.
    const uint32_t zeros = (0x6400U + zero) * 0x10001U;
    FourWords halves;
    for (int i = 0; i < 4; ++i) {
        const uint32_t pair = Lanes::permute(bytes.word[i / 2], 0x64646464U, i % 2 == 0 ? 0x4140U : 0x4342U);
        halves.x[i] = t.multiply_f16(t.subtract_f16(pair, zeros), d * 0x10001U);
    }
    return halves;
}

// Converts elements 8 i .. 8 i + 7 of a head's rows to F16 from any other format of the cache. Blocks lie at multiples of 2, and
// pages at multiples of 4.
template <Format format>
struct EightOfRow {
    int i;
    bool is_between = false;  // EightBytes, in each of the rows

    // The rows are `first` and others at a distance that is a multiple of 4.
    MINIM_DEVICE EightOfRow(int i_, const std::byte* first) : i(i_) {
        if constexpr (format == Format::q8_0 || format == Format::q4_0)
            is_between = reinterpret_cast<uintptr_t>(codes(first)) % 4 != 0;
    }

    template <class T>
    MINIM_DEVICE FourWords halves(T& t, const std::byte* row) const {
        if constexpr (format == Format::q8_0) {
            EightBytes bytes(codes(row), is_between);
            for (uint32_t& word : bytes.word) word ^= 0x80808080U;
            return scaled_halves(t, bytes, 128, word_at<uint16_t>(block(row) + Q8_0::d_at));
        } else if constexpr (format == Format::q4_0) {
            EightBytes bytes(codes(row), is_between);
            const int shift = i % 4 / 2 * 4;  // the second half of a block are its high nibbles
            for (uint32_t& word : bytes.word) word = word >> shift & 0x0F0F0F0FU;
            return scaled_halves(t, bytes, 8, word_at<uint16_t>(block(row) + Q4_0::d_at));
        } else {
            float x[8];
            if constexpr (format == Format::f32) {
                for (int half = 0; half < 2; ++half) {
                    const auto four = word_at<FourWords>(row + 32 * i + 16 * half);
                    for (int j = 0; j < 4; ++j) x[4 * half + j] = bits_to_float(four.x[j]);
                }
            } else {
                static_assert(format == Format::bf16);
                const auto pairs = word_at<FourWords>(row + 16 * i);
                for (int j = 0; j < 4; ++j) {
                    x[2 * j] = bits_to_float(pairs.x[j] << 16);
                    x[2 * j + 1] = bits_to_float(pairs.x[j] & 0xFFFF0000U);
                }
            }
            return {t.pack_f16(x[0], x[1]), t.pack_f16(x[2], x[3]), t.pack_f16(x[4], x[5]),
                    t.pack_f16(x[6], x[7])};
        }
    }

  private:
    MINIM_DEVICE const std::byte* block(const std::byte* row) const {
        return row + i / 4 * (format == Format::q8_0 ? Q8_0::block_bytes : Q4_0::block_bytes);
    }
    MINIM_DEVICE const std::byte* codes(const std::byte* row) const {
        return block(row) +
               (format == Format::q8_0 ? Q8_0::codes_at + i % 4 * 8 : Q4_0::codes_at + i % 2 * 8);
    }
};

template <int head_dim, int n_threads>
struct KvTiles {
    static constexpr int k_row_bytes = 2 * head_dim + 16;
    static constexpr int k_tile_bytes = k_page_tokens * k_row_bytes;
    static constexpr int k_row_chunks = head_dim / 8;  // of 16 bytes

    Format format;
    int token_bytes;
    std::byte* shared;

    // Returns the bytes of shared memory that are needed.
    static MINIM_HOST_DEVICE int64_t bytes(Format format, int64_t token_bytes) {
        return k_tile_bytes + (format == Format::f16 ? k_tile_bytes : k_page_tokens * token_bytes);
    }

    MINIM_DEVICE bool converts() const { return format != Format::f16; }
    MINIM_DEVICE std::byte* tile(int turn) const {
        return converts() || turn % 2 == 0 ? shared : shared + k_tile_bytes;
    }

    // Returns the bytes of shared memory that are needed.
    MINIM_DEVICE int bytes() const { return static_cast<int>(bytes(format, token_bytes)); }
    // Returns how many pages may be under way before the first one is used.
    MINIM_DEVICE int n_at_first() const { return converts() ? 1 : 2; }

    // Starts copying the first n_tokens of a page. It overwrites what was started two turns before, which no thread may
    // still be reading; or, if the format is not F16, what has been converted to a tile since.
    template <class T>
    MINIM_DEVICE void start(T& t, const std::byte* page, int n_tokens, int turn) const {
        if (converts()) {
            for (int i = t.index(); 16 * i < n_tokens * token_bytes; i += n_threads)
                t.copy_16(shared + k_tile_bytes + 16 * i, page + 16 * i);
            return;
        }
        std::byte* to = tile(turn);
        for (int i = t.index(); i < n_tokens * k_row_chunks; i += n_threads)
            t.copy_16(to + place(i), page + 16 * i);
        clear_rest(t, n_tokens, to);
    }

    // Converts the copied page to a tile; only if converts(). The copies of all threads must have arrived, and no
    // thread may read the tile.
    template <class T>
    MINIM_DEVICE void convert(T& t, int n_tokens) const {
        if (format == Format::q8_0) {
            convert_from<Format::q8_0>(t, n_tokens);
        } else if (format == Format::q4_0) {
            convert_from<Format::q4_0>(t, n_tokens);
        } else if (format == Format::bf16) {
            convert_from<Format::bf16>(t, n_tokens);
        } else {
            convert_from<Format::f32>(t, n_tokens);
        }
        clear_rest(t, n_tokens, shared);
    }

  private:
    // A thread has the same eight elements of each of its tokens.
    template <Format from, class T>
    MINIM_DEVICE void convert_from(T& t, int n_tokens) const {
        // Tokens at a time: an even number, as rows of blocks have even lengths.
        constexpr int k_step = n_threads / k_row_chunks / 2 * 2;
        const int first = t.index() / k_row_chunks;
        const int chunk = t.index() % k_row_chunks;
        if (first >= k_step) return;
        const std::byte* row = shared + k_tile_bytes + first * token_bytes;
        std::byte* to = shared + first * k_row_bytes + 16 * chunk;
        const EightOfRow<from> eight(chunk, row);
        // Unrolled four times, it takes more registers than there are.
        MINIM_DEVICE_LOOP_BY_2
        for (int token = first; token < n_tokens; token += k_step) {
            *reinterpret_cast<FourWords*>(to) = eight.halves(t, row);
            row += k_step * token_bytes;
            to += k_step * k_row_bytes;
        }
    }
    MINIM_DEVICE static int place(int chunk) {
        return chunk / k_row_chunks * k_row_bytes + chunk % k_row_chunks * 16;
    }
    // Clears the tokens beyond the last one: their weights are 0, but the memory may contain a NaN.
    template <class T>
    MINIM_DEVICE void clear_rest(T& t, int n_tokens, std::byte* to) const {
        MINIM_DEVICE_LOOP
        for (int i = n_tokens * k_row_chunks + t.index(); i < k_page_tokens * k_row_chunks; i += n_threads)
            *reinterpret_cast<FourWords*>(to + place(i)) = {};
    }
};

}  // namespace minim::cuda::fast
