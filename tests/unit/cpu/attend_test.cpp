// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "cpu/cpu_backend.h"
#include "cpu/scratch.h"
#include "format/encode.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

using backend::AttendArgs;
using backend::KvLayout;
using backend::KvRow;
using backend::KvSequence;

constexpr int64_t k_layers = 2;
constexpr int64_t k_layer = 1;

struct Shape {
    int64_t n_head;
    int64_t n_head_kv;
    int64_t head_dim;
    int64_t rotary;
    Format k_format = Format::f32;
    Format v_format = Format::f32;

    int64_t q_size() const { return n_head * head_dim; }
    int64_t k_size() const { return n_head_kv * head_dim; }
};

// A KV cache with one sequence.
struct Cache {
    KvLayout layout;
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::byte*> pages;
    KvSequence sequence;

    Cache(const Shape& shape, int64_t n_positions)
        : layout{k_layers, shape.n_head_kv, shape.head_dim, shape.k_format, shape.v_format} {
        for (int64_t p = 0; p < n_positions; p += backend::k_kv_page_tokens) {
            memory.emplace_back(static_cast<size_t>(layout.page_bytes()), std::byte{0xFF});
            pages.push_back(memory.back().data());
        }
        sequence = {&layout, pages};
    }
    Cache(const Cache&) = delete;
};

// The rows of one prompt before normalisation: [n][q_size], [n][k_size], [n][k_size].
struct Prompt {
    int64_t n;
    std::vector<float> q, k, v, q_norm, k_norm, frequency;

    Prompt(const Shape& shape, int64_t count, uint32_t seed) : n(count) {
        Random random(seed);
        q = random.normal(n * shape.q_size());
        k = random.normal(n * shape.k_size());
        v = random.normal(n * shape.k_size());
        q_norm = random.normal(shape.q_size());
        k_norm = random.normal(shape.k_size());
        for (int64_t i = 0; i < shape.rotary / 2; ++i) {
            frequency.push_back(static_cast<float>(
                std::pow(5e6, -2.0 * static_cast<double>(i) / static_cast<double>(shape.rotary))));
        }
    }
};

// Attends the rows in chunks and returns all outputs.
std::vector<float> attend(CpuLevel level, int32_t n_threads, const Shape& shape, const Prompt& prompt,
                          int64_t chunk, Cache& cache) {
    const ThreadPool pool(n_threads);
    const auto backend = cpu::make_cpu_backend(pool, level);
    const auto scratch = backend->reserve({.n_rows = chunk,
                                           .n_context = prompt.n,
                                           .n_head = shape.n_head,
                                           .n_head_kv = shape.n_head_kv,
                                           .head_dim = shape.head_dim});
    std::vector<float> q = prompt.q;
    std::vector<float> k = prompt.k;
    std::vector<float> o(q.size());
    for (int64_t i = 0; i < prompt.n; i += chunk) {
        std::vector<KvRow> rows;
        for (int64_t p = i; p < std::min(i + chunk, prompt.n); ++p) rows.push_back({&cache.sequence, p});
        AttendArgs args;
        args.n = static_cast<int64_t>(rows.size());
        args.q = q.data() + i * shape.q_size();
        args.k = k.data() + i * shape.k_size();
        args.v = prompt.v.data() + i * shape.k_size();
        args.o = o.data() + i * shape.q_size();
        args.rows = rows;
        args.layer = k_layer;
        args.n_head = shape.n_head;
        args.n_head_kv = shape.n_head_kv;
        args.head_dim = shape.head_dim;
        args.q_norm = {prompt.q_norm.data(), shape.q_size()};
        args.k_norm = {prompt.k_norm.data(), shape.k_size()};
        args.norm_eps = 1e-6F;
        args.rope_frequency = prompt.frequency;
        backend->attend(*scratch, args);
    }
    return o;
}

std::vector<double> normalised(const float* x, const std::vector<float>& weight) {
    double squares = 0.0;
    for (size_t i = 0; i < weight.size(); ++i)
        squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(weight.size()) + 1e-6);
    std::vector<double> y(weight.size());
    for (size_t i = 0; i < y.size(); ++i)
        y[i] = static_cast<double>(x[i]) * factor * static_cast<double>(weight[i]);
    return y;
}

