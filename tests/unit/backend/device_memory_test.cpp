// SPDX-License-Identifier: Apache-2.0
#include "backend/device_memory.h"

#include <vector>

#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::backend;
using minim::test::expect_error;

namespace {

// Gives blocks of host memory, up to the capacity of a simulated device.
class Blocks : public BlockSource {
  public:
    explicit Blocks(uint64_t capacity) : free_(capacity) {}

    std::byte* take(uint64_t bytes) override {
        if (bytes > free_) return nullptr;
        free_ -= bytes;
        ++n_taken;
        return new std::byte[bytes + 1];
    }
    void give_back(std::byte* block, uint64_t bytes) noexcept override {
        delete[] block;
        free_ += bytes;
        ++n_given_back;
    }
    uint64_t free_bytes() const noexcept override { return free_; }

    int n_taken = 0;
    int n_given_back = 0;

  private:
    uint64_t free_;
};

}  // namespace

TEST_CASE("blocks of a device are counted by what they are for") {
    Blocks blocks(1000);
    DeviceMemory memory("abacus:0", blocks);
    {
        const auto weights = memory.allocate(500, "weights", MemoryUse::weights);
        const auto kv = memory.allocate(200, "KV cache", MemoryUse::kv);
        const auto activations = memory.allocate(30, "activations", MemoryUse::work);
        const auto logits = memory.allocate(7, "logits", MemoryUse::work);
        CHECK(weights->size() == 500);
        const MemoryState state = memory.state();
        CHECK(state.used(MemoryUse::weights) == 500);
        CHECK(state.used(MemoryUse::kv) == 200);
        CHECK(state.used(MemoryUse::work) == 37);
        CHECK(state.free_bytes == 263);
        expect_error(Status::out_of_device_memory,
                     "abacus:0: 264 bytes for KV cache needed, 263 bytes available",
                     [&] { static_cast<void>(memory.allocate(264, "KV cache", MemoryUse::kv)); });
    }
    CHECK(memory.state().used_bytes == std::array<uint64_t, k_memory_uses>{});
    CHECK(memory.state().used() == 0);
    CHECK(memory.state().free_bytes == 1000);
    CHECK(memory.state().budget_bytes == k_no_budget);
    CHECK(memory.allocate(0, "nothing", MemoryUse::work)->size() == 0);
}

TEST_CASE("no more of a device is taken than its budget") {
    Blocks blocks(1000);
    DeviceMemory memory("abacus:0", blocks, 600);
    CHECK(memory.state().free_bytes == 600);
    const auto weights = memory.allocate(400, "weights", MemoryUse::weights);
    CHECK(memory.state().free_bytes == 200);
    expect_error(
        Status::out_of_device_memory,
        "abacus:0: 201 bytes for KV cache needed, 200 bytes available; 400 of the budget of 600 bytes are "
        "used",
        [&] { static_cast<void>(memory.allocate(201, "KV cache", MemoryUse::kv)); });
    CHECK(blocks.n_taken == 1);
    auto rest = memory.allocate(200, "KV cache", MemoryUse::kv);
    CHECK(memory.state().free_bytes == 0);
    rest.reset();
    CHECK(memory.state().free_bytes == 200);
    // If the device has less memory than the budget, its own memory is the limit.
    Blocks few(100);
    DeviceMemory small("abacus:1", few, 600);
    CHECK(small.state().free_bytes == 100);
    expect_error(Status::out_of_device_memory, "100 bytes available; 0 of the budget of 600 bytes are used",
                 [&] { static_cast<void>(small.allocate(101, "weights", MemoryUse::weights)); });
}

TEST_CASE("a block that is given back serves the next that wants as much, or a little less") {
    Blocks blocks(8000);
    DeviceMemory memory("abacus:0", blocks);
    const std::byte* first = nullptr;
    for (int i = 0; i < 50; ++i) {
        const auto kv = memory.allocate(800, "KV cache", MemoryUse::kv);
        const auto work = memory.allocate(90 - i % 9, "work space", MemoryUse::work);
        CHECK(work->size() == static_cast<uint64_t>(90 - i % 9));
        if (i == 0) first = kv->data();
        CHECK(kv->data() == first);
        CHECK(memory.state().used() == 890);
        CHECK(memory.state().kept_bytes == 0);
    }
    CHECK(blocks.n_taken == 2);
    CHECK(memory.state().kept_bytes == 890);
    CHECK(memory.state().free_bytes == 8000);
    // A kept block is not used for a request of half its size.
    CHECK(memory.allocate(400, "KV cache", MemoryUse::kv)->data() != first);
    CHECK(blocks.n_taken == 3);
}

TEST_CASE("an eighth of a device is kept at most, and what is too large for that goes back at once") {
    Blocks blocks(8000);
    DeviceMemory memory("abacus:0", blocks);
    memory.allocate(1001, "weights", MemoryUse::weights);
    CHECK(memory.state().kept_bytes == 0);
    CHECK(blocks.n_given_back == 1);
    {
        std::vector<std::unique_ptr<Memory>> all;
        for (uint64_t i = 0; i < 7; ++i) all.push_back(memory.allocate(200, "work space", MemoryUse::work));
    }
    CHECK(memory.state().kept_bytes == 1000);
    CHECK(blocks.n_given_back == 3);
    {
        std::vector<std::unique_ptr<Memory>> all;
        for (uint64_t i = 0; i < 100; ++i) all.push_back(memory.allocate(1, "work space", MemoryUse::work));
    }
    CHECK(memory.state().kept_bytes <= 64);
    memory.give_back_kept();
    CHECK(memory.state().kept_bytes == 0);
    CHECK(blocks.n_given_back == blocks.n_taken);
    CHECK(blocks.free_bytes() == 8000);
}

TEST_CASE("kept blocks make room where the budget or the device wants it") {
    for (const uint64_t budget : {uint64_t{1000}, k_no_budget}) {
        Blocks blocks(1000);
        {
            DeviceMemory memory("abacus:0", blocks, budget);
            memory.allocate(100, "work space", MemoryUse::work);
            CHECK(memory.state().kept_bytes == 100);
            const auto weights = memory.allocate(950, "weights", MemoryUse::weights);
            CHECK(weights != nullptr);
            CHECK(memory.state().kept_bytes == 0);
            const auto last = memory.allocate(50, "KV cache", MemoryUse::kv);
            CHECK(memory.state().free_bytes == 0);
        }
        CHECK(blocks.free_bytes() == 1000);
    }
}

TEST_CASE("a failed allocation leaves all of the device to be had") {
    Blocks blocks(1000);
    DeviceMemory memory("abacus:0", blocks);
    memory.allocate(100, "work space", MemoryUse::work);
    expect_error(Status::out_of_device_memory, "1000 bytes available",
                 [&] { static_cast<void>(memory.allocate(1001, "weights", MemoryUse::weights)); });
    CHECK(memory.state().used() == 0);
    CHECK(memory.state().free_bytes == 1000);
}
