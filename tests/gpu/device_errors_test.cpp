// SPDX-License-Identifier: Apache-2.0
// A call that a device refuses, and one after which the device is lost.
#include "gpu/fixture.h"
#include "gpu/recorder.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

struct SetDeviceErrors {
    explicit SetDeviceErrors(const DeviceErrors& wanted) { device_errors() = wanted; }
    ~SetDeviceErrors() { device_errors() = {}; }
};

}  // namespace

TEST_CASE("device errors: a call that is refused fails the step, and the device goes on") {
    Random random(3);
    Fixture f(backend::Arithmetic::fast);
    const TestMatrix weight(Format::q8_0, 32, 64, random);
    const std::vector<float> x = random.normal(64);
    const backend::Matrix on_device = f.put_packed(weight);
    const float* h = f.put(x);
    float* y = f.put(std::vector<float>(32));
    const backend::LinearTask task = {&on_device, y, false};
    const auto multiply = [&] { f.device->linear(*f.stream, h, 1, {&task, 1}); };
    {
        const SetDeviceErrors refused({.of_launch = "invalid argument"});
        multiply();
        multiply();  // is not started
        expect_error(Status::internal, "invalid argument", [&] { f.device->synchronize(*f.stream); });
    }
    multiply();
    f.device->synchronize(*f.stream);
    std::vector<float> expected(32);
    const backend::LinearTask on_host = {&weight.view, expected.data(), false};
    f.reference->linear(*f.none, x.data(), 1, {&on_host, 1});
    CHECK(distance(expected, f.get(y, 32)) < 2.5e-2);
}

TEST_CASE("device errors: nobody waits for what a device has refused to post, or once it is lost") {
    Fixture f(backend::Arithmetic::fast);
    const auto exchange = f.device->make_exchange(k_limits, 2);
    REQUIRE(exchange != nullptr);
    const float* h = f.put(std::vector<float>(64));
    const int32_t* ids = f.put(std::vector<int32_t>(3));
    const auto post = [&](int64_t turn) { f.device->post(*f.stream, *exchange, turn, h, ids, 1, 3, 64); };
    {
        const SetDeviceErrors refused({.of_launch = "invalid argument"});
        post(0);
        post(1);  // is not started
        CHECK_FALSE(exchange->wait(1, nullptr));
        expect_error(Status::internal, "invalid argument", [&] { f.device->synchronize(*f.stream); });
    }
    exchange->begin();
    post(0);
    CHECK(exchange->wait(0, nullptr));
    {
        const SetDeviceErrors lost({.is_lost = true});
        expect_error(Status::device_lost, "no longer answers", [&] { exchange->wait(1, nullptr); });
    }
}

TEST_CASE("device errors: where memory of the host cannot be pinned there is no exchange with it") {
    Fixture f(backend::Arithmetic::fast);
    refuses_pinned() = true;
    const auto exchange = f.device->make_exchange(k_limits, 2);
    refuses_pinned() = false;
    CHECK(exchange == nullptr);
}

TEST_CASE("device errors: a device that is lost says why from then on") {
    Random random(3);
    Fixture f(backend::Arithmetic::fast);
    const TestMatrix weight(Format::q8_0, 32, 64, random);
    const backend::Matrix on_device = f.put_packed(weight);
    const float* h = f.put(random.normal(64));
    float* y = f.put(std::vector<float>(32));
    const backend::LinearTask task = {&on_device, y, false};
    const SetDeviceErrors lost({.of_launch = "an illegal memory access was encountered", .is_lost = true});
    f.device->linear(*f.stream, h, 1, {&task, 1});
    for (int i = 0; i < 2; ++i)
        expect_error(Status::device_lost, "illegal memory access", [&] { f.device->synchronize(*f.stream); });
    expect_error(Status::device_lost, "illegal memory access", [&] { f.device->allocate(64, "a test"); });
}

}  // namespace minim::test
