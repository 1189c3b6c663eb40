// SPDX-License-Identifier: Apache-2.0
// The norm of one row, which is computed with the operation after it if that can be done (cuda/fast/norm_row.h).
#include <cmath>

#include "gpu/fixture.h"
#include "gpu/support.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::LinearTask;
using backend::Matrix;

constexpr int64_t k_max_cols = 8192;
constexpr double k_rounding = 2.5e-2;  // of inputs of packed weights, to 8 bits
constexpr float k_eps = 1e-6F;

// A row and a norm, on both sides; h is NaN on the device until it is written.
struct NormCase {
    Fixture& f;
    int64_t size;
    std::vector<float> x, weight, h;
    float* device_x;
    float* device_weight;
    float* device_h;

    NormCase(Fixture& fixture, int64_t n, Random& random)
        : f(fixture), size(n), x(random.normal(n)), weight(random.normal(n)), h(x.size(), NAN) {
        device_x = f.put(x);
        device_weight = f.put(weight);
        device_h = f.put(h);
        f.reference->norm(*f.none, x.data(), 1, {weight.data(), size}, k_eps, h.data());
    }
    void start() const { f.device->norm(*f.stream, device_x, 1, {device_weight, size}, k_eps, device_h); }
    double distance_of_h() const { return distance(h, f.get(device_h, h.size())); }
};

std::unique_ptr<backend::Scratch> reserve_long_rows(Fixture& f) {
    backend::StepLimits limits = k_limits;
    limits.hidden = k_max_cols;
    limits.n_expert = 512;
    limits.n_expert_used = 8;
    return f.device->reserve(limits);
}

// Checks products of the normalised row with two matrices of one launch, and that other ways to the same products are near.
void check_products(Fixture& f, Format format, int64_t cols, const TestMatrix& few, const TestMatrix& many) {
    INFO(traits(format).name << ", " << cols << " columns");
    Random random(12);
    const NormCase c(f, cols, random);
    std::vector<float> y_few(static_cast<size_t>(few.view.rows));
    std::vector<float> y_many = random.normal(many.view.rows);
    float* device_few = f.put(y_few);
    float* device_many = f.put(y_many);
    const Matrix few_on_device = f.put_packed(few);
    Matrix many_on_device = f.put_packed(many);
    Matrix many_on_host = many.view;
    many_on_host.scale = many_on_device.scale = 0.75F;
    const LinearTask expected[] = {{&few.view, y_few.data(), false}, {&many_on_host, y_many.data(), true}};
    const LinearTask tasks[] = {{&few_on_device, device_few, false}, {&many_on_device, device_many, true}};
    f.reference->linear(*f.none, c.h.data(), 1, expected);
    c.start();
    f.device->linear(*f.stream, c.device_h, 1, tasks);
    const LinearTask again = {&few_on_device, device_few, false};
    const std::vector<float> first = f.get(device_few, y_few.size());
    CHECK(distance(y_few, first) < k_rounding);
    CHECK(distance(y_many, f.get(device_many, y_many.size())) < k_rounding);
    CHECK(c.distance_of_h() < 1e-6);
    // With the row as the products' kernel has quantised it; as linear() does; and as the norm does that is launched alone.
    for (const int way : {0, 1, 2}) {
        INFO("way " << way);
        if (way == 0) {
            c.start();
            const LinearTask other = {&many_on_device, device_many, false};
            f.device->linear(*f.stream, c.device_h, 1, {&other, 1});
        } else if (way == 2) {
            c.start();
            f.device->wait(*f.stream);
        }
        f.device->linear(*f.stream, c.device_h, 1, {&again, 1});
        CHECK(distance(first, f.get(device_few, y_few.size())) < 2e-3);
    }
}

}  // namespace

