#include "backend/device_memory.h"

#include <vector>

#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::backend;
using minim::test::expect_error;

namespace {

// Blocks of host memory, as many bytes as a device is said to have.
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
    CHECK(memory.state().free_bytes == 1000);
    CHECK(memory.allocate(0, "nothing", MemoryUse::work)->size() == 0);
}
