// SPDX-License-Identifier: Apache-2.0
// Plans for ranks: their bytes are those of the parts that they have, and their speed is that of the slowest beside their sums.
#include "placement/rank_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/checked.h"
#include "model/roles.h"
#include "model/shares.h"
#include "placement/predict.h"
#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;
using namespace minim::placement;
using model::Role;
using weights::WeightSpec;

namespace {

// A model with the shapes of MiniMax-M2, but for fewer layers.
struct RankedModel {
    model::Config config;
    checkpoint::Tensor floats;  // of all weights, of which only the type matters
    std::vector<WeightSpec> weights;

    explicit RankedModel(Format down = Format::q4_k, int64_t n_layer = 6) {
        config.n_layer = n_layer;
        config.hidden = 3072;
        config.n_head = 48;
        config.n_head_kv = 8;
        config.head_dim = 128;
        config.n_expert = 256;
        config.n_expert_used = 8;
        config.expert_ff = 1536;
        config.n_vocab = 200'064;
        config.n_context_train = 196'608;
        floats.format = Format::f32;
        const int64_t q = config.n_head * config.head_dim;
        const int64_t kv = config.n_head_kv * config.head_dim;
        matrix(Role::embedding, -1, Format::q8_0, config.n_vocab, config.hidden);
        for (int64_t layer = 0; layer < n_layer; ++layer) {
            vector(Role::attn_norm, layer, config.hidden);
            matrix(Role::wq, layer, Format::q8_0, q, config.hidden);
            matrix(Role::wk, layer, Format::q8_0, kv, config.hidden);
            matrix(Role::wv, layer, Format::q8_0, kv, config.hidden);
            matrix(Role::wo, layer, Format::iq4_ks, config.hidden, q);  // its rows have headers
            matrix(Role::router, layer, Format::f32, config.n_expert, config.hidden);
            vector(Role::q_norm, layer, q);
            vector(Role::k_norm, layer, kv);
            vector(Role::ffn_norm, layer, config.hidden);
            vector(Role::router_bias, layer, config.n_expert);
            vector(Role::experts_norm, layer, config.hidden);
            for (int64_t e = 0; e < config.n_expert; ++e) {
                matrix(Role::gate, layer, down, config.expert_ff, config.hidden, e);
                matrix(Role::up, layer, down, config.expert_ff, config.hidden, e);
                matrix(Role::down, layer, down, config.hidden, config.expert_ff, e);
            }
        }
        vector(Role::output_norm, -1, config.hidden);
        matrix(Role::output, -1, Format::q8_0, config.n_vocab, config.hidden);
    }
    RankedModel(const RankedModel&) = delete;
    RankedModel& operator=(const RankedModel&) = delete;