void rotate(std::vector<double>& heads, int64_t head_dim, int64_t position,
            const std::vector<float>& frequency) {
    for (size_t head = 0; head < heads.size(); head += static_cast<size_t>(head_dim)) {
        for (size_t i = 0; i < frequency.size(); ++i) {
            const double angle = static_cast<double>(position) * static_cast<double>(frequency[i]);
            const double a = heads[head + i];
            const double b = heads[head + i + frequency.size()];
            heads[head + i] = a * std::cos(angle) - b * std::sin(angle);
            heads[head + i + frequency.size()] = b * std::cos(angle) + a * std::sin(angle);
        }
    }
}

// Rotates heads as keys that are stored in four bits: component j becomes the sum of all components i, each
// negated if i and j share an odd number of bits, divided by sqrt(head_dim).
void spread(std::vector<double>& heads, int64_t head_dim) {
    const auto n = static_cast<uint64_t>(head_dim);
    std::vector<double> sums(n);
    for (size_t head = 0; head < heads.size(); head += n) {
        for (uint64_t j = 0; j < n; ++j) {
            sums[j] = 0.0;
            for (uint64_t i = 0; i < n; ++i)
                sums[j] += std::popcount(i & j) % 2 == 0 ? heads[head + i] : -heads[head + i];
        }
        for (uint64_t j = 0; j < n; ++j) heads[head + j] = sums[j] / std::sqrt(static_cast<double>(n));
    }
}

// Returns the heads as the cache stores them: encoded and decoded again.
std::vector<double> stored(Format format, std::span<const double> heads, int64_t head_dim) {
    const std::vector<float> exact(heads.begin(), heads.end());
    std::vector<float> kept(exact.size());
    std::vector<std::byte> row(exact.size() * sizeof(float));
    for (size_t head = 0; head < exact.size(); head += static_cast<size_t>(head_dim)) {
        row_encoder(format)(exact.data() + head, head_dim, row.data());
        traits(format).decode_row(row.data(), head_dim, kept.data() + head);
    }
    return {kept.begin(), kept.end()};
}

std::vector<double> stored(Format format, std::span<const float> heads, int64_t head_dim) {
    return stored(format, std::span<const double>(std::vector<double>(heads.begin(), heads.end())), head_dim);
}

// A key between two numbers of its format may be rounded to the other one: half a unit in its last place shows in the scores.
double tolerance_of(Format k_format) {
    switch (k_format) {
        case Format::f32:
            return 2e-5;
        case Format::f16:
            return 2e-3;
        default:
            return 2e-2;
    }
}

// Returns the outputs of the attention formulas, computed in double.
std::vector<double> attend_exactly(const Shape& shape, const Prompt& prompt) {
    std::vector<std::vector<double>> keys;
    std::vector<std::vector<double>> values;
    std::vector<double> o;
    for (int64_t i = 0; i < prompt.n; ++i) {
        std::vector<double> q = normalised(prompt.q.data() + i * shape.q_size(), prompt.q_norm);
        std::vector<double> k = normalised(prompt.k.data() + i * shape.k_size(), prompt.k_norm);
        rotate(q, shape.head_dim, i, prompt.frequency);
        rotate(k, shape.head_dim, i, prompt.frequency);
        if (shape.k_format == Format::q4_0) {
            spread(q, shape.head_dim);
            spread(k, shape.head_dim);
        }
        keys.push_back(stored(shape.k_format, std::span<const double>(k), shape.head_dim));
        const std::span<const float> v(prompt.v);
        const auto k_size = static_cast<size_t>(shape.k_size());
        values.push_back(
            stored(shape.v_format, v.subspan(static_cast<size_t>(i) * k_size, k_size), shape.head_dim));
        for (int64_t head = 0; head < shape.n_head; ++head) {
            const int64_t kv = head / (shape.n_head / shape.n_head_kv) * shape.head_dim;
            std::vector<double> score;
            for (const std::vector<double>& key : keys) {
                double dot = 0.0;
                for (int64_t c = 0; c < shape.head_dim; ++c) {
                    dot +=
                        q[static_cast<size_t>(head * shape.head_dim + c)] * key[static_cast<size_t>(kv + c)];
                }
                score.push_back(dot / std::sqrt(static_cast<double>(shape.head_dim)));
            }
            const double largest = *std::max_element(score.begin(), score.end());
            double sum = 0.0;
            for (double& s : score) sum += (s = std::exp(s - largest));
            for (int64_t c = 0; c < shape.head_dim; ++c) {
                double value = 0.0;
                for (size_t p = 0; p < score.size(); ++p)
                    value += score[p] / sum * values[p][static_cast<size_t>(kv + c)];
                o.push_back(value);
            }
        }
    }
    return o;
}

}  // namespace

