// SPDX-License-Identifier: Apache-2.0
#include "cpu/scratch.h"

#include "backend/device_memory.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "support/catch.h"

namespace minim::test {
namespace {

const backend::Backend& post_processor() {
    static const ThreadPool pool(1);
    static const auto backend = cpu::make_cpu_backend(pool, CpuLevel::scalar);
    return *backend;
}

constexpr backend::StepLimits k_few_rows = {.n_rows = 3,
                                            .n_context = 70,
                                            .hidden = 96,
                                            .n_head = 6,
                                            .n_head_kv = 2,
                                            .head_dim = 20,
                                            .n_expert = 5,
                                            .n_expert_used = 2,
                                            .expert_ff = 33};

uint64_t work_bytes() {
    return post_processor().memory().used(backend::MemoryUse::work);
}

}  // namespace

TEST_CASE("work space of no rows is allowed") {
    CHECK_NOTHROW(cpu::CpuScratch({}, 1, post_processor()));
}

TEST_CASE("work space is counted for as long as it lives") {
    const uint64_t before = work_bytes();
    {
        const auto one =
            post_processor().reserve({.n_rows = 4, .hidden = 96, .n_expert_used = 2, .expert_ff = 64});
        const uint64_t of_one = work_bytes() - before;
        // The intermediate and output rows of the chosen experts alone take as much.
        CHECK(of_one > 4 * 2 * (64 + 96) * sizeof(float));
        const auto staging = post_processor().allocate_staging(1000, "activations");
        CHECK(work_bytes() == before + of_one + 1000);
    }
    CHECK(work_bytes() == before);
}

TEST_CASE("the work space of a step is known without allocating it") {
    const ThreadPool one(1);
    const ThreadPool three(3);
    for (const auto& [pool, decode_pool] : {std::pair(&one, &three), std::pair(&three, &one)}) {
        const auto backend = cpu::make_cpu_backend(*pool, *decode_pool, CpuLevel::scalar);
        const auto used = [&] { return backend->memory().used(backend::MemoryUse::work); };
        for (backend::StepLimits limits : {backend::StepLimits{}, k_few_rows}) {
            for (const int64_t n_rows : {1, 65}) {
                limits.n_rows = n_rows;
                const uint64_t bytes = backend->step_bytes(limits);
                CHECK(used() == 0);
                const auto stream = backend->reserve(limits);
                CHECK(used() == bytes);
            }
        }
        CHECK_THROWS_AS(backend->step_bytes({.n_rows = int64_t{1} << 40, .n_expert_used = 8}), Error);
    }
}

TEST_CASE("buffers are aligned and lie apart") {
    const cpu::CpuScratch scratch(k_few_rows, 2, post_processor());
    CHECK(scratch.max_cols == 120);
    const auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
    CHECK(scratch.n_block_queries >= 3);
    CHECK(address(scratch.activated) % 64 == 0);
    CHECK(address(scratch.activated) + sizeof(float) * 6 * 33 <= address(scratch.expert_output));
}

TEST_CASE("what a thread writes shares no page with what others use") {
    const cpu::CpuScratch scratch(k_few_rows, 2, post_processor());
    constexpr uintptr_t k_page = 4096;
    const auto page = [](const void* p) { return reinterpret_cast<uintptr_t>(p) / k_page; };
    const auto queries = static_cast<size_t>(scratch.n_block_queries);
    REQUIRE(scratch.threads.size() == 2);
    for (const cpu::ThreadScratch& thread : scratch.threads) {
        CHECK(reinterpret_cast<uintptr_t>(thread.tile) % k_page == 0);
        CHECK(thread.tile + cpu::tile_scratch_bytes(120) <= reinterpret_cast<std::byte*>(thread.rotation));
        CHECK(thread.scores + queries * cpu::k_attend_span_positions <=
              reinterpret_cast<float*>(thread.query_totals));
        CHECK(thread.span_sums + queries * 20 <= reinterpret_cast<float*>(thread.query_head));
    }
    CHECK(page(scratch.of(0).query_head + queries - 1) < page(scratch.of(1).tile));
    CHECK(page(scratch.of(1).query_head + queries - 1) <
          page(scratch.input[static_cast<size_t>(cpu::Activation::q8)]));
}

TEST_CASE("sizes beyond all memory are an error, not a small buffer") {
    const int64_t huge = int64_t{1} << 40;
    CHECK_THROWS_AS(cpu::CpuScratch({.n_rows = huge, .hidden = huge}, 1, post_processor()), Error);
    CHECK_THROWS_AS(cpu::CpuScratch({.n_rows = huge, .n_expert_used = 8}, 1, post_processor()), Error);
    CHECK_THROWS_AS(cpu::CpuScratch({.n_context = huge, .n_head = 8, .n_head_kv = 1, .head_dim = 128}, 64,
                                    post_processor()),
                    Error);
}

}  // namespace minim::test
