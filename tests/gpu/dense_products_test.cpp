// SPDX-License-Identifier: Apache-2.0
// Tests which products go to the vendor's library, how often it is asked for a plan, and what happens without it.
#include "cuda/dense_products.h"

#include "base/checked.h"
#include "gpu/blas_on_host.h"
#include "gpu/fixture.h"
#include "gpu/launch_paths.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::LinearTask;
using backend::Matrix;
using cuda::DenseProducts;

// Sets how the library behaves, for the lifetime of this object.
struct SetBlas {
    explicit SetBlas(const FakeBlas& wanted) { fake_blas() = wanted; }
    ~SetBlas() { fake_blas() = {}; }
};

constexpr int64_t k_n = DenseProducts::k_min_rows;

alignas(16) float some_floats[8];

Matrix matrix_of(Format format, int64_t rows, int64_t cols) {
    return {reinterpret_cast<const std::byte*>(some_floats), format, rows, cols, 2 * cols, 1.0F, false};
}

std::unique_ptr<cuda::blas::Library> open_library() {
    std::string why_not;
    return cuda::blas::open(0, why_not);
}

// Returns y of n rows times a matrix, computed on the device; packed, if the device packs it.
std::vector<float> product_on(backend::Backend& device, const TestMatrix& weight, int64_t n) {
    const auto stream = device.reserve(
        {.n_rows = 300, .n_context = 64, .hidden = 256, .n_head = 2, .n_head_kv = 1, .head_dim = 128});
    const auto memory = device.allocate(1 << 20, "a test");
    const std::vector<float> h(static_cast<size_t>(n * weight.view.cols), 0.5F);
    std::byte* x = memory->data() + align_up(weight.bytes.size(), 256);
    std::byte* y = x + (1 << 18);
    device.upload(*stream, memory->data(), weight.bytes.data(), weight.bytes.size());
    device.upload(*stream, x, reinterpret_cast<const std::byte*>(h.data()), h.size() * sizeof(float));
    Matrix view = weight.view;
    view.data = memory->data();
    if (device.packs(view.format)) {
        device.synchronize(*stream);
        std::byte* data = memory->data();
        device.pack({&data, 1}, view);
        view.packed = true;
    }
    const LinearTask task = {&view, reinterpret_cast<float*>(y), false};
    device.linear(*stream, reinterpret_cast<const float*>(x), n, {&task, 1});
    std::vector<float> out(static_cast<size_t>(n * view.rows));
    device.download(*stream, reinterpret_cast<std::byte*>(out.data()), y, out.size() * sizeof(float));
    device.synchronize(*stream);
    return out;
}

}  // namespace

TEST_CASE("dense products: many aligned rows of F16 and BF16 are for the library, all else is not") {
    const SetBlas present({});
    DenseProducts products(open_library());
    const auto takes = [&](Matrix matrix, int64_t n) {
        const LinearTask task = {&matrix, some_floats, false};
        return products.takes(task, n);
    };
    CHECK(takes(matrix_of(Format::f16, 64, 128), k_n));
    CHECK(takes(matrix_of(Format::bf16, 64, 128), 2048));
    CHECK_FALSE(takes(matrix_of(Format::bf16, 64, 128), k_n - 1));
    CHECK_FALSE(takes(matrix_of(Format::f32, 64, 128), k_n));
    CHECK_FALSE(takes(matrix_of(Format::q8_0, 64, 128), k_n));
    CHECK_FALSE(takes(matrix_of(Format::bf16, 63, 128), k_n));
    CHECK_FALSE(takes(matrix_of(Format::bf16, 64, 124), k_n));
    Matrix matrix = matrix_of(Format::bf16, 64, 128);
    matrix.row_bytes += 2;
    CHECK_FALSE(takes(matrix, k_n));
    matrix = matrix_of(Format::bf16, 64, 128);
    matrix.data += 4;
    CHECK_FALSE(takes(matrix, k_n));
    matrix = matrix_of(Format::bf16, 64, 128);
    const LinearTask unaligned = {&matrix, some_floats + 1, false};
    CHECK_FALSE(products.takes(unaligned, k_n));
    CHECK_FALSE(DenseProducts(nullptr).takes({&matrix, some_floats, false}, k_n));
}

TEST_CASE("dense products: the library is asked once a shape, as long as there is room to remember") {
    const SetBlas present({.failure = "nothing is computed"});
    DenseProducts products(open_library());
    const auto multiply = [&](int64_t n) {
        const Matrix matrix = matrix_of(Format::bf16, 64, 128);
        const char* error = nullptr;
        CHECK(products.multiply({&matrix, some_floats, false}, nullptr, n, nullptr, nullptr, error));
        CHECK(std::string(error) == "nothing is computed");
    };
    for (int i = 0; i < 3; ++i)
        for (const int64_t n : {64, 100, 64}) multiply(n);
    CHECK(fake_blas().asked.size() == 2);
    CHECK(fake_blas().asked[1] == cuda::blas::Problem{Format::bf16, 64, 128, 100});
    for (int64_t n = 0; n < static_cast<int64_t>(DenseProducts::k_max_plans); ++n) multiply(200 + n);
    CHECK(products.n_plans() == DenseProducts::k_max_plans);
    const size_t n_asked = fake_blas().asked.size();
    multiply(201);
    CHECK(fake_blas().asked.size() == n_asked);
    multiply(64);  // its plan was dropped meanwhile
    CHECK(fake_blas().asked.size() == n_asked + 1);
}

