// SPDX-License-Identifier: Apache-2.0
// The launches of a decoding step, and when a norm is one of them: the norm of one row is computed with the operation after it,
// or launched before any other one.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "gpu/fixture.h"
#include "gpu/launch_paths.h"
#include "gpu/models.h"
#include "gpu/recorder.h"
#include "gpu/text_on_device.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::LinearTask;
using backend::Matrix;

constexpr int64_t k_size = 512;
constexpr float k_eps = 1e-6F;

// What operations need, on a device; h is NaN until it is written.
struct Operands {
    explicit Operands(Fixture& fixture, int64_t n_rows = 1) : f(fixture), n(n_rows) {
        Random random(4);
        const std::vector<float> host_x = random.normal(n * k_size);
        const std::vector<float> host_weight = random.normal(k_size);
        expected.resize(host_x.size());
        f.reference->norm(*f.none, host_x.data(), n, {host_weight.data(), k_size}, k_eps, expected.data());
        x = f.put(host_x);
        weight = {f.put(host_weight), k_size};
        h = f.put(std::vector<float>(host_x.size(), NAN));
        other = f.put(host_x);
        y = f.put(std::vector<float>(host_x.size()));
        y_head = f.put(std::vector<float>(16400));
        packed = f.put_packed(TestMatrix(Format::q8_0, 48, k_size, random));
        head = f.put_packed(TestMatrix(Format::q4_0, 16400, k_size, random));
        plain = f.put(TestMatrix(Format::bf16, 48, k_size, random));
        router = f.put(TestMatrix(Format::f32, 9, k_size, random));
        ids = f.put(std::vector<int32_t>(static_cast<size_t>(3 * n)));
        gates = f.put(std::vector<float>(static_cast<size_t>(3 * n)));
        f.device->synchronize(*f.stream);
    }
    void norm() { f.device->norm(*f.stream, x, n, weight, k_eps, h); }
    void linear(const Matrix& matrix, const float* input, float* output) {
        const LinearTask task = {&matrix, output, false};
        f.device->linear(*f.stream, input, n, {&task, 1});
    }
    void route(const float* input) { f.device->route(*f.stream, input, n, router, {}, 3, ids, gates); }
    // Does `next` after a norm, and returns how many kernels both have launched. h must have been written by then.
    int64_t launches_with(const std::function<void()>& next) {
        const int64_t before = kernels_launched();
        norm();
        next();
        const int64_t count = kernels_launched() - before;
        std::vector<float> out(expected.size());
        f.device->read(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(h),
                       out.size() * sizeof(float));
        CHECK(distance(expected, out) < 1e-6);
        f.device->synchronize(*f.stream);
        const std::vector<float> none(expected.size(), NAN);
        f.device->write(reinterpret_cast<std::byte*>(h), reinterpret_cast<const std::byte*>(none.data()),
                        none.size() * sizeof(float));
        return count;
    }

    Fixture& f;
    int64_t n;
    std::vector<float> expected;
    float* x;
    backend::Vector weight;
    float* h;
    float* other;
    float* y;
    float* y_head;
    Matrix packed, head, plain, router;
    int32_t* ids;
    float* gates;
};

// Attends with n rows of a text from position `first` on. Returns the launches, and checks the results.
int64_t launches_of_attention(Fixture& f, Format format, int64_t n, int64_t first) {
    TextOnDevice text(f, format, n, first);
    const int64_t before = kernels_launched();
    text.attend();
    const int64_t count = kernels_launched() - before;
    CHECK(text.is_near_reference());
    return count;
}

std::byte* bytes_of(float* p) {
    return reinterpret_cast<std::byte*>(p);
}

}  // namespace

TEST_CASE("launches: the norm of one row is computed with its products or with the choice of experts") {
    Fixture f(Arithmetic::fast);
    Operands with(f);
    CHECK(with.launches_with([&] { with.linear(with.packed, with.h, with.y); }) == 1);
    CHECK(with.launches_with([&] { with.route(with.h); }) == 1);
    // The quantised row is there as well: no kernel makes it.
    CHECK(with.launches_with([&] {
        with.linear(with.packed, with.h, with.y);
        with.linear(with.packed, with.h, with.y);
    }) == 2);
    CHECK(with.launches_with([&] {
        with.route(with.h);
        with.linear(with.packed, with.h, with.y);
    }) == 2);
}

