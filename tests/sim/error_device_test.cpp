// SPDX-License-Identifier: Apache-2.0
// Tests that errors caused by a device name the device.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

std::string device_of(const std::function<void()>& call) {
    const std::optional<Error> error = error_of(call);
    REQUIRE(error);
    INFO(error->what());
    return std::string(error->facts().device.text());
}

Devices with_second(const sim::Options& options) {
    Devices devices = make_devices(2);
    devices[1] = std::make_shared<const sim::SimBackend>(1, options);
    return devices;
}

}  // namespace

TEST_CASE("an error of a device that is short of memory, lost or lacks a kernel names the device") {
    for (const sim::Options& options :
         {sim::Options{.failing_allocation = 1}, sim::Options{.failing_transfer = 1},
          sim::Options{.failing_operation = 1}, sim::Options{.budget_bytes = 1 << 20},
          sim::Options{.without = Format::q8_0}})
        CHECK(device_of([&] { model_on(with_second(options)); }) == "sim:1");
    const Devices devices = make_devices(2);
    model_on(devices);
    const int64_t n_loading = devices[1]->counts().operations;
    const auto model = model_on(with_second({.failing_operation = n_loading + 3}));
    CHECK(device_of([&] {
              engine::Session session = make_session(model, 100);
              all_logits(session, some_ids(9), 3);
          }) == "sim:1");
    CHECK(device_of([&] { make_session(model_on(make_devices(2)), int64_t{1} << 20); }) == "sim:0");
}

TEST_CASE("an error that no device is to blame for names none") {
    const auto model = model_on(make_devices(2));
    engine::Session session = make_session(model, 100);
    CHECK(device_of([&] { all_logits(session, some_ids(101), 101); }).empty());
    CHECK(device_of([&] { model_on(make_devices(2), {}, "no such file"); }).empty());
    CHECK(device_of([&] { make_session(model_on_cpu(), int64_t{1} << 40); }).empty());
}

TEST_CASE("a device's name is kept with the error, and cut where it is too long") {
    CHECK(DeviceName("cuda:7").text() == "cuda:7");
    CHECK(DeviceName(std::string(100, 'x')).text() == std::string(63, 'x'));
    CHECK(DeviceName().text().empty());
    std::optional<Error> kept;
    {
        const std::string name = "sim:3";
        kept = error_of([&] { fail_on_device(name, Status::device_lost, "gone after {} steps", 4); });
    }
    CHECK(std::string(kept->what()) == "sim:3: gone after 4 steps");
    CHECK(Error(*kept).facts().device.text() == "sim:3");
}

}  // namespace minim::test
