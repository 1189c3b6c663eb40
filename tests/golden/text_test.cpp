// SPDX-License-Identifier: Apache-2.0
// Greedy text against the goldens, token for token, up to the first step whose margin is a near tie.
#include "engine/generation.h"
#include "models.h"
#include "support/catch.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr float k_near_tie = 0.05F;

std::vector<int32_t> greedy(const std::shared_ptr<const model::Model>& model, Format kv,
                            const GoldenPrompt& prompt) {
    engine::Session session = make_session(model, kv);
    engine::GenerateParams params;
    params.max_tokens = static_cast<int64_t>(prompt.greedy_ids.size());
    engine::Generation generation(session, params, prompt.ids, nullptr);
    std::vector<int32_t> ids;
    while (const auto event = generation.next(nullptr)) ids.push_back(event->choice.token);
    if (generation.state().finish == engine::Finish::end) ids.push_back(generation.state().stop_token);
    return ids;
}

size_t comparable_steps(const GoldenPrompt& prompt) {
    size_t steps = 0;
    while (steps < prompt.greedy_margins.size() && prompt.greedy_margins[steps] >= k_near_tie) ++steps;
    return steps;
}

}  // namespace

TEST_CASE("greedy text of the bf16 model equals the golden text") {
    const auto [backend, kv] = GENERATE(std::pair("reference", Format::f32), std::pair("cpu", Format::f32),
                                        std::pair("cpu", Format::f16));
    const auto model = stored_model(k_stored_models[0], backend);
    for (const GoldenPrompt& prompt : golden_prompts()) {
        INFO(backend << " " << prompt.name);
        const std::vector<int32_t> ids = greedy(model, kv, prompt);
        const size_t steps = comparable_steps(prompt);
        REQUIRE(steps > 0);
        REQUIRE(ids.size() >= steps);
        for (size_t i = 0; i < steps; ++i) CHECK(ids[i] == prompt.greedy_ids[i]);
    }
}
