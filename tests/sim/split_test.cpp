// SPDX-License-Identifier: Apache-2.0
// Tests that a model whose layers are spread over devices answers exactly as on one device.
#include <cmath>

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

TEST_CASE("sessions on the same devices may be used by several threads at once") {
    const Devices devices = make_devices(3);
    const auto model = model_on(devices);
    check_threads(model);
}

}  // namespace minim::test
