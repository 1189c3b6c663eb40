// SPDX-License-Identifier: Apache-2.0
// Tests that importance data is the same wherever the model lies, and that devices which cannot show their inputs are named.
#include "engine/importance.h"

#include <algorithm>
#include <string>
#include <vector>

#include "placement/backends.h"
#include "sim/devices.h"
#include "sim/expert_caches.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"

namespace minim::test {
namespace {

checkpoint::ImportanceData importance_of(const std::shared_ptr<const model::Model>& model,
                                         const std::vector<int32_t>& ids, int64_t n_ubatch) {
    const Logger silent;
    const engine::Importance importance(model, {.chunk_size = std::ssize(ids), .with_head = true});
    engine::SessionParams params;
    params.n_context = std::ssize(ids);
    params.n_ubatch = n_ubatch;
    engine::Session session(model, params, silent);
    session.observe(importance.inputs());
    session.eval(ids, false, {}, nullptr);
    return importance.data();
}

void check_equal(const checkpoint::ImportanceData& a, const checkpoint::ImportanceData& b) {
    REQUIRE(a.entries.size() == b.entries.size());
    for (size_t i = 0; i < a.entries.size(); ++i) {
        INFO(a.entries[i].name);
        CHECK(a.entries[i].sums == b.entries[i].sums);
        CHECK(a.entries[i].counts == b.entries[i].counts);
        CHECK(a.entries[i].in_max == b.entries[i].in_max);
        CHECK(a.entries[i].out_norm == b.entries[i].out_norm);
    }
}

}  // namespace

TEST_CASE("importance data of devices is that of the CPU, wherever the experts are") {
    const SixLayers six;
    const auto on_cpu =
        importance_of(model_placed(machine_of({cpu_backend()}), {}, {}, six.path), six.ids, 90);
    CHECK(on_cpu.entries.size() == 6 * 7 + 1);
    const Devices devices = make_devices(2);
    const Backends two = {devices[0], devices[1]};
    const auto check_on = [&](const placement::Machine& machine, const placement::Request& request) {
        const auto model = model_placed(machine, request, {}, six.path);
        INFO(to_string(model->placement()));
        for (const int64_t n_ubatch : {90, 13, 1})
            check_equal(importance_of(model, six.ids, n_ubatch), on_cpu);
    };
    check_on(machine_of(two), {.shares = {1, 1}});
    check_on(machine_of(two), {.shares = {1, 1}, .n_host_experts = 3});
    check_on(machine_of({devices[0]}, {devices[1]}), {.overrides = R"(blk\.(1|5)\..*exps=sim:1)"});
}

TEST_CASE("importance data of M3 on devices is that of the CPU") {
    const std::string path = MINIM_TEST_DATA "/models/minim-tiny-m3";
    const std::vector<int32_t> ids = some_ids(150);
    const auto on_cpu = importance_of(model_placed(machine_of({cpu_backend()}), {}, {}, path), ids, 150);
    const auto has = [&](const std::string& name) {
        return std::ranges::any_of(on_cpu.entries, [&](const auto& entry) { return entry.name == name; });
    };
    for (const char* name :
         {"blk.0.ffn_down.weight", "blk.3.ffn_down_shexp.weight", "blk.3.indexer.q_proj.weight"})
        CHECK(has(name));
    const Devices devices = make_devices(2);
    const Backends two = {devices[0], devices[1]};
    for (const placement::Request& request :
         {placement::Request{.shares = {1, 1}}, placement::Request{.shares = {1, 1}, .n_host_experts = 2}}) {
        const auto model = model_placed(machine_of(two), request, {}, path);
        INFO(to_string(model->placement()));
        for (const int64_t n_ubatch : {150, 1}) check_equal(importance_of(model, ids, n_ubatch), on_cpu);
    }
}

TEST_CASE("a device that cannot show its inputs is named") {
    const auto without = model_on(make_devices(1, {.observes_slots = false}));
    expect_error(Status::unsupported, "sim:0: importance data is not supported on this device yet",
                 [&] { engine::Importance(without, {}); });
    const auto cached = with_cache(make_devices(1), uint64_t{1} << 20, runtime::ExpertMoves::fixed);
    expect_error(Status::unsupported, "sim:0: importance data is not collected with a cache of experts yet",
                 [&] { engine::Importance(cached, {}); });
    engine::Session session = make_session(without, 64);
    const engine::Importance importance(model_on(make_devices(1)), {});
    expect_error(Status::unsupported, "sim:0", [&] { session.observe(importance.inputs()); });
}

}  // namespace minim::test