TEST_CASE("dense products: a device uses the library for many rows, and its own kernels otherwise") {
    Random random(3);
    const TestMatrix weight(Format::bf16, 48, 64, random);
    std::vector<float> expected;
    const auto run = [&](const FakeBlas& blas, Arithmetic arithmetic, int64_t n) {
        const SetBlas set(blas);
        const auto device = cuda::make_cuda_backend(0, arithmetic);
        const std::vector<float> y = product_on(*device, weight, n);
        if (expected.empty()) expected.assign(y.begin(), y.begin() + 48);
        CHECK(distance(expected, {y.end() - 48, y.end()}) < 1e-5);
        CHECK(device->remark().empty() == (blas.why_not.empty() || arithmetic != Arithmetic::fast));
        return fake_blas().n_products;
    };
    CHECK(run({}, Arithmetic::exact, 64) == 0);
    CHECK(run({}, Arithmetic::fast, 64) == 1);
    CHECK(run({}, Arithmetic::fast, k_n - 1) == 0);
    CHECK(run({}, Arithmetic::deterministic, 64) == 0);
    CHECK(run({.has_no_way = true}, Arithmetic::fast, 64) == 0);
    CHECK(run({.why_not = "no such file"}, Arithmetic::fast, 64) == 0);
}

TEST_CASE("dense products: the library multiplies packed matrices of prompts, if the path is on") {
    Random random(4);
    const auto run = [&](const char* paths, Arithmetic arithmetic, Format format, int64_t rows, int64_t n,
                         const FakeBlas& blas = {}) {
        INFO(paths << ", " << traits(format).name << ", " << rows << " x 256, " << n << " rows");
        const TestMatrix weight(format, rows, 256, random);
        const SetBlas set(blas);
        const SetLaunchPaths set_paths(paths);
        const auto device = cuda::make_cuda_backend(0, arithmetic);
        const std::vector<float> h(static_cast<size_t>(n * 256), 0.5F);
        std::vector<float> expected(static_cast<size_t>(n * rows));
        const auto reference = reference::make_reference_backend();
        const auto scratch = reference->reserve({.n_rows = 300, .hidden = 256});
        const LinearTask task = {&weight.view, expected.data(), false};
        reference->linear(*scratch, h.data(), n, {&task, 1});
        CHECK(distance(expected, product_on(*device, weight, n)) < 1e-3);
        return fake_blas().n_products;
    };
    // One format of each kind: signed and small codes, minima, two scales, a codebook, a scale for each row.
    for (const Format format :
         {Format::q8_0, Format::q4_0, Format::q4_k, Format::q6_k, Format::iq2_s, Format::iq3_s,
          Format::iq4_xs, Format::iq4_ks, Format::iq5_k, Format::iq6_k, Format::nvfp4})
        CHECK(run("dense-prompts", Arithmetic::fast, format, 48, 256) == 1);
    CHECK(run("", Arithmetic::fast, Format::q8_0, 48, 256) == 0);
    CHECK(run("dense-prompts", Arithmetic::fast, Format::q8_0, 48, 255) == 0);
    CHECK(run("dense-prompts", Arithmetic::fast, Format::q8_0, 56, 256) == 0);  // half a panel
    CHECK(run("dense-prompts", Arithmetic::fast, Format::q8_0, 272, 256) ==
          0);  // more than the work space holds
    CHECK(run("dense-prompts", Arithmetic::deterministic, Format::q8_0, 48, 256) == 0);
    CHECK(run("dense-prompts", Arithmetic::fast, Format::q8_0, 48, 256, {.has_no_way = true}) == 0);
    CHECK(run("dense-prompts", Arithmetic::fast, Format::q8_0, 48, 256, {.why_not = "no such file"}) == 0);
}

TEST_CASE("dense products: that the library is missing is said, and that it fails is an error") {
    Random random(3);
    const TestMatrix weight(Format::f16, 48, 64, random);
    {
        const SetBlas missing({.why_not = "no such file"});
        const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
        CHECK(device->remark() == "prompts of F16 and BF16 weights go slowly without cuBLASLt: no such file");
    }
    const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
    {
        const SetBlas failing({.failure = "an internal operation failed"});
        expect_error(Status::internal, "cuda:0: an internal operation failed",
                     [&] { product_on(*device, weight, 64); });
    }
    CHECK_NOTHROW(product_on(*device, weight, 64));  // the device is not lost
}

TEST_CASE("dense products: the library's work space counts as the device's") {
    const auto used = [](const FakeBlas& blas, int64_t n_rows) {
        const SetBlas set(blas);
        const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
        const backend::StepLimits limits = {
            .n_rows = n_rows, .n_context = 64, .hidden = 64, .n_head = 1, .n_head_kv = 1, .head_dim = 32};
        const auto stream = device->reserve(limits);
        CHECK(device->memory().used(backend::MemoryUse::work) == device->step_bytes(limits));
        return device->step_bytes(limits);
    };
    for (const int64_t n_rows : {64, 512}) {
        INFO("n_rows " << n_rows);
        CHECK(used({}, n_rows) - used({.why_not = "no such file"}, n_rows) >=
              DenseProducts::k_workspace_bytes);
    }
    CHECK(used({}, 8) == used({.why_not = "no such file"}, 8));
}

}  // namespace minim::test
