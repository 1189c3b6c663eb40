// SPDX-License-Identifier: Apache-2.0
// Logits against the goldens. F32 activations and F32 KV meet every position. With F16 KV and 8-bit
// activations a near tie may pick another expert somewhere, which moves one position by tens of percent, so
// those paths are compared by the last positions taken together and by the median position.
#include <algorithm>
#include <cmath>

#include "cubic_iq6_k.h"
#include "model/minimax_m2.h"
#include "models.h"
#include "runtime/forward_pass.h"
#include "runtime/step_space.h"
#include "support/catch.h"
#include "support/last_logits.h"
#include "support/npy.h"

using namespace minim;
using namespace minim::test;

namespace {

double largest_difference(const float* a, const float* b, size_t count) {
    double largest = 0.0;
    for (size_t i = 0; i < count; ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
    return largest;
}

// Returns the last positions' logits of all prompts, one after another: [prompts, n_vocab].
std::vector<float> last_positions(const std::shared_ptr<const model::Model>& model, Format kv) {
    std::vector<float> rows;
    for (const GoldenPrompt& prompt : golden_prompts()) {
        engine::Session session = make_session(model, kv);
        session.eval(prompt.ids, false, {}, nullptr);
        const auto last = last_logits_of(session);
        rows.insert(rows.end(), last.begin(), last.end());
    }
    return rows;
}

// Returns the same for one prompt, through the forward pass itself, with other weights than the model's.
std::vector<float> last_logits(const model::Model& model, const model::Weights& weights,
                               const std::vector<int32_t>& ids) {
    const model::Config& config = model.config();
    const auto n = static_cast<int64_t>(ids.size());
    kv::Sequence cache =
        kv::Sequence::alone({config.n_layer, config.n_head_kv, config.head_dim, Format::f32, Format::f32}, n);
    runtime::StepSpace space(model.backend(), model::shape_of(config), n, n);
    std::vector<runtime::StepRow> rows;
    for (int64_t i = 0; i < n; ++i)
        rows.push_back({ids[static_cast<size_t>(i)], {&cache.view(), i}, i + 1 == n});
    std::vector<float> logits(static_cast<size_t>(config.n_vocab));
    runtime::ForwardPass(model.backend(), model::architecture_of(config, weights))
        .step(rows, space, logits.data(), nullptr);
    return logits;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

}  // namespace

TEST_CASE("the bf16 model meets the golden logits at every position") {
    const auto [backend, absolute, relative] =
        GENERATE(std::tuple("reference", 1e-4, 1e-5), std::tuple("cpu", 2e-2, 5e-3));
    const auto model = stored_model(k_stored_models[0], backend);
    for (const GoldenPrompt& prompt : golden_prompts()) {
        engine::Session session = make_session(model, Format::f32);
        const std::vector<float> logits = all_logits(session, prompt.ids);
        const auto expected = load_npy<float>(golden_path("prompts/" + prompt.name + ".npy"));
        REQUIRE(logits.size() == expected.values.size());
        INFO(backend << " " << prompt.name);
        CHECK(largest_difference(logits.data(), expected.values.data(), logits.size()) < absolute);
        CHECK(relative_rms(logits.data(), expected.values.data(), logits.size()) < relative);
    }
}

TEST_CASE("the reference backend meets the golden logits of every stored format") {
    const size_t index = GENERATE(range(size_t{0}, std::size(k_stored_models)));
    const StoredModel& stored = k_stored_models[index];
    const auto model = stored_model(stored, "reference");
    const auto expected = load_npy<float>(golden_path(std::string("quant/") + stored.golden + ".npy"));
    const CubicIq6K cubic(model->weights());
    std::vector<float> rows;
    for (const GoldenPrompt& prompt : golden_prompts()) {
        const std::vector<float> last = last_logits(*model, cubic.weights(), prompt.ids);
        rows.insert(rows.end(), last.begin(), last.end());
    }
    REQUIRE(rows.size() == expected.values.size());
    INFO(stored.golden);
    CHECK(largest_difference(rows.data(), expected.values.data(), rows.size()) < 1e-4);
    // Only a model with IQ6_K tensors is touched by the cubic.
    CHECK((cubic.n_replaced() > 0) == (std::string(stored.golden) == "mix-ik"));
}

TEST_CASE("the integer table of IQ6_K stays within half a table step of the golden logits") {
    const auto model = stored_model(k_stored_models[5], "reference");
    const auto expected = load_npy<float>(golden_path("quant/mix-ik.npy"));
    const std::vector<float> rows = last_positions(model, Format::f32);
    CHECK(relative_rms(rows.data(), expected.values.data(), rows.size()) < 2e-3);
}

TEST_CASE("packed weights and F16 KV stay near the golden logits of every stored format") {
    const size_t index = GENERATE(range(size_t{0}, std::size(k_stored_models)));
    const StoredModel& stored = k_stored_models[index];
    const auto model = stored_model(stored, "cpu");
    INFO(stored.golden);

    const std::vector<float> rows = last_positions(model, Format::f16);
    const auto expected = load_npy<float>(golden_path(std::string("quant/") + stored.golden + ".npy"));
    const double last_rms = relative_rms(rows.data(), expected.values.data(), rows.size());
    CHECK(last_rms < 2e-2);

    const auto reference = stored_model(stored, "reference");
    const auto n_vocab = static_cast<size_t>(model->config().n_vocab);
    std::vector<double> positions;
    for (const GoldenPrompt& prompt : golden_prompts()) {
        engine::Session packed = make_session(model, Format::f16);
        engine::Session exact = make_session(reference, Format::f32);
        const std::vector<float> a = all_logits(packed, prompt.ids);
        const std::vector<float> b = all_logits(exact, prompt.ids);
        for (size_t i = 0; i < prompt.ids.size(); ++i) {
            positions.push_back(relative_rms(a.data() + i * n_vocab, b.data() + i * n_vocab, n_vocab));
        }
    }
    const double median_rms = median(positions);
    CHECK(median_rms < 1.5e-2);
    WARN(stored.golden << ": last positions " << last_rms << ", median position " << median_rms);
}

TEST_CASE("layer states and chosen experts meet the goldens") {
    const auto model = stored_model(k_stored_models[0], GENERATE("reference", "cpu"));
    const auto& prompts = golden_prompts();
    const auto prompt = std::ranges::find(prompts, "chat_capital", &GoldenPrompt::name);
    REQUIRE(prompt != prompts.end());
    const auto states = load_npy<float>(golden_path("prompts/chat_capital.layers.npy"));
    const auto experts = load_npy<int32_t>(golden_path("prompts/chat_capital.experts.npy"));
    const auto gates = load_npy<float>(golden_path("prompts/chat_capital.expert_weights.npy"));

    const model::Config& config = model->config();
    const auto n = static_cast<int64_t>(prompt->ids.size());
    kv::Sequence cache =
        kv::Sequence::alone({config.n_layer, config.n_head_kv, config.head_dim, Format::f32, Format::f32}, n);
    runtime::StepSpace space(model->backend(), model::shape_of(config), n, n);
    std::vector<runtime::StepRow> rows;
    for (int64_t i = 0; i < n; ++i) {
        rows.push_back({prompt->ids[static_cast<size_t>(i)], {&cache.view(), i}, i + 1 == n});
    }
    std::vector<float> logits(static_cast<size_t>(config.n_vocab));
    int64_t layers_seen = 0;
    model->forward().step(
        rows, space, logits.data(), nullptr,
        [&](int64_t layer, int64_t count, const float* x, const int32_t* ids, const float* weights) {
            ++layers_seen;
            REQUIRE(count == n);
            const auto width = static_cast<size_t>(n * config.hidden);
            CHECK(relative_rms(x, states.values.data() + static_cast<size_t>(layer) * width, width) < 1e-5);
            for (int64_t i = 0; i < n; ++i) {
                // The goldens list experts in ascending order, ours in order of choice.
                std::vector<std::pair<int32_t, float>> chosen;
                for (int64_t s = 0; s < config.n_expert_used; ++s) {
                    chosen.emplace_back(ids[i * config.n_expert_used + s],
                                        weights[i * config.n_expert_used + s]);
                }
                std::ranges::sort(chosen);
                for (int64_t s = 0; s < config.n_expert_used; ++s) {
                    const auto at = static_cast<size_t>((layer * n + i) * config.n_expert_used + s);
                    REQUIRE(chosen[static_cast<size_t>(s)].first == experts.values[at]);
                    REQUIRE(chosen[static_cast<size_t>(s)].second == Approx(gates.values[at]).margin(1e-5));
                }
            }
        });
    CHECK(layers_seen == config.n_layer);
}

TEST_CASE("logits with any KV format are near the golden logits") {
    const auto [kv, bound] =
        GENERATE(std::pair(Format::f16, 2e-3), std::pair(Format::bf16, 1e-2), std::pair(Format::q8_0, 2e-2));
    const auto expected = load_npy<float>(golden_path("quant/bf16.npy"));
    for (const char* backend : {"reference", "cpu"}) {
        const std::vector<float> rows = last_positions(stored_model(k_stored_models[0], backend), kv);
        INFO(backend << " " << traits(kv).name);
        CHECK(relative_rms(rows.data(), expected.values.data(), rows.size()) < bound);
    }
}
