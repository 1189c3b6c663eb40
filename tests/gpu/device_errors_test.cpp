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
