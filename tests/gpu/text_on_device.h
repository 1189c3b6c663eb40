// SPDX-License-Identifier: Apache-2.0
// Rows of a text at consecutive positions, attended on a device and by the reference, over a KV cache of random numbers.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "gpu/fixture.h"

namespace minim::test {

class TextOnDevice {
  public:
    static constexpr int64_t k_heads = 12;
    static constexpr int64_t k_kv_heads = 4;
    static constexpr int64_t k_head_dim = 128;
    static constexpr int64_t k_q_width = k_heads * k_head_dim;
    static constexpr int64_t k_kv_width = k_kv_heads * k_head_dim;

    TextOnDevice(Fixture& fixture, Format format, int64_t n_rows, int64_t first)
        : f_(fixture),
          n_(n_rows),
          first_(first),
          layout_{.n_layer = 1,
                  .n_head_kv = k_kv_heads,
                  .head_dim = k_head_dim,
                  .k_format = format,
                  .v_format = format},
          frequency_(32, 0.25F) {
        Random random(21);
        for (int64_t i = 0; i <= (first + n_rows - 1) / backend::k_kv_page_tokens; ++i) {
            const int64_t cols =
                layout_.page_bytes() / traits(format).block_bytes * traits(format).block_elems;
            pages_.push_back(TestMatrix(format, 1, cols, random).bytes);
            device_pages_.push_back(reinterpret_cast<std::byte*>(f_.put(pages_.back())));
        }
        device_sequence_ = {&layout_, device_pages_};
        new_inputs(1);
        norms_ = random.normal(k_q_width + k_kv_width);
        device_norms_ = f_.put(norms_);
        device_q_ = f_.put(q_);
        device_kv_ = f_.put(kv_);
        device_o_ = f_.put(std::vector<float>(q_.size(), NAN));
        f_.device->synchronize(*f_.stream);
    }

    // Other queries, keys and values of the rows.
    void new_inputs(uint32_t seed) {
        Random random(seed);
        q_ = random.normal(n_ * k_q_width);
        kv_ = random.normal(2 * n_ * k_kv_width);
    }
    // Writes the inputs, and NaN where results will be.
    void write_inputs() {
        write(device_q_, q_);
        write(device_kv_, kv_);
        write(device_o_, std::vector<float>(q_.size(), NAN));
    }
    void start() {
        f_.device->attend(*f_.stream,
                          args_of(rows(device_sequence_), device_q_, device_kv_, device_norms_, device_o_));
    }
    // Attends, and returns o.
    std::vector<float> attend() {
        write_inputs();
        start();
        f_.device->synchronize(*f_.stream);
        return result();
    }
    std::vector<float> result() { return f_.get(device_o_, q_.size()); }
    // Returns the page of the last row.
    std::vector<std::byte> last_page() { return f_.get(device_pages_.back(), pages_.back().size()); }
    bool is_near_reference() {
        std::vector<std::vector<std::byte>> pages = pages_;
        std::vector<std::byte*> first_bytes;
        for (std::vector<std::byte>& page : pages) first_bytes.push_back(page.data());
        const backend::KvSequence sequence = {&layout_, first_bytes};
        std::vector<float> q = q_;
        std::vector<float> kv = kv_;
        std::vector<float> o(q.size());
        f_.reference->attend(*f_.none, args_of(rows(sequence), q.data(), kv.data(), norms_.data(), o.data()));
        return distance(o, result()) < 1e-2;
    }
    backend::StepBatch batch() {
        batch_rows_ = rows(device_sequence_);
        return {.ids = {}, .rows = batch_rows_, .n_head = k_heads, .n_head_kv = k_kv_heads, .calls = this};
    }

  private:
    std::vector<backend::KvRow> rows(const backend::KvSequence& sequence) const {
        std::vector<backend::KvRow> rows;
        for (int64_t i = 0; i < n_; ++i) rows.push_back({&sequence, first_ + i});
        return rows;
    }
    backend::AttendArgs args_of(const std::vector<backend::KvRow>& rows, float* q, float* kv,
                                const float* norms, float* o) {
        rows_ = rows;
        backend::AttendArgs args;
        args.n = n_;
        args.q = q;
        args.k = kv;
        args.v = kv + n_ * k_kv_width;
        args.o = o;
        args.rows = rows_;
        args.n_head = k_heads;
        args.n_head_kv = k_kv_heads;
        args.head_dim = k_head_dim;
        args.q_norm = {norms, k_q_width};
        args.k_norm = {norms + k_q_width, k_kv_width};
        args.norm_eps = 1e-6F;
        args.rope_frequency = frequency_;
        return args;
    }
    void write(float* to, const std::vector<float>& from) {
        f_.device->write(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from.data()),
                         from.size() * sizeof(float));
    }

    Fixture& f_;
    int64_t n_;
    int64_t first_;
    backend::KvLayout layout_;
    std::vector<float> frequency_, q_, kv_, norms_;
    std::vector<std::vector<std::byte>> pages_;
    std::vector<std::byte*> device_pages_;
    backend::KvSequence device_sequence_;
    std::vector<backend::KvRow> rows_, batch_rows_;
    float* device_norms_ = nullptr;
    float* device_q_ = nullptr;
    float* device_kv_ = nullptr;
    float* device_o_ = nullptr;
};

}  // namespace minim::test
