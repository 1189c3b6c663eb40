// Kernels whose threads take their turns in the opposite order give the same bits: none lacks a barrier that this shows.
// (Attention has it in attend_test.cpp.)
#include "gpu/emulated_thread.h"
#include "gpu/fixture.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;

struct Backwards {
    Backwards() { emulates_backwards() = true; }
    ~Backwards() { emulates_backwards() = false; }
};

// Norm, products, routing and experts of n rows, one after the other.
std::vector<float> some_operations(Format format, int64_t n) {
    Fixture f(Arithmetic::fast);
    Random random(9);
    const TestMatrix square(format, 256, 256, random);
    const TestMatrix router(Format::f32, 9, 256, random);
    const Matrix weight = f.put_packed(square);
    const Matrix router_weight = f.put(router);
    backend::ExpertStack stack = {.format = format,
                                  .rows = 256,
                                  .cols = 256,
                                  .row_bytes = weight.row_bytes,
                                  .expert = {},
                                  .scale = {},
                                  .packed = true};
    for (int e = 0; e < 9; ++e) stack.expert.push_back(weight.data);
    const ExpertWeights experts = {stack, stack, stack};
    const auto rows = static_cast<size_t>(n);
    float* x = f.put(random.normal(n * 256));
    float* h = f.put(std::vector<float>(rows * 256));
    int32_t* ids = f.put(std::vector<int32_t>(rows * 3));
    float* gates = f.put(std::vector<float>(rows * 3));
    const LinearTask task = {&weight, x, true};
    f.device->norm(*f.stream, x, n, {f.put(random.normal(256)), 256}, 1e-6F, h);
    f.device->linear(*f.stream, h, n, {&task, 1});
    f.device->route(*f.stream, h, n, router_weight, {}, 3, ids, gates);
    f.device->experts(*f.stream, h, n, ids, gates, 3, experts, x);
    return f.get(x, rows * 256);
}

}  // namespace

TEST_CASE("emulated threads: backwards the operations give the same bits") {
    for (const Format format : {Format::q8_0, Format::q4_k, Format::iq2_s, Format::iq4_ks}) {
        for (const int64_t n : {1, 3, 11}) {
            const std::vector<float> forwards = some_operations(format, n);
            const Backwards backwards;
            CHECK(same_bits(forwards, some_operations(format, n)));
        }
    }
}

}  // namespace minim::test
