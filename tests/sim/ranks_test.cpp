// SPDX-License-Identifier: Apache-2.0
// Models on simulated devices that share every layer. Divided experts give the CPU's logits, bit for bit; any rank may fail.
#include "placement/ranks.h"

#include "runtime/step_space.h"
#include "sim/devices.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"

namespace minim::test {
namespace {

using placement::ParallelRequest;

const Logger k_silent;

std::shared_ptr<const model::Model> model_on_ranks(const Devices& devices, const ParallelRequest& request,
                                                   model::OpenOptions options = {},
                                                   const std::string& path = bundled_model_path()) {
    placement::RankOptions ranks = {
        .request = request, .devices = {devices.begin(), devices.end()}, .log = &k_silent};
    const model::Model::Place place = placement::place_on_ranks(ranks, options);
    return std::make_shared<const model::Model>(path, place, options, k_silent);
}

std::shared_ptr<const model::Model> with_divided_experts(const Devices& devices,
                                                         const model::OpenOptions& options = {}) {
    return model_on_ranks(devices, {.experts = std::ssize(devices)}, options);
}

}  // namespace

TEST_CASE("simulated devices that divide the experts give the CPU's logits, bit for bit") {
    const std::vector<int32_t> ids = some_ids(70);
    const std::vector<float> expected = logits_on(model_on_cpu(), ids, 70);
    for (const size_t n : {2, 3, 4}) {
        const Devices devices = make_devices(n);
        const auto model = with_divided_experts(devices);
        for (const size_t chunk : {70, 13, 1}) CHECK(logits_on(model, ids, chunk) == expected);
        for (const auto& device : devices) CHECK_FALSE(is_empty({device}));
    }
}

TEST_CASE("on divided experts, texts, states, requests, threads and cancelling work as on one device") {
    const Devices devices = make_devices(3);
    {
        const auto model = with_divided_experts(devices);
        check_texts(model);
        check_states(model);
        check_threads(model);
        check_cancelled_evaluation(model);
        engine::Engine engine(model, engine_params(), k_silent);
        check_requests(engine);
        check_host_cache(model);
    }
    CHECK(is_empty(devices));
    check_cancelled_loads(
        devices, [&](const model::OpenOptions& options) { return with_divided_experts(devices, options); });
}

TEST_CASE("simulated devices that divide heads give the same logits in any chunks, near the CPU's") {
    const std::vector<int32_t> ids = some_ids(70);
    const std::vector<float> expected = logits_on(model_on_cpu(), ids, 70);
    const Devices devices = make_devices(2);
    const auto model = model_on_ranks(devices, {.tensor = 2});
    const std::vector<float> whole = logits_on(model, ids, 70);
    for (const size_t chunk : {13, 1}) CHECK(logits_on(model, ids, chunk) == whole);
    REQUIRE(whole.size() == expected.size());
    float largest = 0.0F;
    for (size_t i = 0; i < whole.size(); ++i) largest = std::max(largest, std::abs(whole[i] - expected[i]));
    CHECK(largest > 0.0F);
    CHECK(largest < 0.4F);
    check_host_cache(model);
    // Each device has half of the KV cache.
    engine::Session session = make_session(model, 640);
    const auto kv = [&](size_t d) { return devices[d]->memory().used(backend::MemoryUse::kv); };
    CHECK(kv(0) == kv(1));
    // Simulated devices round blocks of memory up.
    CHECK(kv(0) + kv(1) >= session.kv_bytes());
    CHECK(kv(0) + kv(1) < session.kv_bytes() + session.kv_bytes() / 8);
}

TEST_CASE(
    "whatever fails on one of several ranks is an error with its device's name, and nothing stays behind") {
    for (const ParallelRequest& request : {ParallelRequest{.experts = 2}, ParallelRequest{.tensor = 2}}) {
        for (const size_t failing : {0, 1}) {
            INFO("tensor " << request.tensor << ", device " << failing << " fails");
            const auto make = [&](const sim::Options& options) {
                Devices devices = make_devices(2);
                devices[failing] =
                    std::make_shared<const sim::SimBackend>(static_cast<int32_t>(failing), options);
                return devices;
            };
            const auto use = [&](const Devices& devices) {
                const auto model = model_on_ranks(devices, request);
                engine::Session session = make_session(model, 70);
                all_logits(session, some_ids(5), 5);
                all_logits(session, some_ids(1), 1);
            };
            const Failures failures = fail_at_each("sim:" + std::to_string(failing), make, use);
            CHECK(failures.allocations >= 3);
            CHECK(failures.transfers >=
                  2 * 3 * 2);  // of a sum or slots of three layers in two steps, there and back
            CHECK(failures.operations >= 2 * 3 * 4);
        }
    }
}

TEST_CASE("what is not possible with ranks is refused by name") {
    const Devices devices = make_devices(3);
    expect_error(Status::invalid, "2 KV heads cannot be divided among 3 ranks",
                 [&] { model_on_ranks(devices, {.tensor = 3}); });
    expect_error(Status::invalid, "1 process with 3 devices is 3 ranks, not 2",
                 [&] { model_on_ranks(devices, {.experts = 2}); });
    placement::Machine machine = machine_of({devices[0], devices[1]});
    const auto refuse = [&](const placement::Request& request, std::string_view what) {
        expect_error(Status::invalid, what, [&] { placement::rank_devices(request, machine); });
    };
    refuse({.shares = {2.0, 1.0}, .parallel = {.tensor = 2}},
           "a share of 1 of the layers beside 2 is not possible with tensor parallel 2");
    refuse({.n_device_layers = 2}, "a number of layers on the devices");
    refuse({.overrides = "exps=cpu"}, "the rule 'exps=cpu'");
    refuse({.n_host_experts = 1}, "keeping experts on the host");
    refuse({.cache_bytes = 1 << 20, .caches_host_experts = true}, "a cache of experts");
    CHECK(placement::rank_devices({.shares = {1.0, 1.0}}, machine).size() == 2);
    CHECK(is_empty(devices));
}

}  // namespace minim::test
