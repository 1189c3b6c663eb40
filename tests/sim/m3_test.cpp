// SPDX-License-Identifier: Apache-2.0
// MiniMax-M3 on devices: layers without experts, a feed-forward that every row takes, an activation of its own, and chosen blocks.
#include <cmath>
#include <string>
#include <vector>

#include "backend/device_memory.h"
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "model/bind.h"
#include "model/headers.h"
#include "placement/rank_plan.h"
#include "placement/ranks.h"
#include "sim/devices.h"
#include "sim/expert_caches.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"

namespace minim::test {
namespace {

const std::string k_m3_path = MINIM_TEST_DATA "/models/minim-tiny-m3";

std::vector<float> m3_logits_on(const std::shared_ptr<const model::Model>& model,
                                const std::vector<int32_t>& ids, size_t chunk) {
    engine::Session session = make_session(model, 320);
    return all_logits(session, ids, chunk);
}

// Returns the number of rows whose difference has more than a twentieth of their root mean square.
size_t rows_far_apart(const std::vector<float>& a, const std::vector<float>& b, size_t n_rows) {
    const size_t width = b.size() / n_rows;
    size_t count = 0;
    for (size_t row = 0; row < n_rows; ++row) {
        double difference = 0.0;
        double square = 0.0;
        for (size_t i = row * width; i < (row + 1) * width; ++i) {
            difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
            square += std::pow(static_cast<double>(b[i]), 2);
        }
        if (!(difference <= square / 400.0)) ++count;
    }
    return count;
}

}  // namespace

TEST_CASE("M3 on devices, with experts on the host or not, has the CPU's logits, bit for bit") {
    const std::vector<int32_t> ids = some_ids(300);
    const std::vector<float> expected = m3_logits_on(model_on_cpu(k_m3_path), ids, 300);
    const auto check = [&](const std::shared_ptr<const model::Model>& model, const std::string& where) {
        CHECK(to_string(model->placement()) == where);
        for (const size_t chunk : {300, 70, 7}) CHECK(m3_logits_on(model, ids, chunk) == expected);
    };
    check(model_on(make_devices(1), {}, k_m3_path), "sim:0 (layers 0-3)");
    check(model_on(make_devices(2), {}, k_m3_path), "sim:0 (layers 0-1), sim:1 (layers 2-3)");
    const Devices devices = make_devices(1);
    const auto offloaded = [&](const placement::Request& request) {
        return model_placed(machine_of({devices.begin(), devices.end()}), request, {}, k_m3_path);
    };
    // Layer 0 has no experts that could be offloaded.
    check(offloaded({.n_host_experts = INT32_MAX}), "sim:0 (layers 0-3), cpu (experts of layers 1-3)");
    check(offloaded({.n_host_experts = 2}), "sim:0 (layers 0-3), cpu (experts of layer 1)");
    check(offloaded({.overrides = R"(blk\.2\..*_exps=cpu)"}), "sim:0 (layers 0-3), cpu (experts of layer 2)");
}

TEST_CASE("the cache of experts has no entry for layers of M3 that have none") {
    const std::vector<int32_t> ids = some_ids(300);
    const std::vector<float> expected = m3_logits_on(model_on_cpu(k_m3_path), ids, 300);
    const auto model =
        with_cache(make_devices(1), uint64_t{1} << 20, runtime::ExpertMoves::reproducible, k_m3_path);
    REQUIRE(model->expert_pools().front() != nullptr);
    CHECK_FALSE(model->expert_pools().front()->has(0));
    for (int64_t layer = 1; layer < 4; ++layer) CHECK(model->expert_pools().front()->has(layer));
    for (const size_t chunk : {300, 70, 7}) CHECK(m3_logits_on(model, ids, chunk) == expected);
}

TEST_CASE(
    "ranks that divide M3's experts give the CPU's logits, bit for bit; those that divide heads, near ones") {
    const std::vector<int32_t> ids = some_ids(300);  // more than the blocks that a row chooses
    const std::vector<float> expected = m3_logits_on(model_on_cpu(k_m3_path), ids, 300);
    const Logger silent;
    for (const placement::ParallelRequest& request :
         {placement::ParallelRequest{.experts = 2}, placement::ParallelRequest{.tensor = 2}}) {
        const Devices devices = make_devices(2);
        model::OpenOptions options;
        const placement::RankOptions ranks = {
            .request = request, .devices = {devices.begin(), devices.end()}, .log = &silent};
        const model::Model::Place place = placement::place_on_ranks(ranks, options);
        const auto model = std::make_shared<const model::Model>(k_m3_path, place, options, silent);
        const std::vector<float> whole = m3_logits_on(model, ids, 300);
        // Each rank has half of a dense feed-forward and of a shared expert where it has half of the heads.
        const auto& shard = model->placement().shards().front();
        CHECK(shard.share.dense_parts == (request.tensor < 2 ? 1 : 2));
        INFO("tensor " << request.tensor << ", experts " << request.experts);
        for (const size_t chunk : {70, 7}) CHECK(m3_logits_on(model, ids, chunk) == whole);
        if (request.tensor < 2) {
            CHECK(whole == expected);
        } else {
            CHECK(whole != expected);
            CHECK(rows_far_apart(whole, expected, ids.size()) <= 30);  // a near tie changes a row's experts
        }
    }
}

TEST_CASE("the plan of ranks for M3 has the bytes of weights that each rank takes") {
    const Logger silent;
    const auto checkpoint = checkpoint::Checkpoint::open(k_m3_path, silent);
    model::Config config = model::read_config(checkpoint, silent);
    const auto weights = model::bind_weights(checkpoint, config, silent);
    for (const placement::ParallelRequest& request :
         {placement::ParallelRequest{.experts = 2}, placement::ParallelRequest{.tensor = 2},
          placement::ParallelRequest{.tensor = 2, .experts = 2}}) {
        INFO("tensor " << request.tensor << ", experts " << request.experts);
        const Devices devices = make_devices(2);
        model::OpenOptions options;
        const placement::RankOptions ranks = {
            .request = request, .devices = {devices.begin(), devices.end()}, .log = &silent};
        const model::Model model(k_m3_path, placement::place_on_ranks(ranks, options), options, silent);
        const placement::Machine machine = machine_of({devices.begin(), devices.end()});
        const placement::Plan plan =
            placement::plan_ranks({.n_context = 320, .parallel = request}, machine, config, weights);
        // A plan counts the tables of experts, and of the feed-forwards of all rows, as work space.
        const uint64_t tables =
            static_cast<uint64_t>(config.n_layer * (config.n_expert + 1)) * sizeof(backend::ExpertPlace);
        for (size_t rank = 0; rank < 2; ++rank)
            CHECK(plan.places[rank].dense_bytes + plan.places[rank].expert_bytes + tables ==
                  devices[rank]->memory().used(backend::MemoryUse::weights));
    }
}

TEST_CASE("a device without the activation of M3 refuses the model by name") {
    const Devices devices = make_devices(1, {.clamps = false});
    expect_error(Status::unsupported, "sim:0: does not compute the activation of this model",
                 [&] { model_on(devices, {}, k_m3_path); });
    CHECK(is_empty(devices));
}

TEST_CASE("overrides of M3 place chosen experts only") {
    const Devices devices = make_devices(1);
    const auto placed = [&](const std::string& overrides) {
        model_placed(machine_of({devices.begin(), devices.end()}), {.overrides = overrides}, {}, k_m3_path);
    };
    for (const char* name : {R"(blk\.0\.ffn_up\.=cpu)", R"(blk\.1\.ffn_up_shexp=cpu)", R"(indexer=cpu)"})
        expect_error(Status::unsupported, "only experts can be offloaded", [&] { placed(name); });
    expect_error(Status::invalid, "no tensor has such a name", [&] { placed(R"(blk\.0\..*_exps=cpu)"); });
}

}  // namespace minim::test
