// SPDX-License-Identifier: Apache-2.0
#include "placement/parallel.h"

#include <vector>

#include "model/roles.h"
#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;
using namespace minim::placement;
using model::Role;

namespace {

// The shapes of MiniMax-M2 that parts depend on, with one layer.
model::Config minimax() {
    model::Config config;
    config.n_layer = 62;
    config.n_head = 48;
    config.n_head_kv = 8;
    config.head_dim = 128;
    config.hidden = 3072;
    config.n_expert = 256;
    config.expert_ff = 1536;
    return config;
}

model::Config tiny() {
    model::Config config;
    config.n_layer = 3;
    config.n_head = 4;
    config.n_head_kv = 2;
    config.n_expert = 8;
    config.expert_ff = 256;
    return config;
}

std::vector<weights::WeightSpec> weights_of(const model::Config& config, Format down,
                                            Format wo = Format::bf16) {
    const auto matrix = [](Role role, int32_t layer, int32_t expert, Format format, int64_t rows,
                           int64_t cols) {
        return weights::WeightSpec{.role = static_cast<int32_t>(role),
                                   .layer = layer,
                                   .expert = expert,
                                   .format = format,
                                   .rows = rows,
                                   .cols = cols};
    };
    return {matrix(Role::wo, 0, -1, wo, config.hidden, config.n_head * 128),
            matrix(Role::gate, 0, 0, down, config.expert_ff, config.hidden),
            matrix(Role::down, 0, 0, down, config.hidden, config.expert_ff),
            matrix(Role::output, -1, -1, Format::bf16, 200'064, config.hidden)};
}

ParallelPlan plan_of(const ParallelRequest& request, const model::Config& config, Format down) {
    return plan_parallel(request, config, weights_of(config, down));
}

void expect_refusal(const std::string& text, const ParallelRequest& request, const model::Config& config,
                    Format down = Format::bf16) {
    expect_error(Status::invalid, text, [&] { plan_of(request, config, down); });
}

}  // namespace

TEST_CASE("experts have as many parts as their blocks allow") {
    struct Row {
        Format down;
        int64_t parts_of_2, parts_of_4, parts_of_8;
    };
    // 1,536 columns in blocks of 1, 32, 64, 128 and 256.
    const Row rows[] = {{Format::bf16, 2, 4, 8},          {Format::q8_0, 2, 4, 8}, {Format::nvfp4, 2, 4, 8},
                        {Format::fp8_e4m3_b128, 2, 4, 4}, {Format::q4_k, 2, 2, 2}, {Format::iq2_s, 2, 2, 2}};
    for (const Row& row : rows) {
        CAPTURE(traits(row.down).name);
        CHECK(plan_of({.tensor = 2}, minimax(), row.down) ==
              ParallelPlan{2, 2 / row.parts_of_2, row.parts_of_2, 1});
        CHECK(plan_of({.tensor = 4}, minimax(), row.down) ==
              ParallelPlan{4, 4 / row.parts_of_4, row.parts_of_4, 1});
        CHECK(plan_of({.tensor = 8}, minimax(), row.down) ==
              ParallelPlan{8, 8 / row.parts_of_8, row.parts_of_8, 1});
    }
}

TEST_CASE("dense feed-forwards and shared experts are divided among ranks that share heads") {
    // Those of MiniMax-M3 have 12,288 and 3,072 columns.
    const auto plan_with = [](const ParallelRequest& request, Format format, int64_t columns) {
        std::vector<weights::WeightSpec> weights = weights_of(minimax(), Format::bf16);
        weights.push_back({.role = static_cast<int32_t>(Role::dense_down),
                           .layer = 0,
                           .format = format,
                           .rows = 3072,
                           .cols = columns});
        return plan_parallel(request, minimax(), weights);
    };
    CHECK(plan_with({.tensor = 4}, Format::q4_k, 3072).dense_parts == 4);
    CHECK(plan_with({.tensor = 4, .experts = 4}, Format::q4_k, 3072).dense_parts == 4);
    CHECK(plan_with({.tensor = 8}, Format::q4_k, 3072).dense_parts == 1);  // 12 blocks: each rank has all
    CHECK(plan_with({.experts = 4}, Format::bf16, 3072).dense_parts == 1);
    CHECK(plan_of({.tensor = 4}, minimax(), Format::bf16).dense_parts == 1);
    const ParallelPlan plan = plan_with({.tensor = 2, .pipeline = 2}, Format::bf16, 64);
    CHECK(shard_of(plan, 3, 62).share.dense_parts == 2);
}

TEST_CASE("the caller may choose the groups of experts") {
    CHECK(plan_of({.tensor = 8, .experts = 8}, minimax(), Format::bf16) == ParallelPlan{8, 8, 1, 1});
    CHECK(plan_of({.tensor = 8, .experts = 2}, minimax(), Format::bf16) == ParallelPlan{8, 2, 4, 1});
    CHECK(plan_of({.experts = 3}, minimax(), Format::iq2_s) == ParallelPlan{1, 3, 1, 1});
    CHECK(plan_of({.tensor = 4, .pipeline = 2}, minimax(), Format::bf16).n_ranks() == 8);
    CHECK(plan_of({}, minimax(), Format::iq2_s) == ParallelPlan{});
    CHECK(plan_of({.tensor = 8, .experts = k_all_ranks}, minimax(), Format::bf16) ==
          ParallelPlan{8, 8, 1, 1});
    CHECK(plan_of({.experts = k_all_ranks}, minimax(), Format::bf16) == ParallelPlan{});
    CHECK(with_devices({.tensor = k_all_ranks, .pipeline = 2}, 8).tensor == 4);
    CHECK(with_devices({.tensor = k_all_ranks}, 0).tensor == 1);
    CHECK(with_devices({.tensor = 2}, 8).tensor == 2);
}

TEST_CASE("what the ranks cannot share is refused with what they can") {
    expect_refusal("2 KV heads cannot be divided among 3 ranks; 1 and 2 ranks can share them", {.tensor = 3},
                   tiny());
    expect_refusal("8 KV heads cannot be divided among 16 ranks; 1, 2, 4 and 8 ranks can share them",
                   {.tensor = 16}, minimax());
    expect_refusal(
        "down of layer 0 is Q2_K, in blocks of 256 columns: 2 ranks cannot share its 256; whole experts on "
        "each rank: "
        "--expert-parallel 2",
        {.tensor = 2, .experts = 1}, tiny(), Format::q2_k);
    expect_refusal("8 experts cannot be given to 16 ranks", {.experts = 16}, tiny());
    expect_refusal("8 ranks cannot be divided into 3 groups of experts; 1, 2, 4 and 8 groups are possible",
                   {.tensor = 8, .experts = 3}, minimax());
    expect_refusal("expert parallel -2", {.experts = -2}, minimax());
    expect_refusal("3 layers cannot be given to 4 stages", {.pipeline = 4}, tiny());
    expect_error(Status::invalid,
                 "attn_output of layer 0 is Q4_K, in blocks of 256 columns: 2 ranks cannot share its 256",
                 [] {
                     model::Config config = tiny();
                     config.n_head = 2;
                     plan_parallel({.tensor = 2}, config, weights_of(config, Format::bf16, Format::q4_k));
                 });
}

TEST_CASE("ranks are those of the processes and their devices") {
    const ParallelPlan two = {1, 2, 1, 1};
    check_ranks(two, 2, 1);
    check_ranks(two, 1, 2);
    check_ranks({2, 1, 2, 2}, 2, 2);
    const auto refusal = [](const std::string& text, const ParallelPlan& plan, int64_t n_processes,
                            int64_t n_devices) {
        expect_error(Status::invalid, text, [&] { check_ranks(plan, n_processes, n_devices); });
    };
    refusal("1 process with 1 device is 1 rank, not 2: start 2 processes with mpirun -n 2, or name 2 devices",
            two, 1, 1);
    refusal("2 processes with 1 device each are 2 ranks, not 3", {1, 3, 1, 1}, 2, 1);
    refusal("3 processes with 2 devices each are 6 ranks, not 4", {4, 1, 4, 1}, 3, 2);
    refusal("a pipeline of 3 stages needs 3 processes, one for each stage; there are 2", {1, 1, 1, 3}, 2, 1);
    refusal("there is 1; the devices of one process have layers each without a pipeline", {1, 1, 1, 3}, 1, 3);
}
