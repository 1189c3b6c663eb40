// Counts this program's allocations to show that drawing needs none once the buffers have grown.
#include <atomic>
#include <cstdlib>
#include <new>

#include "sampling/sampler.h"
#include "support/catch.h"

namespace {

std::atomic<int64_t> n_allocations{0};

void* counted_allocation(std::size_t size) {
    n_allocations.fetch_add(1, std::memory_order_relaxed);
    void* memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t size) {
    return counted_allocation(size);
}
void* operator new[](std::size_t size) {
    return counted_allocation(size);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}

namespace minim::sampling {

TEST_CASE("a draw allocates nothing after the first rows") {
    constexpr int32_t k_vocab = 5000;
    Params params;
    params.top_p = 0.9F;
    params.repetition_penalty = 1.1F;
    params.penalty_last_n = 64;
    params.frequency_penalty = 0.1F;
    params.logprobs = true;
    Sampler sampler(params, k_vocab);
    std::vector<float> logits(k_vocab);
    const auto step = [&](int i) {
        for (int32_t id = 0; id < k_vocab; ++id) {
            logits[static_cast<size_t>(id)] = static_cast<float>((id * 31 + i * 17) % k_vocab) * 0.002F;
        }
        sampler.accept(sampler.sample(logits).token, true);
    };
    for (int i = 0; i < 70; ++i) step(i);
    const int64_t before = n_allocations.load();
    for (int i = 70; i < 200; ++i) step(i);
    CHECK(n_allocations.load() == before);
}

}  // namespace minim::sampling
