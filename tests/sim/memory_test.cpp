// SPDX-License-Identifier: Apache-2.0
// Tests how much memory of devices is taken: no more than a budget, and only once by sessions that come and go.
#include "backend/device_memory.h"
#include "base/error.h"
#include "kv/page_pool.h"
#include "placement/devices.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using backend::MemoryState;
using backend::MemoryUse;

constexpr uint64_t k_mib = uint64_t{1} << 20;
// A simulated device rounds each block up to pages: some weights, a pack's copy, a few of sessions.
constexpr uint64_t k_rounding = 16 * 4096;

std::shared_ptr<const sim::SimBackend> device_with(uint64_t budget_bytes) {
    return std::make_shared<const sim::SimBackend>(0, sim::Options{.budget_bytes = budget_bytes});
}

}  // namespace

TEST_CASE("a device tells what is used of it for what, and all of it is told") {
    const Devices devices = make_devices(2);
    const auto model = model_on(devices);
    const MemoryState loaded = devices[1]->memory();
    CHECK(loaded.used(MemoryUse::weights) == model->weight_bytes()[1].total);
    CHECK(loaded.used() == loaded.used(MemoryUse::weights));
    uint64_t weights = 0;
    for (const weights::WeightBytes& stage : model->weight_bytes()) {
        CHECK(stage.experts > 0);
        CHECK(stage.experts < stage.total);
        CHECK_FALSE(stage.is_mapped);
        weights += stage.total;
    }
    CHECK(weights >= model->checkpoint().tensor_bytes());
    CHECK(weights < model->checkpoint().tensor_bytes() + model->checkpoint().tensor_bytes() / 50);
    {
        engine::Session session = make_session(model, 200);
        const auto fork = session.fork();
        uint64_t kv = 0;
        for (const auto& device : devices) {
            const MemoryState now = device->memory();
            kv += now.used(MemoryUse::kv);
            CHECK(now.used(MemoryUse::work) > 0);
            CHECK(now.free_bytes + now.used() <= k_mib << 10);
            CHECK(now.free_bytes + now.used() + k_rounding > k_mib << 10);
        }
        // The fork shares no page yet, and none of them is whole.
        CHECK(kv == 2 * session.kv_bytes());
    }
    CHECK(devices[1]->memory().used_bytes == loaded.used_bytes);
}

TEST_CASE("sessions that come and go take memory of the device once") {
    const Devices devices = make_devices(2);
    const auto model = model_on(devices);
    const std::vector<int32_t> ids = some_ids(40);
    engine::Session expected = make_session(model_on_cpu(), 100);
    const std::vector<float> logits = all_logits(expected, ids, 40);
    std::vector<int64_t> taken;
    for (int i = 0; i < 50; ++i) {
        engine::Session session = make_session(model, 100);
        const auto fork = session.fork();
        CHECK(all_logits(session, ids, 40) == logits);
        for (const auto& device : devices) {
            if (i == 0) taken.push_back(device->n_blocks_taken());
            CHECK(device->memory().kept_bytes < k_mib);
        }
    }
    for (size_t i = 0; i < devices.size(); ++i) CHECK(devices[i]->n_blocks_taken() == taken[i]);
    CHECK(devices[0]->memory().kept_bytes > 0);
}

TEST_CASE("a budget limits weights, KV cache and work space, and its error has the figures") {
    const auto needs = [](const std::shared_ptr<const sim::SimBackend>& device) {
        const auto model = model_on({device});
        engine::Session session = make_session(model, 150);
        all_logits(session, some_ids(70), 33);
        const auto fork = session.fork();
        all_logits(*fork, some_ids(3), 3);
    };
    const auto unlimited = device_with(backend::k_no_budget);
    needs(unlimited);
    const uint64_t most = unlimited->most_used_bytes();
    // The budget grows from nothing to all that is needed, so that each kind of memory is at some step the one that
    // does not fit.
    int n_refused = 0;
    std::string why;
    for (uint64_t budget = 1; budget <= most + k_rounding; budget += most / 40) {
        const auto device = device_with(budget);
        try {
            needs(device);
        } catch (const Error& error) {
            ++n_refused;
            CHECK(error.status() == Status::out_of_device_memory);
            const std::string text = error.what();
            why += text;
            CHECK(text.find("sim:0") != std::string::npos);
            CHECK(text.find(" of the budget of " + std::to_string(budget) + " bytes are used") !=
                  std::string::npos);
            CHECK(error.facts().requested > error.facts().available);
        }
        CHECK(device->most_used_bytes() <= budget + k_rounding);
        CHECK(device->used_bytes() == 0);
    }
    CHECK(n_refused >= 35);
    for (const char* what : {"bytes for weights needed", "bytes for activations needed", "KV cache of "})
        CHECK(why.find(what) != std::string::npos);
    needs(device_with(most));
}

TEST_CASE("a context that a budget does not leave room for is refused with the one that would fit") {
    const auto device = device_with(16 * k_mib);
    const auto model = model_on({device});
    const MemoryState loaded = device->memory();
    std::string text;
    try {
        make_session(model, 65536);
    } catch (const Error& error) {
        text = error.what();
    }
    CAPTURE(text);
    CHECK(text.find("KV cache of 65536 tokens on sim:0: ") == 0);
    CHECK(text.find("of the budget of 16777216 bytes are used") != std::string::npos);
    CHECK(device->memory().used_bytes == loaded.used_bytes);
    const size_t at = text.find("a context of ");
    REQUIRE(at != std::string::npos);
    const int64_t fitting = std::atoll(text.c_str() + at + 13);
    CHECK(fitting >= 64);
    CHECK(make_session(model, fitting).n_context() == fitting);
}

TEST_CASE("layers that are spread by free memory keep to the budgets") {
    model::Config config;
    config.n_layer = 10;
    std::vector<weights::WeightSpec> shapes = shapes_of_layers(10);
    const runtime::Placement placement = placement::place_on(
        machine_of({device_with(8 * k_mib), device_with(32 * k_mib)}), {})(config, shapes);
    const std::span<const runtime::Stage> stages = placement.stages();
    REQUIRE(stages.size() == 2);
    CHECK(stages[0].n_layer == 2);
    CHECK(stages[1].n_layer == 8);
}

}  // namespace minim::test
