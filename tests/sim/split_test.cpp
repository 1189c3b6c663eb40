// SPDX-License-Identifier: Apache-2.0
// Tests that a model whose layers are spread over devices answers exactly as on one device.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "placement/planner.h"
#include "sim/devices.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"

namespace minim::test {

TEST_CASE("layers are split in proportion, and all of them are given away") {
    using Counts = std::vector<int64_t>;
    const auto split = [](int64_t n, std::vector<double> shares) {
        return placement::split_layers(n, shares);
    };
    CHECK(split(62, {1, 1, 1, 1}) == Counts{16, 15, 16, 15});
    CHECK(split(62, {1}) == Counts{62});
    CHECK(split(62, {0, 3, 1}) == Counts{0, 47, 15});
    CHECK(split(3, {1, 1, 1, 1}).size() == 4);
    CHECK(split(2, {1e-9, 1}) == Counts{0, 2});
    expect_error(Status::invalid, "-1", [&] { split(62, {2, -1}); });
    expect_error(Status::invalid, "add up to 0", [&] { split(62, {0, 0}); });
    expect_error(Status::invalid, "nan", [&] { split(62, {1, std::nan("")}); });
}

TEST_CASE("one simulated device gives the CPU's logits, bit for bit") {
    const Devices devices = make_devices(1);
    const std::vector<int32_t> ids = some_ids(70);
    const std::vector<float> expected = logits_on(model_on_cpu(), ids, 70);
    const auto model = model_on(devices);
    CHECK(model->backend().name() == "sim:0");
    for (const size_t chunk : {70, 13, 1}) CHECK(logits_on(model, ids, chunk) == expected);
}

TEST_CASE("weights of several tensors each are gathered on their way to a device") {
    for (const char* name : {"fp8", "nvfp4", "awq"}) {
        INFO(name);
        const std::string path = std::string(MINIM_TEST_MODELS) + "/minim-tiny-" + name;
        const std::vector<int32_t> ids = some_ids(20);
        const std::vector<float> expected = logits_on(model_on_cpu(path), ids, 20);
        CHECK(logits_on(model_on(make_devices(2), {}, path), ids, 20) == expected);
    }
}

TEST_CASE("layers over four devices give the logits of one, over the host or from device to device") {
    const SixLayers six;
    for (const bool peers : {true, false}) {
        const Devices devices = make_devices(4, {.reaches_peers = peers});
        const auto model = model_on(devices, {}, six.path);
        REQUIRE(model->placement().stages().size() == 4);
        for (const size_t chunk : {90, 7}) CHECK(logits_on(model, six.ids, chunk) == six.expected);
        for (const auto& device : devices) {
            INFO(device->name());
            CHECK((device->counts().bytes_from_peers > 0) == (peers && device != devices[0]));
        }
    }
}

TEST_CASE("the CPU and devices share a model, and activations move only where the device changes") {
    const std::vector<int32_t> ids = some_ids(40);
    const std::vector<float> expected = logits_on(model_on_cpu(), ids, 40);
    const Devices devices = make_devices(2, {.reaches_peers = false});
    const auto model = model_on_cpu_and(devices);
    REQUIRE(model->placement().stages().size() == 3);
    std::vector<uint64_t> weights;
    for (const auto& device : devices) weights.push_back(device->counts().bytes_from_host);
    CHECK(logits_on(model, ids, 40) == expected);
    const auto hidden_bytes = static_cast<uint64_t>(40 * model->config().hidden * 4);
    const auto logit_bytes = static_cast<uint64_t>(40 * model->config().n_vocab * 4);
    CHECK(devices[0]->counts().bytes_from_host - weights[0] == hidden_bytes);
    CHECK(devices[1]->counts().bytes_from_host - weights[1] == hidden_bytes);
    CHECK(devices[0]->counts().bytes_to_host == hidden_bytes);
    CHECK(devices[1]->counts().bytes_to_host == logit_bytes);
}

TEST_CASE("weights that stay on the CPU are copied and packed only where they are to be owned") {
    const std::vector<int32_t> ids = some_ids(40);
    const std::vector<float> expected = logits_on(model_on_cpu(), ids, 40);
    for (const auto residence : {checkpoint::HostStorage::mapped, checkpoint::HostStorage::owned}) {
        model::OpenOptions options;
        options.residence = residence;
        const auto model = model_on_cpu_and(make_devices(1), options);
        CHECK(model->weights().layers[0].wq.packed == (residence == checkpoint::HostStorage::owned));
        CHECK(model->weights().layers[1].wq.packed);
        CHECK(logits_on(model, ids, 40) == expected);
    }
}

TEST_CASE("texts, drafts, forks and truncation on devices are those of the CPU") {
    const Devices devices = make_devices(3);
    const auto model = model_on(devices);
    check_texts(model);
}

TEST_CASE("a state saved on devices is restored on the CPU, and the other way round") {
    const Devices devices = make_devices(3);
    check_states(model_on(devices));
}

TEST_CASE("an engine on devices answers many requests as a session does, and keeps prefixes there") {
    const TemporaryFolder folder;
    const Devices devices = make_devices(2);
    const auto model = model_on(devices);
    const std::string path = folder / "prefixes";
    const Logger silent;
    {
        engine::Engine engine(model, engine_params(), silent);
        check_requests(engine);
        engine.save_prefixes(path, nullptr);
    }
    engine::Engine engine(model, engine_params(), silent);
    CHECK(engine.load_prefixes(path, nullptr) > 0);
    CHECK(check_requests(engine) >= 128);
}

TEST_CASE("pages that leave the KV cache of devices come back from host memory with the same bits") {
    check_host_cache(model_on(make_devices(3)));
}

TEST_CASE("copies to and from host memory leave steps to the answers that are running") {
    sim::Options slow;
    slow.bytes_per_second = 8e6;  // a page takes longer than the copies between two steps may
    const Devices devices = make_devices(1, slow);
    const auto model = model_on(devices);
    const Logger silent;
    engine::EngineParams params = engine_params(16 * 64, 2, 64);
    params.host_cache_bytes = UINT64_MAX;
    engine::Engine engine(model, params, silent);
    const std::vector<int32_t> ids = some_ids(600);
    const Result once = result_of(*engine.submit(ids, tokens_wanted(2)));
    result_of(*engine.submit(some_ids(900, 7), tokens_wanted(1)));  // takes the pages of the first
    const auto answering = engine.submit(some_ids(20, 3), tokens_wanted(400));
    engine::TokenEvent event;
    const auto next = [&] { return answering->take(event, engine::Request::Clock::time_point::max()); };
    REQUIRE(next() == engine::Request::Take::token);
    const int64_t n_restored = engine.state().n_host_restored;
    const int64_t n_before = answering->state().n_generated;
    const Result again = result_of(*engine.submit(ids, tokens_wanted(2)));
    const int64_t n_meanwhile = answering->state().n_generated - n_before;
    answering->cancel();
    CHECK(again.ids == once.ids);
    CHECK(again.state.n_cached == 599);
    CHECK(engine.state().n_host_restored - n_restored >= 8);
    CHECK(n_meanwhile >= 8);
}

TEST_CASE("a device that is lost while a page is copied to or from host memory is an error of requests") {
    const Logger silent;
    int64_t n_before = 0;  // transfers before the first request
    const auto answer_all = [&](const Devices& devices) {
        engine::EngineParams params = engine_params(4 * 64, 1, 64);
        params.host_cache_bytes = UINT64_MAX;
        engine::Engine engine(model_on(devices), params, silent);
        n_before = devices[0]->counts().transfers;
        for (int32_t i = 0; i < 6; ++i) result_of(*engine.submit(some_ids(150, i % 3), tokens_wanted(2)));
    };
    const Devices healthy = make_devices(1);
    answer_all(healthy);
    const int64_t n_all = healthy[0]->counts().transfers;
    REQUIRE(n_all - n_before > 40);
    for (int64_t failing = n_before + 1; failing <= n_all; failing += (n_all - n_before) / 10) {
        INFO("transfer " << failing << " of " << n_all);
        const auto error = error_of([&] { answer_all(make_devices(1, {.failing_transfer = failing})); });
        REQUIRE(error);
        CHECK(error->status() == Status::device_lost);
        CHECK(std::string(error->what()).find("sim:0") != std::string::npos);
    }
}

TEST_CASE("sessions on the same devices may be used by several threads at once") {
    const Devices devices = make_devices(3);
    const auto model = model_on(devices);
    check_threads(model);
}

}  // namespace minim::test
