// SPDX-License-Identifier: Apache-2.0
// The KV cache as attention reads it: pages of k_kv_page_tokens positions, through a page table for each sequence.
//
// A page has, for each layer, first K then V; each is [n_head_kv][k_kv_page_tokens][head_dim] in the cache's format.
// The tokens of one head are contiguous, because attention reads one head's history at a time. Layers with block-sparse
// attention (sparse_attention.h) have index keys behind V, [k_kv_page_tokens][index_dim].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/format.h"

namespace minim::backend {

inline constexpr int64_t k_kv_page_tokens = 64;

inline constexpr Format k_default_kv_format = Format::f16;

struct KvLayout {
    int64_t n_layer = 0;
    int64_t n_head_kv = 0;
    int64_t head_dim = 0;
    Format k_format = k_default_kv_format;  // a format for which is_kv_format() is true
    Format v_format = k_default_kv_format;
    // The layers from first_index_layer on have index keys, in index_format_of(k_format). index_dim 0: no layer has any.
    int64_t index_dim = 0;
    Format index_format = k_default_kv_format;
    int64_t first_index_layer = 0;

    // Keys in Q4_0 are stored rotated (hadamard.h), which needs a head_dim that is a power of two.
    bool rotates_keys() const noexcept { return k_format == Format::q4_0; }

    int64_t k_token_bytes() const noexcept;  // bytes of one head's K at one position
    int64_t v_token_bytes() const noexcept;
    bool has_index(int64_t layer) const noexcept { return index_dim > 0 && layer >= first_index_layer; }
    int64_t n_index_layer() const noexcept;
    int64_t index_token_bytes() const noexcept;  // bytes of the index key at one position

    int64_t layer_bytes(int64_t layer) const noexcept;  // K, V and index keys of one layer in one page
    int64_t page_bytes() const noexcept;

    // Byte offset in a page of a layer.
    int64_t layer_offset(int64_t layer) const noexcept;
    // Byte offset in a page of a head's K or V, or of a layer's index keys, at slot 0; slot s follows s * token_bytes later.
    int64_t k_offset(int64_t layer, int64_t head) const noexcept;
    int64_t v_offset(int64_t layer, int64_t head) const noexcept;
    int64_t index_offset(int64_t layer) const noexcept;

    // Returns the layout of n_layer layers from first_layer on, with n_head_kv heads of each. Index keys, which all heads share,
    // are in each part whole.
    KvLayout part(int64_t first_layer, int64_t n_layer_of_part, int64_t n_head_of_part) const noexcept;

    bool operator==(const KvLayout&) const = default;
};

// Returns whether a KV cache may have the format: F32, F16, BF16, Q8_0 or Q4_0. A row of the last two is whole blocks of 32.
bool is_kv_format(Format format) noexcept;

// Returns the format of index keys beside K in a format: F32, F16 or BF16, never of fewer bits, since a changed choice of blocks is
// a changed text.
Format index_format_of(Format k_format) noexcept;

// The number of a page in its pool. It stands for one block in the memory of each device that has a part of the layers.
struct KvPage {
    int32_t slab = 0;
    int32_t index = 0;
};

// The pages of one sequence: position p is in pages[p / k_kv_page_tokens], slot p % k_kv_page_tokens.
struct KvSequence {
    const KvLayout* layout = nullptr;
    std::span<std::byte* const> pages;
    // The numbers of these pages and of their pool, by which other processes find their own parts; empty: there are none.
    std::span<const KvPage> numbers = {};
    uint32_t pool = 0;
};

// A row of a batch: the token of `sequence` at `position`. If the layers of a model are on several devices, each has
// pages of its own, and `sequence` points to the views of all, in the order of the layers.
struct KvRow {
    const KvSequence* sequence = nullptr;
    int64_t position = 0;
};

}  // namespace minim::backend
