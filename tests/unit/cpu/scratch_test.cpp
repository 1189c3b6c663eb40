#include "cpu/scratch.h"

#include "base/error.h"
#include "support/catch.h"

namespace minim::test {

TEST_CASE("work space of no rows is allowed") {
    CHECK_NOTHROW(cpu::CpuScratch({}, 1));
}

TEST_CASE("buffers are aligned and lie apart") {
    const cpu::CpuScratch scratch({.n_rows = 3,
                                   .n_context = 70,
                                   .hidden = 96,
                                   .n_head = 6,
                                   .n_head_kv = 2,
                                   .head_dim = 20,
                                   .n_expert = 5,
                                   .n_expert_used = 2,
                                   .expert_ff = 33},
                                  2);
    CHECK(scratch.max_cols == 120);
    const auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
    CHECK(address(scratch.scores) % 64 == 0);
    CHECK(scratch.tile_of(1) == scratch.tile + cpu::tile_scratch_bytes(120));
    CHECK(address(scratch.tile) + static_cast<uintptr_t>(2 * cpu::tile_scratch_bytes(120)) <=
          address(scratch.scores));
    CHECK(scratch.n_block_queries >= 3);
    const auto n_scores = static_cast<uintptr_t>(2 * scratch.n_block_queries * cpu::k_attend_span_positions);
    CHECK(address(scratch.scores) + sizeof(float) * n_scores <= address(scratch.query_totals));
    CHECK(address(scratch.gate) + sizeof(float) * 6 * 33 <= address(scratch.up));
}

TEST_CASE("sizes beyond all memory are an error, not a small buffer") {
    const int64_t huge = int64_t{1} << 40;
    CHECK_THROWS_AS(cpu::CpuScratch({.n_rows = huge, .hidden = huge}, 1), Error);
    CHECK_THROWS_AS(cpu::CpuScratch({.n_rows = huge, .n_expert_used = 8}, 1), Error);
    CHECK_THROWS_AS(cpu::CpuScratch({.n_context = huge, .n_head = 8, .n_head_kv = 1, .head_dim = 128}, 64),
                    Error);
}

}  // namespace minim::test
