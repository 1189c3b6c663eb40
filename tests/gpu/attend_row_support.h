// SPDX-License-Identifier: Apache-2.0
// One row prepared and attended, by one kernel or by the separate ones, over a cache that does not have the row's key and
// value yet.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "gpu/attend_support.h"

namespace minim::test {

// What the kernels make of a row: o and its quantised form, and the pages of the KV cache.
struct RowResult {
    std::vector<float> o;
    std::vector<fast::Q8Block> quantized;
    std::vector<uint8_t> cached;

    bool operator==(const RowResult& other) const { return bytes() == other.bytes(); }
    // For in_both_orders() and the like.
    std::vector<uint8_t> bytes() const {
        std::vector<uint8_t> all = cached;
        const auto add = [&](const auto& some) {
            const auto* first = reinterpret_cast<const uint8_t*>(some.data());
            all.insert(all.end(), first, first + some.size() * sizeof(some[0]));
        };
        add(o);
        add(quantized);
        return all;
    }
};

class RowOfText {
  public:
    // The cache is random up to `position`, and NaN from there on.
    RowOfText(Heads heads, Formats formats, int64_t position, int64_t n_frequency)
        : cache_(heads, formats.k, formats.v, {position}),
          row_{cache_.row(0, position)},
          batch_(cache_, {row_}),
          arrived_(static_cast<size_t>(heads.n_head_kv), 0) {
        Random random(17);
        q = random.normal(heads.n_head * heads.head_dim, 3.0F);
        k = random.normal(heads.n_head_kv * heads.head_dim, 2.0F);
        v = random.normal(heads.n_head_kv * heads.head_dim);
        q_norm_ = random.normal(heads.n_head * heads.head_dim);
        k_norm_ = random.normal(heads.n_head_kv * heads.head_dim);
        frequency_ = frequencies(n_frequency);
        query_.resize(q.size());
    }

    fast::PrepareArgs prepare_args() {
        return {.cache = batch_.cache,
                .n = 1,
                .q = q.data(),
                .k = k.data(),
                .v = v.data(),
                .q_norm = q_norm_.data(),
                .k_norm = k_norm_.data(),
                .norm_eps = 1e-6F,
                .frequency = frequency_.data(),
                .n_frequency = std::ssize(frequency_),
                .hadamard = batch_.cache.k_format == Format::q4_0,
                .query = query_.data()};
    }
    // The counters of arrived blocks stay from call to call, as in a stream.
    RowResult in_one(int64_t n_splits) {
        begin(n_splits);
        fast::attend_row(nullptr, {.prepare = prepare_args(),
                                   .n_splits = n_splits,
                                   .partial = partial_.data(),
                                   .arrived = arrived_.data(),
                                   .o = result_.o.data(),
                                   .quantized = result_.quantized.data(),
                                   .prefetches = true});
        finish_kernels();
        CHECK(std::ranges::count(arrived_, 0) == std::ssize(arrived_));
        return end();
    }
    RowResult separately(int64_t n_splits) {
        begin(n_splits);
        int32_t tiles[2] = {};
        CHECK(fast::make_tiles({&row_, 1}, heads().n_head, heads().n_head_kv, tiles).n_narrow == 1);
        fast::prepare(nullptr, prepare_args());
        fast::attend(nullptr, {.cache = batch_.cache,
                               .query = query_.data(),
                               .wide = {nullptr, 0, 1},
                               .narrow = {tiles, 1, n_splits},
                               .partial = partial_.data(),
                               .o = result_.o.data(),
                               .quantized = result_.quantized.data()});
        if (n_splits == 1)
            fast::quantize(nullptr, result_.o.data(), 1, std::ssize(result_.o), result_.quantized.data());
        finish_kernels();
        return end();
    }

    std::vector<float> q, k, v;

  private:
    Heads heads() const { return cache_.heads(); }
    // Forgets what an earlier call has made.
    void begin(int64_t n_splits) {
        for (int64_t head = 0; head < heads().n_head_kv; ++head) {
            std::memset(cache_.key(0, head, row_.position), 0xFF,
                        static_cast<size_t>(cache_.layout().k_token_bytes()));
            std::memset(cache_.value(0, head, row_.position), 0xFF,
                        static_cast<size_t>(cache_.layout().v_token_bytes()));
        }
        partial_.assign(
            static_cast<size_t>(n_splits * heads().n_head_kv * fast::k_narrow_rows * (heads().head_dim + 2)),
            NAN);
        result_.o.assign(q.size(), NAN);
        result_.quantized.assign(q.size() / 32, {});
    }
    RowResult end() {
        result_.cached.clear();
        for (std::byte* page : row_.sequence->pages) {
            const auto* bytes = reinterpret_cast<const uint8_t*>(page);
            result_.cached.insert(result_.cached.end(), bytes, bytes + cache_.layout().page_bytes());
        }
        return result_;
    }

    TestCache cache_;
    KvRow row_;
    Batch batch_;
    std::vector<float> q_norm_, k_norm_, frequency_;
    std::vector<uint16_t> query_;
    std::vector<float> partial_;
    std::vector<int32_t> arrived_;
    RowResult result_;
};

}  // namespace minim::test