TEST_CASE("attend agrees with the formulas in double precision") {
    const std::vector<Shape> shapes = {
        {6, 1, 128, 64},
        {12, 2, 128, 64, Format::f16, Format::f16},
        {4, 2, 32, 32, Format::f16, Format::f32},
        {3, 3, 20, 10, Format::f32, Format::f16},
        {7, 1, 5, 2},
        {1, 1, 16, 0},
        {12, 2, 64, 32, Format::bf16, Format::bf16},
        {6, 1, 128, 64, Format::q8_0, Format::q8_0},
        {4, 2, 32, 32, Format::q8_0, Format::f16},
        {6, 1, 128, 64, Format::q4_0, Format::f32},
        {4, 2, 96, 32, Format::f32, Format::q4_0},
        {50, 1, 8, 4},
    };
    for (const Shape& shape : shapes) {
        for (const int64_t n : {1, 2, 64, 65, 150}) {
            INFO("heads " << shape.n_head << "/" << shape.n_head_kv << " dim " << shape.head_dim << " rows "
                          << n);
            const Prompt prompt(shape, n, static_cast<uint32_t>(n));
            Cache cache(shape, n);
            const std::vector<float> o = attend(detected_cpu_level(), 2, shape, prompt, n, cache);
            const std::vector<double> exact = attend_exactly(shape, prompt);
            double worst = 0.0;
            for (size_t i = 0; i < o.size(); ++i)
                worst = std::max(worst, std::abs(static_cast<double>(o[i]) - exact[i]));
            CHECK(worst <= tolerance_of(shape.k_format));
        }
    }
}

TEST_CASE("a history of several spans is attended as one", "[slow-emulated]") {
    const int64_t n = 2 * cpu::k_attend_span_positions + 70;
    const Shape shape = {4, 2, 16, 8};
    const Prompt prompt(shape, n, 3);
    const std::vector<double> exact = attend_exactly(shape, prompt);
    Cache reference(shape, n);
    const std::vector<float> expected = attend(CpuLevel::scalar, 1, shape, prompt, n, reference);
    double worst = 0.0;
    for (size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(expected[i]) - exact[i]));
    CHECK(worst <= tolerance_of(Format::f32));
    for (const CpuLevel level : cpu_levels()) {
        for (const int32_t n_threads : {1, 3}) {
            for (const int64_t chunk : {int64_t{1}, int64_t{300}, n}) {
                INFO(to_string(level) << " threads " << n_threads << " chunk " << chunk);
                Cache cache(shape, n);
                CHECK(same_bits(attend(level, n_threads, shape, prompt, chunk, cache), expected));
            }
        }
    }
}

TEST_CASE("attend stores rotated keys and plain values in the row's slot of the layer") {
    for (const Format format : {Format::f32, Format::f16}) {
        const Shape shape = {4, 2, 32, 16, format, format};
        const Prompt prompt(shape, 70, 9);
        Cache cache(shape, 70);
        attend(detected_cpu_level(), 1, shape, prompt, 70, cache);
        std::vector<double> k = normalised(prompt.k.data() + 66 * shape.k_size(), prompt.k_norm);
        rotate(k, shape.head_dim, 66, prompt.frequency);
        for (int64_t head = 0; head < 2; ++head) {
            const std::byte* slot =
                cache.pages[1] + cache.layout.k_offset(k_layer, head) + 2 * cache.layout.k_token_bytes();
            std::vector<float> key(32);
            traits(format).decode_row(slot, 32, key.data());
            for (size_t c = 0; c < 32; ++c) {
                const double exact = k[static_cast<size_t>(head) * 32 + c];
                CHECK(static_cast<double>(key[c]) ==
                      Approx(exact).epsilon(format == Format::f16 ? 5e-4 : 1e-6).margin(1e-6));
            }
            slot = cache.pages[1] + cache.layout.v_offset(k_layer, head) + 2 * cache.layout.v_token_bytes();
            std::vector<float> value(32);
            traits(format).decode_row(slot, 32, value.data());
            for (size_t c = 0; c < 32; ++c) {
                const float plain = prompt.v[static_cast<size_t>(66 * 64 + head * 32) + c];
                CHECK(value[c] == (format == Format::f16 ? f16_to_float(float_to_f16(plain)) : plain));
            }
        }
        // The other layer, and slots after the last position, are as they were.
        for (int64_t i = 0; i < cache.layout.layer_bytes(0); ++i)
            REQUIRE(cache.pages[0][i] == std::byte{0xFF});
        CHECK(cache.pages[1][cache.layout.k_offset(k_layer, 0) + 6 * cache.layout.k_token_bytes()] ==
              std::byte{0xFF});
    }
}

