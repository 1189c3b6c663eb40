// SPDX-License-Identifier: Apache-2.0
// Tests devices that fail or are too small: the error is clear, and all memory is given back.
#include "base/error.h"
#include "sim/devices.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

// Loads a model on three devices of which the second fails as the options say, and talks to it.
void load_and_talk(const Devices& devices) {
    const auto model = model_on(devices);
    engine::Session session = make_session(model, 150);
    all_logits(session, some_ids(70), 7);
    const auto fork = session.fork();
    all_logits(*fork, some_ids(3), 3);
}

Devices with_second(const sim::Options& options) {
    Devices devices = make_devices(3);
    devices[1] = std::make_shared<const sim::SimBackend>(1, options);
    return devices;
}

}  // namespace

TEST_CASE("a failing allocation, transfer or operation of a device is an error, and nothing stays behind") {
    const Failures failures = fail_at_each("sim:1", with_second, load_and_talk);
    CAPTURE(failures.allocations, failures.transfers, failures.operations);
    CHECK(failures.allocations >= 5);  // weights, two sessions' activations, pages
    CHECK(failures.transfers >= 10);
    CHECK(failures.operations >= 20);
    CHECK(failures.allocations + failures.transfers + failures.operations >= 50);
}

TEST_CASE("a model that does not fit is refused before anything is copied, naming device and figures") {
    Devices devices = make_devices(2);
    devices[1] = std::make_shared<const sim::SimBackend>(1, sim::Options{.memory_bytes = 1 << 20});
    expect_error(Status::out_of_device_memory, "sim:1: ", [&] { model_on(devices); });
    expect_error(Status::out_of_device_memory, "1048576 bytes available", [&] { model_on(devices); });
    CHECK(is_empty(devices));
    CHECK(devices[0]->counts().bytes_from_host == 0);
}

TEST_CASE("a context that does not fit on a device is refused with the one that would") {
    const Devices devices = make_devices(2, {.memory_bytes = 12 << 20});
    const auto model = model_on(devices);
    const uint64_t used = devices[0]->used_bytes() + devices[1]->used_bytes();
    expect_error(Status::out_of_device_memory,
                 "KV cache of 4096 tokens on sim:", [&] { make_session(model, 4096); });
    expect_error(Status::out_of_device_memory, "a context of ", [&] { make_session(model, 4096); });
    CHECK(devices[0]->used_bytes() + devices[1]->used_bytes() == used);
    engine::Session session = make_session(model, 70);
    CHECK(all_logits(session, some_ids(70), 70).size() > 0);
}

TEST_CASE("a device without kernels for a format says which") {
    const Devices devices = make_devices(2, {.without = Format::q8_0});
    expect_error(Status::unsupported, "sim:0: does not compute with weights of Q8_0",
                 [&] { model_on(devices); });
    CHECK(is_empty(devices));
}

TEST_CASE("loading onto devices reports its progress and can be cancelled at any point") {
    const Devices devices = make_devices(2);
    check_cancelled_loads(devices, [&](const auto& options) { return model_on(devices, options); });
}

TEST_CASE("cancelling an evaluation on devices leaves the session as it was") {
    const Devices devices = make_devices(2);
    check_cancelled_evaluation(model_on(devices));
}

}  // namespace minim::test