  private:
    void matrix(Role role, int64_t layer, Format format, int64_t rows, int64_t cols, int64_t expert = -1) {
        weights.push_back({.role = static_cast<int32_t>(role),
                           .layer = static_cast<int32_t>(layer),
                           .expert = static_cast<int32_t>(expert),
                           .use = weights::Use::product,
                           .format = format,
                           .rows = rows,
                           .cols = cols,
                           .row_bytes = row_bytes(format, cols),
                           .source = {.tensor = &floats}});
    }
    void vector(Role role, int64_t layer, int64_t size) {
        matrix(role, layer, Format::f32, 1, size);
        weights.back().use = weights::Use::vector;
    }
};

Machine machine_of(int64_t n_devices, double gib = 96, double bandwidth = 1e12) {
    Machine machine;
    for (int64_t d = 0; d < n_devices; ++d)
        machine.devices.push_back({.name = "cuda:" + std::to_string(d),
                                   .memory_bytes = static_cast<uint64_t>(gib * 1073741824.0),
                                   .bytes_per_second = bandwidth,
                                   .link_bytes_per_second = 25e9});
    machine.host = {.memory_bytes = uint64_t{512} << 30, .bytes_per_second = 3e11};
    return machine;
}

Request ranks_request(const ParallelRequest& parallel, int64_t n_context = 1024) {
    return {.n_context = n_context, .parallel = parallel};
}

// Returns what each rank has of a weight, by its rank.
std::vector<WeightSpec> parts_of_ranks(const ParallelPlan& plan, const model::Config& config,
                                       const WeightSpec& weight) {
    std::vector<WeightSpec> parts;
    for (int64_t rank = 0; rank < plan.n_ranks(); ++rank)
        if (const auto part = model::part_of(shard_of(plan, rank, config.n_layer), weight, config))
            parts.push_back(*part);
    return parts;
}

bool plan_says(const Plan& plan, const std::string& part) {
    return std::ranges::any_of(plan.choices,
                               [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("ranks have each part of a divided weight once, and copies of the others") {
    const RankedModel model(Format::q8_0, 3);
    const ParallelPlan plans[] = {{4, 2, 2, 1}, {8, 1, 8, 1}, {8, 8, 1, 1},
                                  {1, 3, 1, 1}, {2, 1, 2, 3}, {1, 1, 1, 3}};
    for (const ParallelPlan& plan : plans) {
        CAPTURE(plan.tensor, plan.expert_groups, plan.expert_parts, plan.pipeline);
        bool is_right = true;
        for (const WeightSpec& weight : model.weights) {
            const auto role = static_cast<Role>(weight.role);
            const std::vector<WeightSpec> parts = parts_of_ranks(plan, model.config, weight);
            int64_t n_numbers = 0;
            std::set<std::tuple<uint64_t, int64_t>> places;  // of parts in the weight
            for (const WeightSpec& part : parts) {
                n_numbers += part.rows * part.cols;
                places.insert(
                    {part.source.offset, part.source.columns ? part.source.columns->first_byte : 0});
            }
            const bool is_copied = role == Role::embedding || role == Role::attn_norm ||
                                   role == Role::ffn_norm || role == Role::router ||
                                   role == Role::router_bias ||
                                   (plan.tensor > 1 ? role == Role::output_norm
                                                    : role <= Role::router && role != Role::embedding) ||
                                   (plan.tensor == 1 && (role == Role::q_norm || role == Role::k_norm));
            const int64_t n_whole = role == Role::experts_norm ? 0 : is_copied ? plan.ranks_of_stage() : 1;
            is_right &= n_numbers == n_whole * weight.rows * weight.cols;
            is_right &= places.size() == (is_copied ? 1 : parts.size());
        }
        CHECK(is_right);
    }
    const ParallelPlan stages = {1, 1, 1, 3};
    CHECK(shard_of(stages, 0, 62).first_layer == 41);  // the leader has the last layers
    CHECK(shard_of(stages, 0, 62).n_layer == 21);
    CHECK(shard_of(stages, 2, 62).first_layer == 0);
}

TEST_CASE("the bytes of a rank are those of its parts, each matrix rounded up") {
    const RankedModel model(Format::q4_k, 6);
    const Plan plan =
        plan_ranks(ranks_request({.tensor = 4}, 1000), machine_of(4), model.config, model.weights);
    CHECK(plan.parallel == ParallelPlan{4, 2, 2, 1});
    REQUIRE(plan.devices().size() == 4);
    const auto bytes_of = [](Format format, int64_t rows, int64_t cols) {
        return align_up(static_cast<uint64_t>(rows * row_bytes(format, cols)), 256);
    };
    const uint64_t layer = bytes_of(Format::q8_0, 1536, 3072) + 2 * bytes_of(Format::q8_0, 256, 3072) +
                           bytes_of(Format::iq4_ks, 3072, 1536) + bytes_of(Format::f32, 256, 3072) +
                           2 * bytes_of(Format::f32, 1, 3072) + bytes_of(Format::f32, 1, 1536) +
                           2 * bytes_of(Format::f32, 1, 256);
    const uint64_t others = bytes_of(Format::q8_0, 200'064, 3072) + bytes_of(Format::q8_0, 50'016, 3072) +
                            bytes_of(Format::f32, 1, 3072);
    const uint64_t expert = 2 * bytes_of(Format::q4_k, 768, 3072) + bytes_of(Format::q4_k, 3072, 768);
    for (const PlannedPlace& rank : plan.devices()) {
        CHECK(rank.dense_bytes == 6 * layer + others);
        CHECK(rank.expert_bytes == 6 * 128 * expert);
        CHECK(rank.n_experts == 6 * 128);
        CHECK(rank.n_layers == 6);
        CHECK(rank.kv_bytes == 6 * 1024 * 2 * 2 * 128 * 2);  // 1,024 tokens, 2 heads, K and V in F16
        CHECK(rank.free_bytes > 0);
    }
    CHECK(plan.fits);
    CHECK(plan.token_expert_bytes == 6 * 8 * 2 * expert);
    CHECK(plan_says(plan, "4 ranks: tensor parallel 4; experts in 2 groups, each expert in 2 parts"));
    CHECK(plan_says(plan, "rank 3 on cuda:3: 2 KV heads of 6 layers"));

    const Plan experts =
        plan_ranks(ranks_request({.experts = 3}), machine_of(3), model.config, model.weights);
    CHECK(experts.places[0].n_experts == 6 * 86);
    CHECK(experts.places[1].n_experts == 6 * 85);
    CHECK(experts.places[0].dense_bytes - experts.places[1].dense_bytes ==
          bytes_of(Format::q8_0, 200'064, 3072) + bytes_of(Format::f32, 1, 3072));  // the head
}

TEST_CASE("a host without devices is one rank of several like it") {
    const RankedModel model;
    const Plan plan = plan_ranks(ranks_request({.experts = 2}), machine_of(0), model.config, model.weights);
    REQUIRE(plan.devices().size() == 2);
    CHECK(plan.places[1].name == "cpu");
    CHECK(plan.decode_seconds.host_experts > 0.0);
    CHECK(plan.decode_seconds.device_experts == 0.0);
    CHECK(plan.decode_seconds.sums == Approx(6 * 20e-6));
}

TEST_CASE("the fullest of several groups has a known number of a token's experts") {
    CHECK(fullest_group(256, 8, 1) == Approx(8.0));
    CHECK(fullest_group(256, 8, 2) == Approx(5.08).margin(0.01));
    CHECK(fullest_group(256, 8, 4) == Approx(3.51).margin(0.01));
    CHECK(fullest_group(256, 8, 8) == Approx(2.56).margin(0.01));
    CHECK(fullest_group(4, 4, 4) == Approx(1.0));
    CHECK(fullest_group(3, 1, 3) == Approx(1.0));
}

TEST_CASE("ranks wait for their sums, and stages for each other") {
    const RankedModel model;
    const auto planned = [&](const ParallelRequest& parallel, const LinkFacts& link, int64_t n_devices) {
        Request request = ranks_request(parallel);
        request.link = link;
        return plan_ranks(request, machine_of(n_devices), model.config, model.weights);
    };
    const LinkFacts link = {.sum_seconds = 9e-6, .bytes_per_second = 20e9};
    const Plan plan = planned({.tensor = 4}, link, 4);
    CHECK(plan.decode_seconds.sums == Approx(6 * 3 * 9e-6));
    CHECK(plan.decode_seconds.hand_over == 0.0);
    CHECK(1.0 / plan.decode_tokens_per_second == Approx(plan.decode_seconds.total()));
    CHECK(planned({.tensor = 4}, {}, 4).decode_seconds.sums == Approx(6 * 3 * 20e-6));
    CHECK(planned({.experts = 4}, link, 4).decode_seconds.sums == Approx(6 * 9e-6));
    // A slower link slows prompts down by its bytes: 512 rows of 12 KB, twice a layer, 1.5 times over the link.
    const double fast = 512.0 / plan.prompt_tokens_per_second;
    const double slow = 512.0 / planned({.tensor = 4}, {9e-6, 1e9}, 4).prompt_tokens_per_second;
    CHECK(slow - fast == Approx(6 * 2 * 1.5 * 512 * 12'288 * (1e-9 - 0.05e-9)));
    const Plan stages = planned({.tensor = 2, .pipeline = 2}, link, 4);
    CHECK(stages.decode_seconds.hand_over == Approx(9e-6 + 12'288 / 20e9));
    CHECK(stages.places[0].n_layers == 3);
    // Half of the heads and of the experts take less time than all, and more than half of it.
    const double one = planned({.experts = 1, .pipeline = 1}, link, 1).decode_seconds.dense;
    CHECK(plan.decode_seconds.dense < one);
    CHECK(plan.decode_seconds.dense > one / 4);
    CHECK(plan.decode_seconds.kv_cache ==
          Approx(planned({.experts = 1}, link, 1).decode_seconds.kv_cache / 4));
}

TEST_CASE("what ranks cannot do is refused by what was asked for") {
    const RankedModel model;
    const auto refused = [&](std::string_view text, Machine machine, auto&& change) {
        Request request = ranks_request({.tensor = 2});
        change(request, machine);
        expect_error(Status::invalid, text,
                     [&] { plan_ranks(request, machine, model.config, model.weights); });
    };
    refused("a share of 3 of the layers beside 1 is not possible with tensor parallel 2", machine_of(2),
            [](Request& request, Machine&) {
                request.shares = {1, 3};
            });
    refused("keeping experts on the host is not possible with tensor parallel 2: its ranks have all experts",
            machine_of(2), [](Request& request, Machine&) { request.n_host_experts = 3; });
    refused("the rule 'exps=cpu' is not possible", machine_of(2),
            [](Request& request, Machine&) { request.overrides = "exps=cpu"; });
    refused("a cache of experts is not possible", machine_of(2),
            [](Request& request, Machine&) { request.caches_host_experts = true; });
    refused("a number of layers on the devices is not possible", machine_of(2),
            [](Request& request, Machine&) { request.n_device_layers = 3; });
    refused("sim:0 beside cuda:0 is not possible", machine_of(2),
            [](Request&, Machine& machine) { machine.devices[1].name = "sim:0"; });
    refused("cuda:1 (sm_86) beside cuda:0 (sm_90) is not possible", machine_of(2),
            [](Request&, Machine& machine) {
                machine.devices[0].compute_capability = 90;
                machine.devices[1].compute_capability = 86;
            });
    refused("tensor parallel 2 means 2 ranks, one on each device; 4 devices are named", machine_of(4),
            [](Request&, Machine&) {});
    refused("tensor parallel 2 means 2 ranks, one on each device; 1 device is named", machine_of(1),
            [](Request&, Machine&) {});
    refused("8 KV heads cannot be divided among 3 ranks", machine_of(3),
            [](Request& request, Machine&) { request.parallel.tensor = 3; });
}

TEST_CASE("ranks that do not fit say what would fit") {
    const RankedModel model;
    const Plan plan =
        plan_ranks(ranks_request({.tensor = 2}, 131'072), machine_of(2, 8.4), model.config, model.weights);
    CHECK_FALSE(plan.fits);
    CHECK(plan_says(plan, "rank 0 on cuda:0: does not fit"));
    CHECK(plan_says(plan, "rank 1 on cuda:1: does not fit"));
    CHECK(plan_says(plan, "a context of "));
    CHECK(plan_says(plan, "a KV cache of Q8_0 would fit 131072 tokens"));
}

TEST_CASE("the sizes of an engine are chosen for ranks too") {
    const RankedModel model;
    Request request = ranks_request({.tensor = 2}, 0);
    request.for_engine = true;
    request.n_sequences = 16;
    const Plan plan = plan_ranks(request, machine_of(2), model.config, model.weights);
    CHECK(plan.fits);
    CHECK(plan.n_context == model.config.n_context_train);
    CHECK(plan.n_kv_tokens >= plan.n_context);
    CHECK(plan.n_sequences > 1);
}

TEST_CASE("a plan compares ranks with layers on each device") {
    const RankedModel model(Format::q4_k, 24);
    Machine machine = machine_of(4);
    const auto planned = [&](const ParallelRequest& parallel, double sum_seconds) {
        Request request = ranks_request(parallel);
        request.cache_bytes = k_cache_all_room;
        request.link = {.sum_seconds = sum_seconds};
        return make_plan(request, machine, model.config, model.weights);
    };
    const Plan fast = planned({.tensor = k_all_ranks}, 5e-6);
    CHECK(fast.parallel.tensor == 4);
    CHECK(plan_says(fast, "tokens/s predicted, slower than"));
    CHECK_FALSE(plan_says(fast, "warning"));
    const Plan slow = planned({.tensor = 4}, 500e-6);
    CHECK(plan_says(slow, "warning: layers on each device instead of parts of all layers"));
    const Plan layers = planned({}, 5e-6);
    CHECK(layers.parallel == ParallelPlan{});
    CHECK(plan_says(layers, "parts of all layers on each device (-tp 4)"));
    CHECK_FALSE(plan_says(planned({}, 500e-6), "(-tp 4)"));
    CHECK(planned({.tensor = 1}, 5e-6).parallel == ParallelPlan{});
    machine = machine_of(4, 8);  // too little for a quarter of the model, but the host has room for experts
    const Plan too_large = planned({.tensor = 4}, 5e-6);
    CHECK_FALSE(too_large.fits);
    CHECK(plan_says(too_large, "layers on each device instead of parts of all layers would fit"));
    CHECK_FALSE(plan_says(too_large, "than"));
}
