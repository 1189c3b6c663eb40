// SPDX-License-Identifier: Apache-2.0
#include "placement/backends.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "support/helpers.h"

using namespace minim;
using namespace minim::test;
using placement::make_backend;

TEST_CASE("backends are found by name, and no name means the CPU's") {
    const auto threads = std::make_shared<const ThreadPool>(1);
    CHECK(make_backend("cpu", threads, CpuLevel::scalar)->name() == "cpu");
    CHECK(make_backend("", threads, CpuLevel::scalar)->name() == "cpu");
    CHECK(make_backend("reference", threads, CpuLevel::scalar)->name() == "reference");
}

TEST_CASE("another backend is invalid, by name") {
    const auto threads = std::make_shared<const ThreadPool>(1);
    for (const char* name : {"CPU", "cuda", "cuda:0", "ref", " cpu"}) {
        expect_error(Status::invalid, std::string("'") + name + "'",
                     [&] { make_backend(name, threads, CpuLevel::scalar); });
    }
}

TEST_CASE("a level that this machine has not is unsupported") {
    if (has_cpu_level(CpuLevel::avx512_vbmi)) return;
    expect_error(Status::unsupported, "avx512_vbmi",
                 [] { make_backend("cpu", std::make_shared<ThreadPool>(1), CpuLevel::avx512_vbmi); });
}

TEST_CASE("a CPU backend keeps its threads and lets them go") {
    auto threads = std::make_shared<const ThreadPool>(2);
    const std::weak_ptr<const ThreadPool> watched = threads;
    auto backend = make_backend("cpu", std::move(threads), active_cpu_level());
    CHECK_FALSE(watched.expired());
    // Two rows, so that both threads are asked to work.
    const std::array<float, 4> x = {3, 4, 6, 8};
    const std::array<float, 2> gain = {1, 1};
    std::array<float, 4> h{};
    const auto scratch = backend->reserve({});
    backend->norm(*scratch, x.data(), 2, {gain.data(), 2}, 0.0F, h.data());
    CHECK(h[0] == Approx(3.0 / std::sqrt(12.5)));
    CHECK(h[3] == Approx(8.0 / std::sqrt(50.0)));
    backend.reset();
    CHECK(watched.expired());
}
