// SPDX-License-Identifier: Apache-2.0
// Tests the preparation of attention, thread by thread, against the exact items.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/attend_support.h"

namespace minim::test {
namespace {

constexpr float k_eps = 1e-6F;

// The rows of a batch normalised, turned and stored: by the kernel, and item by item.
struct Prepared {
    std::vector<float> q, k, v, q_norm, k_norm, frequency;
    std::vector<float> exact_q, exact_k;
    bool norms_heads = false;  // by the first head_dim weights

    Prepared(Heads heads, int64_t n, int64_t n_frequency) {
        Random norms(10);
        q_norm = norms.normal(heads.n_head * heads.head_dim);
        k_norm = norms.normal(heads.n_head_kv * heads.head_dim);
        Random random(11);  // the first rows are the same for every row count
        q = random.normal(n * heads.n_head * heads.head_dim, 3.0F);
        k = random.normal(n * heads.n_head_kv * heads.head_dim, 2.0F);
        v = random.normal(n * heads.n_head_kv * heads.head_dim);
        frequency = frequencies(n_frequency);
    }
    fast::PrepareArgs args(const exact::Cache& cache, uint16_t* query) const {
        return {.cache = cache,
                .n = std::ssize(v) / (cache.n_head_kv * cache.head_dim),
                .q = q.data(),
                .k = k.data(),
                .v = v.data(),
                .q_norm = q_norm.data(),
                .k_norm = k_norm.data(),
                .norm_eps = k_eps,
                .norms_heads = norms_heads,
                .squares = nullptr,
                .n_squares_q = 0,
                .n_squares_k = 0,
                .frequency = frequency.data(),
                .n_frequency = std::ssize(frequency),
                .hadamard = cache.k_format == Format::q4_0,
                .query = query};
    }
    void prepare_exactly(const exact::Cache& cache) {
        const auto prepare = [&](const std::vector<float>& from, const std::vector<float>& norm,
                                 int64_t n_head) {
            std::vector<float> heads = from;
            const int64_t size = norms_heads ? cache.head_dim : n_head * cache.head_dim;
            for (int64_t row = 0; row < std::ssize(from) / size; ++row)
                exact::NormItem{heads.data(), norm.data(), size, k_eps, heads.data()}(row);
            for (int64_t item = 0; item < std::ssize(from) / cache.head_dim; ++item)
                exact::RotateItem{heads.data(),
                                  n_head,
                                  cache.head_dim,
                                  cache.position,
                                  frequency.data(),
                                  std::ssize(frequency),
                                  cache.k_format == Format::q4_0}(item);
            return heads;
        };
        exact_q = prepare(q, q_norm, cache.n_head);
        exact_k = prepare(k, k_norm, cache.n_head_kv);
    }
};

// A key may differ by one step of its format if the number that is rounded differs in the last bit.
double step_of(Format format, float largest) {
    const auto size = static_cast<double>(largest);
    if (format == Format::f32) return size * 1e-6;
    if (format == Format::f16) return size / 1024;
    if (format == Format::bf16) return size / 128;
    return format == Format::q8_0 ? size / 100 : size / 6;
}

}  // namespace

TEST_CASE("prepare: queries, keys and values are prepared as the exact items do it") {
    struct Case {
        Heads heads;
        int64_t n_frequency;
        Format k, v;
        bool norms_heads = false;
    };
    for (const Case& c :
         {Case{{12, 2, 128}, 32, Format::f16, Format::f32},
          Case{{32, 2, 128}, 32, Format::f16, Format::f16, true},
          Case{{3, 1, 96}, 48, Format::q8_0, Format::bf16, true},
          Case{{12, 2, 128}, 32, Format::q4_0, Format::q8_0},
          Case{{9, 9, 32}, 16, Format::q4_0, Format::q4_0}, Case{{4, 4, 64}, 8, Format::q8_0, Format::f16},
          Case{{3, 1, 96}, 48, Format::bf16, Format::bf16}, Case{{18, 9, 32}, 8, Format::f16, Format::bf16},
          Case{{2, 1, 64}, 20, Format::f32, Format::q4_0}}) {
        INFO(traits(c.k).name << " " << traits(c.v).name);
        const TestCache test(c.heads, c.k, c.v, {0, 64, 1, 4000});
        std::vector<KvRow> rows = {test.row(0, 0), test.row(1, 63), test.row(1, 64), test.row(2, 1)};
        rows.push_back(test.row(3, 3999));
        const Batch batch(test, rows);
        Prepared p(c.heads, std::ssize(rows), c.n_frequency);
        p.norms_heads = c.norms_heads;
        std::fill_n(p.v.begin(), 32, -0.0F);                     // a block without a scale
        p.v[static_cast<size_t>(c.heads.head_dim) + 5] = -9.0F;  // of two equals the first sets the scale
        p.v[static_cast<size_t>(c.heads.head_dim) + 9] = 9.0F;
        p.prepare_exactly(batch.cache);
        const std::vector<uint16_t> query = in_both_orders([&] {
            std::vector<uint16_t> out(p.q.size(), 0x7E00);
            fast::prepare(nullptr, p.args(batch.cache, out.data()));
            return out;
        });
        std::vector<float> q;
        for (const uint16_t x : query) q.push_back(f16_to_float(x) / fast::query_scale(c.heads.head_dim));
        CHECK(distance(q, p.exact_q) < 5e-4);

        int64_t n_different = 0;
        for (size_t r = 0; r < rows.size(); ++r) {
            for (int64_t head = 0; head < c.heads.n_head_kv; ++head) {
                const int64_t at = (static_cast<int64_t>(r) * c.heads.n_head_kv + head) * c.heads.head_dim;
                std::vector<uint8_t> expected(static_cast<size_t>(test.layout().v_token_bytes()));
                exact::encode_kv_row(c.v, p.v.data() + at, c.heads.head_dim, expected.data());
                CHECK(std::memcmp(expected.data(),
                                  test.value(test.sequence_of(rows[r]), head, rows[r].position),
                                  expected.size()) == 0);

                expected.resize(static_cast<size_t>(test.layout().k_token_bytes()));
                const float* key = p.exact_k.data() + at;
                exact::encode_kv_row(c.k, key, c.heads.head_dim, expected.data());
                const uint8_t* stored = test.key(test.sequence_of(rows[r]), head, rows[r].position);
                if (std::memcmp(expected.data(), stored, expected.size()) != 0) ++n_different;
                const double step = step_of(c.k, largest_magnitude(key, static_cast<int>(c.heads.head_dim)));
                for (int64_t d = 0; d < c.heads.head_dim; ++d)
                    CHECK(std::abs(static_cast<double>(exact::kv_element(c.k, stored, d)) -
                                   static_cast<double>(exact::kv_element(c.k, expected.data(), d))) <= step);
            }
        }
        if (c.k == Format::q8_0 || c.k == Format::q4_0 || c.k == Format::bf16)
            CHECK(n_different <= std::ssize(rows) * c.heads.n_head_kv / 4);
    }
}

TEST_CASE("prepare: query heads are prepared alike by one block and by many") {
    const Heads heads = {20, 1, 32};
    const TestCache test(heads, Format::f16, Format::f16, {40});
    const auto prepare = [&](int64_t n) {
        const Batch batch(test, run_of(test, 0, 0, n));
        const Prepared p(heads, n, 12);
        return in_both_orders([&] {
            std::vector<uint16_t> query(p.q.size());
            fast::prepare(nullptr, p.args(batch.cache, query.data()));
            return query;
        });
    };
    const std::vector<uint16_t> one = prepare(1);
    std::vector<uint16_t> many = prepare(33);
    many.resize(one.size());
    CHECK(many == one);
}

TEST_CASE("prepare: angles are exact at far positions") {
    const Heads heads = {1, 1, 64};
    const TestCache test(heads, Format::f32, Format::f32, {1});
    const std::vector<int64_t> positions = {65536, 131071, 199999};
    for (const int64_t position : positions) {
        Batch batch(test, {test.row(0, 0)});
        batch.position[0] = static_cast<int32_t>(position);
        batch.pages.assign(static_cast<size_t>(position / k_kv_page_tokens + 1), batch.pages[0]);
        batch.cache.pages = batch.pages.data();
        Prepared p(heads, 1, 32);
        p.prepare_exactly(batch.cache);
        std::vector<uint16_t> query(64);
        fast::prepare(nullptr, p.args(batch.cache, query.data()));
        const uint8_t* stored = test.key(0, 0, position % k_kv_page_tokens);
        std::vector<float> k(64);
        std::memcpy(k.data(), stored, sizeof(float) * k.size());
        CHECK(distance(k, p.exact_k) < 5e-7);
    }
}

TEST_CASE("prepare: with attention after it, a batch is as the exact items give it") {
    const Heads heads = {12, 2, 64};
    for (const Formats& formats : k_formats) {
        INFO(traits(formats.k).name << " " << traits(formats.v).name);
        const TestCache test(heads, formats.k, formats.v, {64, 2, 130});
        std::vector<KvRow> rows = run_of(test, 0, 59, 5);
        rows.push_back(test.row(1, 1));
        rows.push_back(test.row(2, 129));
        const Batch batch(test, rows);
        Prepared p(heads, std::ssize(rows), 16);
        p.prepare_exactly(batch.cache);
        const std::vector<uint16_t> query = in_both_orders([&] {
            std::vector<uint16_t> out(p.q.size());
            fast::prepare(nullptr, p.args(batch.cache, out.data()));
            return out;
        });
        const std::vector<float> o = run_attend(test, rows, query, {.narrow = 2});
        std::vector<float> expected(o.size());
        for (int64_t item = 0; item < std::ssize(rows) * heads.n_head_kv; ++item)
            exact::StoreItem{batch.cache, p.exact_k.data(), p.v.data()}(item);
        for (int64_t item = 0; item < std::ssize(rows) * heads.n_head; ++item)
            exact::AttendItem{batch.cache, p.exact_q.data(), expected.data()}(item);
        CHECK(distance(o, expected) < k_tolerance);
    }
}

}  // namespace minim::test