TEST_CASE("launches: the norm of one row is launched before any operation that does not compute it") {
    Fixture f(Arithmetic::fast);
    Operands with(f);
    std::vector<float> host(k_size);
    const auto launches = [&](const std::function<void()>& next) { return with.launches_with(next); };
    CHECK(launches([&] { with.linear(with.plain, with.h, with.y); }) == 2);
    CHECK(launches([&] { with.linear(with.packed, with.other, with.y); }) ==
          3);  // and quantises the other row
    CHECK(launches([&] { with.route(with.other); }) == 2);
    CHECK(launches([&] { with.linear(with.head, with.h, with.y_head); }) == 2);
    CHECK(launches([&] { f.device->upload(*f.stream, bytes_of(with.y), bytes_of(host.data()), 64); }) == 1);
    CHECK(launches([&] { f.device->download(*f.stream, bytes_of(host.data()), bytes_of(with.h), 64); }) == 1);
    CHECK(launches([&] { f.device->move(*f.stream, bytes_of(with.y), bytes_of(with.h), 64); }) == 1);
    CHECK(launches([&] { f.device->scale(*f.stream, with.y, 64, 2.0F); }) == 1);
    CHECK(launches([&] { f.device->synchronize(*f.stream); }) == 1);
    CHECK(launches([&] { f.device->wait(*f.stream); }) == 1);
    CHECK(launches([&] { f.device->begin_step(*f.stream, {}); }) == 1);
    CHECK(launches([&] { f.device->end_step(*f.stream); }) == 1);
    // A second norm waits in its turn for what comes after it.
    CHECK(launches([&] { f.device->norm(*f.stream, with.x, 1, with.weight, k_eps, with.other); }) == 1);
}

TEST_CASE("launches: the norm of one row is launched before other devices and the host get what it makes") {
    Fixture f(Arithmetic::fast);
    Operands with(f);
    const auto second = cuda::make_cuda_backend(1, Arithmetic::fast);
    const auto stream = second->reserve(k_limits);
    const auto copy = second->allocate(k_size * sizeof(float), "a copy");
    CHECK(with.launches_with([&] {
        CHECK(second->receive(*stream, copy->data(), *f.device, *f.stream, bytes_of(with.h),
                              k_size * sizeof(float)));
    }) == 1);
    std::vector<float> received(k_size);
    second->read(bytes_of(received.data()), copy->data(), k_size * sizeof(float));
    CHECK(distance(with.expected, received) < 1e-6);
    const auto exchange = f.device->make_exchange(k_limits, 1);
    REQUIRE(exchange != nullptr);
    exchange->begin();
    CHECK(with.launches_with(
              [&] { f.device->post(*f.stream, *exchange, 0, with.h, with.ids, 1, 3, k_size); }) == 2);
    REQUIRE(exchange->wait(0, nullptr));
    const float* posted = exchange->turn().h;
    CHECK(distance(with.expected, std::vector<float>(posted, posted + k_size)) < 1e-6);
}

TEST_CASE("launches: a norm that cannot be a part of another kernel is launched at once") {
    {
        Fixture f(Arithmetic::deterministic);
        Operands with(f);
        CHECK(with.launches_with([] {}) == 1);
    }
    Fixture f(Arithmetic::fast);
    Operands two(f, 2);
    CHECK(two.launches_with([] {}) == 1);
    Operands with(f);
    with.h = with.x;  // in place
    CHECK(with.launches_with([] {}) == 1);
    Operands odd(f);
    ++odd.h;
    odd.expected.pop_back();
    odd.weight.size = 480;
    const int64_t before = kernels_launched();
    odd.norm();
    CHECK(kernels_launched() - before == 1);  // not aligned to 16 bytes
}

TEST_CASE("launches: products that overwrite the row or its norm come after it") {
    Fixture f(Arithmetic::fast);
    Operands with(f);
    const int64_t before = kernels_launched();
    with.norm();
    with.linear(with.packed, with.h, with.x + 100);
    CHECK(kernels_launched() - before == 2);
    const std::vector<float> after = f.get(with.h, k_size);
    CHECK(distance(with.expected, after) < 1e-6);
}

TEST_CASE("launches: attention is prepared, computed, and joined if several blocks share a context") {
    Fixture f(Arithmetic::fast);
    for (const Format format : {Format::f16, Format::f32, Format::q8_0}) {
        INFO(traits(format).name);
        for (const int64_t n : {1, 2}) {
            CHECK(launches_of_attention(f, format, n, 0) == 2);
            CHECK(launches_of_attention(f, format, n, 130) == 3);
        }
    }
    Fixture deterministic(Arithmetic::deterministic);
    CHECK(launches_of_attention(deterministic, Format::f16, 1, 0) == 3);
}

