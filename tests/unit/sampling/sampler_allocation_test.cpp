// SPDX-License-Identifier: Apache-2.0
// Drawing needs no memory once the buffers have grown.
#include "sampling/sampler.h"
#include "support/allocation_count.h"
#include "support/catch.h"

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
    const test::AllocationCount count;
    for (int i = 70; i < 200; ++i) step(i);
    CHECK(count.blocks() == 0);
}

}  // namespace minim::sampling
