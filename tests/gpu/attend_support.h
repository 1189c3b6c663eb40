// SPDX-License-Identifier: Apache-2.0
// What the tests of the attention kernels share: a KV cache with known contents, batches over it, and runs in both
// orders of the threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/exact/items.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/operations.h"
#include "gpu/emulated_thread.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {

namespace exact = cuda::exact;
namespace fast = cuda::fast;
using backend::k_kv_page_tokens;
using backend::KvLayout;
using backend::KvRow;
using backend::KvSequence;

inline constexpr int64_t k_layer = 1;

// Returns the frequencies of n angles of a position, from 1 on, each less than the one before.
inline std::vector<float> frequencies(int64_t n) {
    std::vector<float> all;
    for (int64_t i = 0; i < n; ++i)
        all.push_back(static_cast<float>(std::pow(5e6, -static_cast<double>(i) / static_cast<double>(n))));
    return all;
}

struct Heads {
    int64_t n_head;
    int64_t n_head_kv;
    int64_t head_dim;
};

struct alignas(64) Chunk {
    std::byte bytes[64];
};

// Sequences whose KV cache is random up to a position each, and NaN beyond.
class TestCache {
  public:
    TestCache(Heads heads, Format k_format, Format v_format, std::vector<int64_t> n_stored)
        : layout_{2, heads.n_head_kv, heads.head_dim, k_format, v_format},
          heads_(heads),
          sequences_(n_stored.size()),
          tables_(n_stored.size()) {
        Random random(5);
        const auto page_bytes = static_cast<size_t>(layout_.page_bytes());
        for (size_t s = 0; s < n_stored.size(); ++s) {
            for (int64_t i = 0; i <= n_stored[s] / k_kv_page_tokens; ++i) {
                pages_.push_back(std::make_unique<Chunk[]>(page_bytes / sizeof(Chunk) + 1));
                std::memset(pages_.back().get(), 0xFF, page_bytes);
                tables_[s].push_back(pages_.back()[0].bytes);
            }
            sequences_[s] = {&layout_, tables_[s]};
            for (int64_t p = 0; p < n_stored[s]; ++p) {
                for (int64_t head = 0; head < heads.n_head_kv; ++head) {
                    exact::encode_kv_row(k_format, random.normal(heads.head_dim).data(), heads.head_dim,
                                         key(s, head, p));
                    exact::encode_kv_row(v_format, random.normal(heads.head_dim).data(), heads.head_dim,
                                         value(s, head, p));
                }
            }
        }
    }

    KvRow row(size_t sequence, int64_t position) const { return {&sequences_[sequence], position}; }
    const KvLayout& layout() const { return layout_; }
    Heads heads() const { return heads_; }
    uint8_t* key(size_t s, int64_t head, int64_t p) const {
        return at(s, p) + layout_.k_offset(k_layer, head) + p % k_kv_page_tokens * layout_.k_token_bytes();
    }
    uint8_t* value(size_t s, int64_t head, int64_t p) const {
        return at(s, p) + layout_.v_offset(k_layer, head) + p % k_kv_page_tokens * layout_.v_token_bytes();
    }
    size_t sequence_of(const KvRow& row) const {
        return static_cast<size_t>(row.sequence - sequences_.data());
    }

  private:
    uint8_t* at(size_t s, int64_t p) const {
        return reinterpret_cast<uint8_t*>(tables_[s][static_cast<size_t>(p / k_kv_page_tokens)]);
    }
    KvLayout layout_;
    Heads heads_;
    std::vector<std::unique_ptr<Chunk[]>> pages_;
    std::vector<KvSequence> sequences_;
    std::vector<std::vector<std::byte*>> tables_;
};

// What a batch brings to the device.
struct Batch {
    std::vector<uint64_t> pages;
    std::vector<int64_t> first_page;
    std::vector<int32_t> position;
    exact::Cache cache;

    Batch(const TestCache& test, const std::vector<KvRow>& rows) {
        for (const KvRow& row : rows) {
            first_page.push_back(static_cast<int64_t>(pages.size()));
            position.push_back(static_cast<int32_t>(row.position));
            for (std::byte* page : row.sequence->pages) pages.push_back(reinterpret_cast<uint64_t>(page));
        }
        const KvLayout& layout = test.layout();
        cache = {.pages = pages.data(),
                 .first_page = first_page.data(),
                 .position = position.data(),
                 .k_format = layout.k_format,
                 .v_format = layout.v_format,
                 .k_at = layout.k_offset(k_layer, 0),
                 .v_at = layout.v_offset(k_layer, 0),
                 .k_head_bytes = k_kv_page_tokens * layout.k_token_bytes(),
                 .v_head_bytes = k_kv_page_tokens * layout.v_token_bytes(),
                 .k_token_bytes = layout.k_token_bytes(),
                 .v_token_bytes = layout.v_token_bytes(),
                 .n_head = test.heads().n_head,
                 .n_head_kv = test.heads().n_head_kv,
                 .head_dim = test.heads().head_dim};
    }
};