TEST_CASE("gpu norm: one row and its products, for rows of several sizes") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    f.stream = reserve_long_rows(f);
    // A stage of 256 columns, some and a part, more than the threads of a block keep, and as many as are possible.
    for (const Format format : {Format::q8_0, Format::q4_0, Format::iq4_nl}) {
        Random random(7);
        for (const int64_t cols : {int64_t{32}, int64_t{544}, int64_t{3328 + 96}, k_max_cols}) {
            const TestMatrix few(format, 37, cols, random);
            const TestMatrix many(format, 112, cols, random);
            check_products(f, format, cols, few, many);
        }
    }
    // Rows with headers, tables in shared memory, blocks of 256.
    for (const Format format : {Format::q4_k, Format::q6_k, Format::iq2_s, Format::iq3_s, Format::iq4_ks,
                                Format::iq4_xs, Format::iq5_k, Format::mxfp4}) {
        Random random(8);
        const TestMatrix few(format, 37, 768, random);
        const TestMatrix many(format, 112, 768, random);
        check_products(f, format, 768, few, many);
    }
}

TEST_CASE("gpu norm: one row whose products are of several formats, of few rows, or not packed") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    Random random(3);
    const Format cases[][3] = {{Format::q4_k, Format::q6_k, Format::q4_k},
                               {Format::q8_0, Format::bf16, Format::q8_0},
                               {Format::f32, Format::q8_0, Format::q8_0},
                               {Format::f16, Format::f16, Format::fp8_e4m3_b128}};
    for (const auto& formats : cases) {
        for (const int64_t rows : {9, 48}) {  // 9: no whole panel
            INFO(traits(formats[0]).name << ", " << traits(formats[1]).name << ", " << rows << " rows");
            const NormCase c(f, 512, random);
            std::vector<TestMatrix> matrices;
            std::vector<Matrix> on_device;
            for (const Format format : formats) {
                matrices.emplace_back(format, rows, 512, random);
                on_device.push_back(f.put_packed(matrices.back()));
            }
            std::vector<std::vector<float>> y(3, std::vector<float>(static_cast<size_t>(rows)));
            std::vector<LinearTask> expected;
            std::vector<LinearTask> tasks;
            for (size_t i = 0; i < 3; ++i) {
                expected.push_back({&matrices[i].view, y[i].data(), false});
                tasks.push_back({&on_device[i], f.put(y[i]), false});
            }
            f.reference->linear(*f.none, c.h.data(), 1, expected);
            c.start();
            f.device->linear(*f.stream, c.device_h, 1, tasks);
            for (size_t i = 0; i < 3; ++i) CHECK(distance(y[i], f.get(tasks[i].y, y[i].size())) < k_rounding);
            CHECK(c.distance_of_h() < 1e-6);
        }
    }
}

TEST_CASE("gpu norm: one row and its experts") {
    if (!has_devices(1)) return;
    struct Case {
        Format format;
        int64_t n_expert, cols, n_used;
    };
    // Rows that are copied to shared memory and others; more experts than the threads of a block.
    const Case cases[] = {{Format::f32, 256, 512, 8}, {Format::f32, 9, 96, 3},
                          {Format::f32, 33, 3424, 4}, {Format::f32, 8, 8192, 2},
                          {Format::bf16, 64, 96, 8},  {Format::f16, 300, 256, 1},
                          {Format::f32, 512, 128, 6}, {Format::fp8_e4m3_b128, 100, 384, 6},
                          {Format::q8_0, 48, 256, 4}};
    Fixture f(Arithmetic::fast);
    f.stream = reserve_long_rows(f);
    for (const Case& c : cases) {
        Random random(8);
        const TestMatrix router(c.format, c.n_expert, c.cols, random);
        const TestMatrix after(Format::q8_0, 32, c.cols, random);
        const Matrix device_router = c.format == Format::q8_0 ? f.put_packed(router) : f.put(router);
        const Matrix device_after = f.put_packed(after);
        const std::vector<float> bias = random.normal(c.n_expert, 0.5F);
        const float* device_bias = f.put(bias);
        for (const bool has_bias : {false, true}) {
            INFO(traits(c.format).name << ", " << c.n_expert << " x " << c.cols);
            const NormCase row(f, c.cols, random);
            std::vector<int32_t> ids(static_cast<size_t>(c.n_used));
            std::vector<float> gates(ids.size());
            std::vector<float> y(32);
            int32_t* device_ids = f.put(ids);
            float* device_gates = f.put(gates);
            float* device_y = f.put(y);
            const auto bias_of = [&](const float* data) {
                return has_bias ? backend::Vector{data, c.n_expert} : backend::Vector{};
            };
            f.reference->route(*f.none, row.h.data(), 1, router.view, bias_of(bias.data()), c.n_used,
                               ids.data(), gates.data());
            const LinearTask expected = {&after.view, y.data(), false};
            f.reference->linear(*f.none, row.h.data(), 1, {&expected, 1});
            row.start();
            f.device->route(*f.stream, row.device_h, 1, device_router, bias_of(device_bias), c.n_used,
                            device_ids, device_gates);
            const LinearTask task = {&device_after, device_y, false};  // of the quantised row
            f.device->linear(*f.stream, row.device_h, 1, {&task, 1});
            if (c.format != Format::q8_0) CHECK(ids == f.get(device_ids, ids.size()));
            CHECK(distance(gates, f.get(device_gates, gates.size())) <
                  (c.format == Format::q8_0 ? 0.2 : 1e-4));
            CHECK(distance(y, f.get(device_y, 32)) < k_rounding);
            CHECK(row.distance_of_h() < 1e-6);
        }
    }
}

