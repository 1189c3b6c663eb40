// SPDX-License-Identifier: Apache-2.0
// Tests the simulated device itself: the properties that other tests rely on.
#include "sim/sim_backend.h"

#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/sparse_attention.h"

namespace minim::test {
namespace {

// Returns whether the host may read there: the kernel looks before it copies.
bool is_readable(const std::byte* place) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const bool readable = ::write(ends[1], place, 1) == 1;
    ::close(ends[0]);
    ::close(ends[1]);
    return readable;
}

constexpr backend::StepLimits k_limits = {
    .n_rows = 4, .n_context = 64, .hidden = 32, .n_head = 1, .n_head_kv = 1, .head_dim = 32};

}  // namespace

TEST_CASE("the host cannot touch a simulated device's memory, the device's ways in and out can") {
    const sim::SimBackend device(0, {});
    const auto memory = device.allocate(5000, "a test");
    CHECK(memory->size() == 5000);
    CHECK_FALSE(is_readable(memory->data()));
    CHECK_FALSE(is_readable(memory->data() + 4999));

    std::vector<std::byte> bytes(5000);
    device.read(bytes.data(), memory->data(), 5000);
    CHECK(bytes == std::vector<std::byte>(5000, std::byte{0xFF}));  // NaN until it is written
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
    device.write(memory->data(), bytes.data(), 5000);
    const auto second = device.allocate(5000, "a test");
    device.copy(second->data(), memory->data(), 5000);
    std::vector<std::byte> back(5000);
    device.read(back.data(), second->data(), 5000);
    CHECK(back == bytes);
}

TEST_CASE("a simulated device has as much memory as it was given, and gets it back") {
    const sim::SimBackend device(3, {.memory_bytes = 1 << 20});
    CHECK(device.available_bytes() == 1 << 20);
    {
        std::vector<std::unique_ptr<backend::Memory>> blocks;
        for (int i = 0; i < 16; ++i) blocks.push_back(device.allocate(1 << 16, "a test"));
        CHECK(device.available_bytes() == 0);
        expect_error(Status::out_of_device_memory, "sim:3: 1 bytes for weights needed, 0 bytes available",
                     [&] { static_cast<void>(device.allocate(1, "weights")); });
        for (size_t i = 0; i < 16; i += 2) blocks[i].reset();
        CHECK(device.available_bytes() == 1 << 19);
        // The free memory is in pieces, and yet all of it can be allocated: there are more addresses than bytes.
        blocks[0] = device.allocate(1 << 19, "a test");
        CHECK(device.available_bytes() == 0);
    }
    CHECK(device.available_bytes() == 1 << 20);
}

TEST_CASE("a stream works in its order, after the calls have returned") {
    const sim::SimBackend device(0, {.bytes_per_second = 1e5});
    const auto memory = device.allocate(4096, "a test");
    const auto scratch = device.reserve(k_limits);
    std::vector<float> x(1024, 1.0F);
    auto* y = reinterpret_cast<float*>(memory->data());
    std::vector<float> out(1024, -1.0F);
    // 4096 bytes at 100 KB/s: 40 ms each way.
    device.upload(*scratch, memory->data(), reinterpret_cast<const std::byte*>(x.data()), 4096);
    device.scale(*scratch, y, 1024, 2.0F);
    device.scale(*scratch, y, 1024, 3.0F);
    device.download(*scratch, reinterpret_cast<std::byte*>(out.data()), memory->data(), 4096);
    CHECK(out[1023] == -1.0F);
    device.synchronize(*scratch);
    CHECK(out == std::vector<float>(1024, 6.0F));
}

TEST_CASE("a simulated device computes the CPU's sparse attention") {
    const SparseModel model = {.sparse = {.n_head = 2, .dim = 16, .block = 16, .top = 3}};
    const SparseRows rows(model, 100, 1);
    const sim::SimBackend device(0, {});
    const ThreadPool pool(1);
    const auto cpu = cpu::make_cpu_backend(pool, detected_cpu_level());
    SparseSequence here(*cpu, model, rows, 30);
    SparseSequence there(device, model, rows, 30);
    CHECK(there.attend_all(30) == here.attend_all(30));
    CHECK(there.contents() == here.contents());
}

TEST_CASE("an address that is not the device's is an error, not a crash") {
    const sim::SimBackend device(0, {});
    const auto scratch = device.reserve(k_limits);
    float on_the_host[4] = {};
    expect_error(Status::internal, "not its own", [&] { device.scale(*scratch, on_the_host, 4, 2.0F); });
}

TEST_CASE("a lost device does nothing any more and says so at every wait") {
    const sim::SimBackend device(1, {.failing_operation = 2});
    const auto memory = device.allocate(64, "a test");
    const auto scratch = device.reserve(k_limits);
    std::vector<float> x(16, 1.0F);
    device.upload(*scratch, memory->data(), reinterpret_cast<const std::byte*>(x.data()), 64);
    device.synchronize(*scratch);
    device.scale(*scratch, reinterpret_cast<float*>(memory->data()), 16, 2.0F);
    for (int i = 0; i < 2; ++i) {
        expect_error(Status::device_lost, "sim:1: the device was lost",
                     [&] { device.synchronize(*scratch); });
    }
    expect_error(Status::device_lost, "sim:1",
                 [&] { device.read(reinterpret_cast<std::byte*>(x.data()), memory->data(), 64); });
    CHECK(x == std::vector<float>(16, 1.0F));
}

}  // namespace minim::test