TEST_CASE(
    "launches: with the stream path, the four kernels of a layer that multiply weights are stream kernels") {
    const std::string path = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
    const SetLaunchPaths set("stream");
    const auto model = open_on(path, {0}, Arithmetic::fast);
    const int64_t n_layer = model->config().n_layer;
    const Logger silent;
    const auto stream_kernels_of = [&](const std::shared_ptr<const model::Model>& some, size_t n_rows) {
        engine::SessionParams params;
        params.n_context = 100;
        engine::Session session(some, params, silent);
        std::vector<float> logits(n_rows * static_cast<size_t>(some->config().n_vocab));
        const int64_t launched = kernels_launched();
        const int64_t together = kernels_together();
        session.eval(some_ids(n_rows), true, logits, nullptr);
        const int64_t n_together = kernels_together() - together;
        // A block has all of the row's context: no kernel joins parts and quantises them, but the stream kernel of o does.
        if (n_rows == 1) CHECK(kernels_launched() - launched == (n_together > 0 ? 7 : 8) * n_layer + 1);
        return n_together;
    };
    for (const size_t n_rows : {1, 4}) CHECK(stream_kernels_of(model, n_rows) == 4 * n_layer + 1);
    CHECK(stream_kernels_of(model, 5) == 2 * n_layer);  // of the experts
    CHECK(stream_kernels_of(open_on(path, {0}, Arithmetic::deterministic), 4) == 0);
    // Blocks that cannot all run at once, as under a tool that adds to them, and devices that have no bulk copies.
    {
        const bool run = std::exchange(blocks_run_together(), false);
        for (const size_t n_rows : {1, 5}) CHECK(stream_kernels_of(model, n_rows) == 0);
        const std::vector<float> in_tiles = logits(model, Format::f16, 5, 5);
        blocks_run_together() = run;
        CHECK(distance(logits(model, Format::f16, 5, 5), in_tiles) < 5e-3);
    }
    const bool before = std::exchange(has_bulk_copies(), false);
    CHECK(stream_kernels_of(open_on(path, {0}, Arithmetic::fast), 1) == 0);
    has_bulk_copies() = before;
}

TEST_CASE(
    "launches: with the stream path, floats of up to four rows are quantised by the kernel that multiplies "
    "them") {
    constexpr int64_t k_cols = 512;
    Random random(46);
    const TestMatrix first(Format::q8_0, 48, k_cols, random);
    const TestMatrix second(Format::q4_k, 37, k_cols, random);  // rows that are not packed, too
    const std::vector<float> x = random.normal(5 * k_cols + 1);
    struct Run {
        std::vector<float> y[3];
        int64_t launches[3];
    };
    // Products of both matrices, of the first one with the last row alone, and of both with floats that are not aligned.
    const auto run = [&](const char* paths, int64_t n) {
        const SetLaunchPaths set(paths);
        Fixture f(Arithmetic::fast);
        const Matrix weights[] = {f.put_packed(first), f.put_packed(second)};
        const float* rows = f.put(x);
        float* y[3];
        for (float*& each : y) each = f.put(std::vector<float>(static_cast<size_t>(n * (48 + 37))));
        Run all;
        for (int i = 0; i < 3; ++i) {
            const int64_t count = i == 1 ? 1 : n;
            const LinearTask tasks[] = {{&weights[0], y[i], false}, {&weights[1], y[i] + count * 48, false}};
            const float* from = i == 0 ? rows : i == 1 ? rows + (n - 1) * k_cols : rows + 1;
            const int64_t before = kernels_launched();
            f.device->linear(*f.stream, from, count, std::span(tasks, i == 1 ? 1 : 2));
            all.launches[i] = kernels_launched() - before;
        }
        for (int i = 0; i < 3; ++i) all.y[i] = f.get(y[i], static_cast<size_t>(n * (48 + 37)));
        return all;
    };
    for (const int64_t n : {1, 4, 5}) {
        INFO(n << " rows");
        const Run plain = run("", n);
        const Run streamed = run("stream", n);
        // The row of the second operation has been quantised by the first one. The exact kernel of the rest is not counted.
        CHECK(std::ranges::equal(plain.launches, std::array<int64_t, 3>{3, 1, 3}));
        CHECK(std::ranges::equal(streamed.launches,
                                 n == 5 ? std::array<int64_t, 3>{3, 1, 3} : std::array<int64_t, 3>{2, 1, 3}));
        for (int i = 0; i < 3; ++i) CHECK(distance(plain.y[i], streamed.y[i]) < 1e-5);
    }
}

TEST_CASE("launches: with the stream path, recorded steps give the bits of steps that are launched") {
    const SetLaunchPaths set("stream");
    const auto model =
        open_on(std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf", {0}, Arithmetic::fast);
    const int64_t n_repeats = records().n_repeats;
    const std::vector<float> recorded = logits(model, Format::f16, 5, 1);
    CHECK(records().n_repeats > n_repeats);
    records().refuse = true;
    CHECK(same_bits(recorded, logits(model, Format::f16, 5, 1)));
    records().refuse = false;
}

TEST_CASE("launches: a layer of a decoding step takes eight") {
    const auto model =
        open_on(std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf", {0}, Arithmetic::fast);
    const Logger silent;
    engine::SessionParams params;
    params.n_context = 100;
    engine::Session session(model, params, silent);
    std::vector<float> logits(static_cast<size_t>(model->config().n_vocab));
    session.eval(some_ids(3), false, {}, nullptr);
    const int64_t before = kernels_launched();
    session.eval(some_ids(1), true, logits, nullptr);
    // The embedding's kernel is not counted; the last norm is computed with the head.
    CHECK(kernels_launched() - before == 8 * model->config().n_layer + 1);
}

}  // namespace minim::test