TEST_CASE("gpu norm: one row with NaN or infinity, of zeros, and of numbers that are too small") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    Random random(5);
    const TestMatrix weight(Format::q8_0, 48, 512, random);
    const Matrix on_device = f.put_packed(weight);
    float* y = f.put(std::vector<float>(48));
    const LinearTask task = {&on_device, y, false};
    const auto products = [&](float at_100, float all_others) {
        NormCase c(f, 512, random);
        for (float& each : c.x) each *= all_others;
        c.x[100] = at_100;
        c.device_x = f.put(c.x);
        c.start();
        f.device->linear(*f.stream, c.device_h, 1, {&task, 1});
        return f.get(y, 48);
    };
    for (const float bad : {NAN, INFINITY})
        for (const float value : products(bad, 1.0F)) CHECK(!std::isfinite(value));
    for (const float value : products(0.0F, 0.0F)) CHECK(value == 0.0F);
    for (const float value : products(0.0F, 1e-37F)) CHECK(std::isfinite(value));
}

TEST_CASE("gpu norm: steps that are repeated normalise anew, also one whose last operation is a norm") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    Random random(6);
    const TestMatrix weight(Format::q8_0, 48, 512, random);
    const Matrix on_device = f.put_packed(weight);
    NormCase first(f, 512, random);
    NormCase last(f, 512, random);
    float* y = f.put(std::vector<float>(48));
    const LinearTask task = {&on_device, y, false};
    const backend::KvLayout layout = {.n_layer = 1, .n_head_kv = 4, .head_dim = 128};
    const std::unique_ptr<backend::Memory> page =
        f.device->allocate(static_cast<uint64_t>(layout.page_bytes()), "a page");
    const std::vector<std::byte*> pages = {page->data()};
    const backend::KvSequence sequence = {&layout, pages};
    const std::vector<backend::KvRow> rows = {{&sequence, 0}};
    const backend::StepBatch batch = {.ids = {}, .rows = rows, .n_head = 12, .n_head_kv = 4, .calls = &f};
    for (int step = 0; step < 5; ++step) {
        INFO("step " << step);
        for (NormCase* c : {&first, &last}) {
            c->x = random.normal(512);
            f.reference->norm(*f.none, c->x.data(), 1, {c->weight.data(), 512}, k_eps, c->h.data());
            f.device->write(reinterpret_cast<std::byte*>(c->device_x),
                            reinterpret_cast<const std::byte*>(c->x.data()), 512 * sizeof(float));
        }
        std::vector<float> expected(48);
        const LinearTask on_host = {&weight.view, expected.data(), false};
        f.reference->linear(*f.none, first.h.data(), 1, {&on_host, 1});
        bool is_repeated = false;
        do {
            is_repeated = f.device->begin_step(*f.stream, batch);
            if (is_repeated) break;
            first.start();
            f.device->linear(*f.stream, first.device_h, 1, {&task, 1});
            last.start();
        } while (!f.device->end_step(*f.stream));
        CHECK(is_repeated == (step >= 2));
        CHECK(distance(expected, f.get(y, 48)) < k_rounding);
        CHECK(first.distance_of_h() < 1e-6);
        CHECK(last.distance_of_h() < 1e-6);
    }
}

}  // namespace minim::test