TEST_CASE("components beyond the rotary part are the normalised ones, bit for bit") {
    const Shape shape = {2, 1, 16, 8};
    Prompt prompt(shape, 3, 12);
    Cache cache(shape, 3);
    attend(detected_cpu_level(), 1, shape, prompt, 3, cache);
    std::vector<float> k(16);
    cpu::k_scalar_kernels.rms_norm(prompt.k.data() + 2 * 16, 16, prompt.k_norm.data(), 1e-6F, k.data());
    std::vector<float> key(16);
    std::memcpy(key.data(),
                cache.pages[0] + cache.layout.k_offset(k_layer, 0) + 2 * cache.layout.k_token_bytes(), 64);
    CHECK(same_bits(std::span(key).subspan(8), std::span(k).subspan(8)));
    CHECK_FALSE(same_bits(std::span(key).first(8), std::span(k).first(8)));
}

TEST_CASE("a row of attend has the same bits whatever the batch, the threads and the instruction set") {
    for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_0}) {
        const Shape shape = {12, 2, traits(format).block_elems > 1 ? 32 : 40, 24, format, format};
        const Prompt prompt(shape, 131, 5);
        Cache reference(shape, 131);
        const std::vector<float> expected = attend(CpuLevel::scalar, 1, shape, prompt, 131, reference);
        for (const CpuLevel level : cpu_levels()) {
            for (const int32_t n_threads : {1, 2, 3}) {
                for (const int64_t chunk : {1, 7, 64, 131}) {
                    if (n_threads == 3 && chunk == 1) continue;
                    INFO(to_string(level) << " threads " << n_threads << " chunk " << chunk);
                    Cache cache(shape, 131);
                    CHECK(same_bits(attend(level, n_threads, shape, prompt, chunk, cache), expected));
                    CHECK(cache.memory == reference.memory);
                }
            }
        }
    }
}

TEST_CASE("rows of different sequences in one batch do not see each other") {
    const Shape shape = {6, 1, 32, 16, Format::f16, Format::f16};
    const Prompt a(shape, 5, 1);
    const Prompt b(shape, 3, 2);
    Cache alone_a(shape, 5);
    Cache alone_b(shape, 3);
    const std::vector<float> o_a = attend(detected_cpu_level(), 1, shape, a, 5, alone_a);
    Prompt b_like_a = b;
    b_like_a.q_norm = a.q_norm;
    b_like_a.k_norm = a.k_norm;
    const std::vector<float> o_b = attend(detected_cpu_level(), 1, shape, b_like_a, 3, alone_b);

    // Interleaved: a0 b0 a1 b1 a2 b2 a3 a4.
    Cache cache_a(shape, 5);
    Cache cache_b(shape, 3);
    std::vector<float> q, k, v;
    std::vector<KvRow> rows;
    std::vector<float> expected;
    const auto add = [&](const Prompt& prompt, Cache& cache, const std::vector<float>& o, int64_t p) {
        q.insert(q.end(), prompt.q.begin() + p * 192, prompt.q.begin() + (p + 1) * 192);
        k.insert(k.end(), prompt.k.begin() + p * 32, prompt.k.begin() + (p + 1) * 32);
        v.insert(v.end(), prompt.v.begin() + p * 32, prompt.v.begin() + (p + 1) * 32);
        expected.insert(expected.end(), o.begin() + p * 192, o.begin() + (p + 1) * 192);
        rows.push_back({&cache.sequence, p});
    };
    for (int64_t p = 0; p < 5; ++p) {
        add(a, cache_a, o_a, p);
        if (p < 3) add(b, cache_b, o_b, p);
    }
    const ThreadPool pool(2);
    const auto backend = cpu::make_cpu_backend(pool, detected_cpu_level());
    const auto scratch =
        backend->reserve({.n_rows = 8, .n_context = 5, .n_head = 6, .n_head_kv = 1, .head_dim = 32});
    std::vector<float> o(q.size());
    AttendArgs args;
    args.n = 8;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.o = o.data();
    args.rows = rows;
    args.layer = k_layer;
    args.n_head = 6;
    args.n_head_kv = 1;
    args.head_dim = 32;
    args.q_norm = {a.q_norm.data(), 192};
    args.k_norm = {a.k_norm.data(), 32};
    args.norm_eps = 1e-6F;
    args.rope_frequency = a.frequency;
    backend->attend(*scratch, args);
    CHECK(same_bits(o, expected));

    args.n = 0;
    args.rows = {};
    backend->attend(*scratch, args);
}

}  // namespace minim::test
