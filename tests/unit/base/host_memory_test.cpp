// SPDX-License-Identifier: Apache-2.0
#include "base/host_memory.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "support/helpers.h"
#include "unit/base/numa_support.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("memory that the system refuses to place is an error that names it") {
    PlacementCalls calls = k_willing;
    calls.bind_memory = [](void*, uint64_t bytes, std::span<const int32_t>) {
        return bytes <= 4096 ? 0 : EPERM;
    };
    const HostMemory memory = memory_of(plan_numa(Numa::split, two_nodes(), 2, Logger(), calls));
    CHECK(memory.n_nodes() == 2);
    CHECK(memory.take(100, "a little").size() == 100);
    const std::string why = std::strerror(EPERM);  // in the language of the host's locale
    expect_error(Status::unsupported, "weights: 8192 bytes cannot be placed on NUMA node 1: " + why,
                 [&] { memory.take(8192, "weights", 1); });
    expect_error(Status::unsupported, "node 0,1", [&] { memory.take(8192, "weights"); });
}

TEST_CASE("memory that cannot be locked is an error with the bytes and the limit") {
    NumaPlan plan = plan_numa(Numa::off, two_nodes(), 2, Logger());
    plan.calls = &k_refusing;
    CHECK(memory_of(plan).take(8192, "weights").size() == 8192);
    const auto error = error_of([&] { memory_of(plan, true).take(8192, "KV cache"); });
    REQUIRE(error);
    CHECK(error->status() == Status::out_of_memory);
    CHECK(error->facts().requested == 8192);
    CHECK(error->facts().os_code == ENOMEM);
    CHECK(std::string(error->what()).starts_with("KV cache: 8192 bytes cannot be locked in memory"));
}

TEST_CASE("locked memory is usable, or an error where this process may lock none") {
    const HostMemory memory({}, true);
    std::optional<Buffer> buffer;
    const auto error = error_of([&] { buffer = memory.take(16384, "a block"); });
    if (error) {
        CHECK(error->status() == Status::out_of_memory);  // the limit for locked memory is 0
        return;
    }
    CHECK(buffer->size() == 16384);
    CHECK(buffer->data()[16383] == std::byte{0});
}

TEST_CASE("where pages lie is what the system says, node by node") {
    const HostMemory memory = memory_of(plan_numa(Numa::interleave, two_nodes(), 2, Logger(), k_willing));
    const Buffer block = memory.take(4 * 4096 + 100, "a block");
    const std::span<const std::byte> bytes(block.data(), block.size());
    const auto found = memory.bytes_on_nodes({&bytes, 1});
    CHECK(found == std::map<int32_t, uint64_t>{{0, 2 * 4096}, {3, 2 * 4096}});
    CHECK(memory.bytes_on_nodes({}).empty());
    NumaPlan silent = plan_numa(Numa::off, two_nodes(), 2, Logger());
    silent.calls = &k_refusing;
    expect_error(Status::unsupported, "does not report", [&] {
        memory_of(silent).bytes_on_nodes({&bytes, 1});
    });
}

TEST_CASE("this system places memory on its first node and says so, or says that it does not") {
    const Topology topology = find_topology();
    std::optional<NumaPlan> plan;
    if (error_of([&] { plan = plan_numa(Numa::interleave, topology, 1, Logger()); })) return;  // a container
    const HostMemory memory = memory_of(*plan);
    const Buffer block = memory.take(1 << 20, "a block", 0);
    const std::span<const std::byte> bytes(block.data(), block.size());
    std::map<int32_t, uint64_t> found;
    if (error_of([&] { found = memory.bytes_on_nodes({&bytes, 1}); })) return;
    CHECK(found == std::map<int32_t, uint64_t>{{topology.nodes[0].number, 1 << 20}});
}