// Calls `run` with the threads in both orders, checks that the results are equal, and returns the result.
template <typename Run>
auto in_both_orders(const Run& run) {
    auto forwards = run();
    const auto backwards = [&] {
        const Emulating how({.backwards = true});
        return run();
    }();
    CHECK(std::memcmp(forwards.data(), backwards.data(), forwards.size() * sizeof(forwards[0])) == 0);
    return forwards;
}

struct Splits {
    int64_t wide = 1;
    int64_t narrow = 1;
};

// Returns whether the blocks are o, quantised.
inline bool are_quantized(const std::vector<fast::Q8Block>& blocks, const std::vector<float>& o) {
    std::vector<fast::Q8Block> expected(blocks.size());
    fast::quantize(nullptr, o.data(), 1, std::ssize(o), expected.data());
    finish_kernels();
    return std::memcmp(blocks.data(), expected.data(), blocks.size() * sizeof(fast::Q8Block)) == 0;
}

// Attends once, with the settings of emulation().
inline std::vector<float> attend_once(const TestCache& test, const std::vector<KvRow>& rows,
                                      const std::vector<uint16_t>& query, Splits splits,
                                      int64_t n_empty = 0) {
    const Heads heads = test.heads();
    const Batch batch(test, rows);
    std::vector<int32_t> tiles(2 * rows.size() + 2 * static_cast<size_t>(n_empty), -1);
    const fast::TileCounts counts = fast::make_tiles(rows, heads.n_head, heads.n_head_kv, tiles);
    const int64_t n_blocks = std::max(counts.n_wide * splits.wide * fast::k_wide_rows,
                                      (counts.n_narrow + n_empty) * splits.narrow * fast::k_narrow_rows) *
                             heads.n_head_kv;
    std::vector<float> partial(static_cast<size_t>(n_blocks * (heads.head_dim + 2)), NAN);
    std::vector<float> o(query.size(), NAN);
    std::vector<fast::Q8Block> quantized(o.size() / 32);
    fast::attend(nullptr,
                 {.cache = batch.cache,
                  .query = query.data(),
                  .wide = {tiles.data(), counts.n_wide, splits.wide},
                  .narrow = {tiles.data() + 2 * counts.n_wide, counts.n_narrow + n_empty, splits.narrow},
                  .partial = partial.data(),
                  .o = o.data(),
                  .quantized = quantized.data(),
                  .is_one_row = rows.size() == 1});
    finish_kernels();
    if ((counts.n_wide == 0 || splits.wide > 1) && (counts.n_narrow == 0 || splits.narrow > 1))
        CHECK(are_quantized(quantized, o));
    return o;
}

inline std::vector<float> run_attend(const TestCache& test, const std::vector<KvRow>& rows,
                                     const std::vector<uint16_t>& query, Splits splits, int64_t n_empty = 0) {
    return in_both_orders([&] { return attend_once(test, rows, query, splits, n_empty); });
}

// Returns the outputs with tiles and parts that do not depend on the batch.
inline std::vector<float> run_fixed_attend(const TestCache& test, const std::vector<KvRow>& rows,
                                           const std::vector<uint16_t>& query) {
    const Heads heads = test.heads();
    const Batch batch(test, rows);
    std::vector<int32_t> tiles(2 * rows.size(), -1);
    const fast::TileCounts counts = fast::make_tiles(rows, heads.n_head, heads.n_head_kv, tiles, true);
    CHECK(counts.n_narrow == 0);
    const int64_t bytes = fast::fixed_partial_bytes(std::ssize(rows), heads.n_head_kv, heads.head_dim);
    std::vector<float> partial(static_cast<size_t>(bytes) / sizeof(float), NAN);
    std::vector<float> o(query.size(), NAN);
    std::vector<fast::Q8Block> quantized(o.size() / 32);
    fast::attend(nullptr, {.cache = batch.cache,
                           .query = query.data(),
                           .wide = {tiles.data(), counts.n_wide, fast::k_fixed_parts, fast::k_fixed_tiles},
                           .narrow = {tiles.data() + 2 * counts.n_wide, 0, 1},
                           .partial = partial.data(),
                           .o = o.data(),
                           .quantized = quantized.data(),
                           .is_one_row = rows.size() == 1});
    CHECK(are_quantized(quantized, o));
    return o;
}

// Returns the largest difference in proportion to the largest value.
template <typename Expected>
double distance(const std::vector<float>& a, const std::vector<Expected>& b) {
    double largest = 1e-30;
    double difference = 0.0;
    for (size_t i = 0; i < b.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(b[i])));
        const double off = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        if (off != off) return INFINITY;
        difference = std::max(difference, off);
    }
    return difference / largest;
}

inline std::vector<KvRow> run_of(const TestCache& test, size_t sequence, int64_t first, int64_t count) {
    std::vector<KvRow> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(test.row(sequence, first + i));
    return rows;
}

struct Formats {
    Format k;
    Format v;
};
inline constexpr Formats k_formats[] = {
    {Format::f16, Format::f16},   {Format::f32, Format::f32},   {Format::bf16, Format::bf16},
    {Format::q8_0, Format::q8_0}, {Format::q4_0, Format::q4_0}, {Format::q8_0, Format::f16},
    {Format::f16, Format::q4_0},
};

// The tolerance of F16 arithmetic, in proportion to the largest value.
inline constexpr double k_tolerance = 1e-3;

}  // namespace minim::test
