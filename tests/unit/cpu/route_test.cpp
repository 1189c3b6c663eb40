// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cpu/cpu_backend.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

struct Choice {
    std::vector<int32_t> ids;
    std::vector<float> gates;
};

Choice route(CpuLevel level, int32_t n_threads, const backend::Matrix& router, const std::vector<float>& bias,
             const std::vector<float>& h, int64_t n, int64_t n_used) {
    const ThreadPool pool(n_threads);
    const auto backend = cpu::make_cpu_backend(pool, level);
    const auto scratch = backend->reserve(
        {.n_rows = n, .hidden = router.cols, .n_expert = router.rows, .n_expert_used = n_used});
    Choice choice;
    choice.ids.resize(static_cast<size_t>(n * n_used), -1);
    choice.gates.resize(static_cast<size_t>(n * n_used));
    backend->route(*scratch, h.data(), n, router, {bias.data(), static_cast<int64_t>(bias.size())}, n_used,
                   choice.ids.data(), choice.gates.data());
    return choice;
}

// Returns a router of one column: expert e scores logit[e] for h = 1.
backend::Matrix column(const std::vector<float>& logit) {
    return {.data = reinterpret_cast<const std::byte*>(logit.data()),
            .format = Format::f32,
            .rows = static_cast<int64_t>(logit.size()),
            .cols = 1,
            .row_bytes = 4};
}

}  // namespace

TEST_CASE("route picks by score plus bias and weighs by the score alone") {
    for (const Format format : {Format::f32, Format::bf16, Format::q8_0, Format::q4_k}) {
        for (const int64_t n_expert : {8, 154}) {
            Random random(static_cast<uint32_t>(n_expert));
            const TestMatrix router(format, n_expert, 256, random);
            const std::vector<float> bias = random.normal(n_expert);
            const std::vector<float> h = random.normal(5 * 256, 0.1F);
            const Choice choice = route(detected_cpu_level(), 2, router.view, bias, h, 5, 8);
            for (size_t i = 0; i < 5; ++i) {
                std::vector<double> s(static_cast<size_t>(n_expert));
                for (size_t e = 0; e < s.size(); ++e) {
                    const Dot dot = exact_dot(router.decoded_row(static_cast<int64_t>(e)),
                                              std::span(h).subspan(i * 256, 256));
                    s[e] = 1.0 / (1.0 + std::exp(-dot.value));
                }
                const auto biased = [&](int32_t e) {
                    return s[static_cast<size_t>(e)] + static_cast<double>(bias[static_cast<size_t>(e)]);
                };
                std::vector<int32_t> order(s.size());
                std::iota(order.begin(), order.end(), 0);
                std::stable_sort(order.begin(), order.end(),
                                 [&](int32_t a, int32_t b) { return biased(a) > biased(b); });
                double sum = 0.0;
                for (size_t k = 0; k < 8; ++k) sum += s[static_cast<size_t>(order[k])];
                for (size_t k = 0; k < 8; ++k) {
                    CHECK(choice.ids[i * 8 + k] == order[k]);
                    CHECK(static_cast<double>(choice.gates[i * 8 + k]) ==
                          Approx(s[static_cast<size_t>(order[k])] / sum).epsilon(3e-6));
                }
            }
        }
    }
}

TEST_CASE("equal scores go to the lower index") {
    const std::vector<float> logit(12, 0.5F);
    const Choice choice = route(detected_cpu_level(), 1, column(logit), {}, {1.0F}, 1, 4);
    CHECK(choice.ids == std::vector<int32_t>{0, 1, 2, 3});
    for (const float gate : choice.gates) CHECK(gate == 0.25F);
}

TEST_CASE("the bias alone can change the choice") {
    const std::vector<float> logit = {2.0F, 1.0F, 0.0F, -1.0F};
    CHECK(route(detected_cpu_level(), 1, column(logit), {}, {1.0F}, 1, 2).ids == std::vector<int32_t>{0, 1});
    CHECK(route(detected_cpu_level(), 1, column(logit), {0.0F, 0.0F, 0.0F, 9.0F}, {1.0F}, 1, 2).ids ==
          std::vector<int32_t>{3, 0});
}

TEST_CASE("all experts can be used") {
    const std::vector<float> logit = {0.0F, 3.0F, 1.0F};
    CHECK(route(detected_cpu_level(), 1, column(logit), {}, {1.0F}, 1, 3).ids ==
          std::vector<int32_t>{1, 2, 0});
}

TEST_CASE("vanishing scores give finite gates") {
    const std::vector<float> logit(4, -200.0F);
    for (const float gate : route(detected_cpu_level(), 1, column(logit), {}, {1.0F}, 1, 2).gates)
        CHECK(gate == 0.0F);
}

TEST_CASE("scores that are NaN still give distinct experts that exist") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const std::vector<float>& logit : {std::vector<float>(6, nan), {nan, 1.0F, nan, 2.0F, 3.0F, nan}}) {
        std::vector<int32_t> ids = route(detected_cpu_level(), 1, column(logit), {}, {1.0F}, 1, 4).ids;
        std::sort(ids.begin(), ids.end());
        CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
        CHECK(ids.front() >= 0);
        CHECK(ids.back() < 6);
    }
}

TEST_CASE("a routing has the same bits whatever the batch, the threads and the instruction set") {
    Random random(21);
    const TestMatrix router(Format::f32, 40, 300, random);
    const std::vector<float> bias = random.normal(40);
    const std::vector<float> h = random.normal(7 * 300);
    const Choice expected = route(CpuLevel::scalar, 1, router.view, bias, h, 7, 6);
    for (const CpuLevel level : cpu_levels()) {
        for (const int32_t n_threads : {1, 2, 3}) {
            const Choice all = route(level, n_threads, router.view, bias, h, 7, 6);
            CHECK(all.ids == expected.ids);
            CHECK(same_bits(all.gates, expected.gates));
            for (int64_t i = 0; i < 7; ++i) {
                const std::vector<float> row(h.begin() + i * 300, h.begin() + (i + 1) * 300);
                const Choice one = route(level, n_threads, router.view, bias, row, 1, 6);
                CHECK(std::equal(one.ids.begin(), one.ids.end(), expected.ids.begin() + i * 6));
                CHECK(same_bits(one.gates, std::span(expected.gates).subspan(static_cast<size_t>(i) * 6, 6)));
            }
        }
    }
}

}  // namespace minim::test
