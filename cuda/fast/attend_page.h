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

// Converts elements 8 i .. 8 i + 7 of a head's row to F16 from any other format of the cache. Blocks are 2-byte
// aligned.
template <class T>
MINIM_DEVICE FourWords eight_halves(T& t, Format format, const std::byte* row, int i) {
    float x[8];
    if (format == Format::f32) {
        for (int half = 0; half < 2; ++half) {
            const auto four = word_at<FourWords>(row + 32 * i + 16 * half);
            for (int j = 0; j < 4; ++j) x[4 * half + j] = bits_to_float(four.x[j]);
        }
    } else if (format == Format::bf16) {
        const auto pairs = word_at<FourWords>(row + 16 * i);
        for (int j = 0; j < 4; ++j) {
            x[2 * j] = bits_to_float(pairs.x[j] << 16);
            x[2 * j + 1] = bits_to_float(pairs.x[j] & 0xFFFF0000U);
        }
    } else if (format == Format::q8_0) {
        const std::byte* block = row + i / 4 * Q8_0::block_bytes;
        const float d = Lanes::f16_of(word_at<uint16_t>(block + Q8_0::d_at));
        for (int j = 0; j < 4; ++j) {
            const uint32_t pair = word_at<uint16_t>(block + Q8_0::codes_at + i % 4 * 8 + 2 * j);
            x[2 * j] = d * static_cast<float>(static_cast<int8_t>(pair));
            x[2 * j + 1] = d * static_cast<float>(static_cast<int8_t>(pair >> 8));
        }
    } else {
        const std::byte* block = row + i / 4 * Q4_0::block_bytes;
        const float d = Lanes::f16_of(word_at<uint16_t>(block + Q4_0::d_at));
        const int shift = i % 4 / 2 * 4;  // the second half of a block are its high nibbles
        for (int j = 0; j < 4; ++j) {
            const auto pair = static_cast<int>(word_at<uint16_t>(block + Q4_0::codes_at + i % 2 * 8 + 2 * j));
            x[2 * j] = d * static_cast<float>((pair >> shift & 15) - 8);
            x[2 * j + 1] = d * static_cast<float>((pair >> (shift + 8) & 15) - 8);
        }
    }
    return {t.pack_f16(x[0], x[1]), t.pack_f16(x[2], x[3]), t.pack_f16(x[4], x[5]), t.pack_f16(x[6], x[7])};
}

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
        const std::byte* from = shared + k_tile_bytes;
        for (int i = t.index(); i < n_tokens * k_row_chunks; i += n_threads) {
            const std::byte* row = from + i / k_row_chunks * token_bytes;
            *reinterpret_cast<FourWords*>(shared + place(i)) = eight_halves(t, format, row, i % k_row_chunks);
        }
        clear_rest(t, n_tokens, shared);
    }

  private:
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
