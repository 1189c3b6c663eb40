// SPDX-License-Identifier: Apache-2.0
// Tests that the same step gives the same bits again and again: for one text, then for four at once on streams of their
// own.
//
//   gpu_stress_test [STEPS]      2000 steps unless said otherwise
//
// Exit codes: 0 all well, 1 a step differed, 77 no usable GPU.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "gpu/models.h"
#include "gpu/vary_steps.h"
#include "kv/sequence.h"
#include "model/minimax_m2.h"
#include "runtime/forward_pass.h"
#include "runtime/placement.h"
#include "runtime/step_space.h"

namespace minim::test {
namespace {

constexpr int64_t k_prompt = 60;

std::string model_path() {
    return std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
}

// A text of its own, whose token at position k_prompt is evaluated again and again.
class Text {
  public:
    explicit Text(const model::Model& model)
        : model_(model),
          forward_(model.placement().stages(), model::architecture_of(model.config(), model.weights())),
          space_(model.placement().stages(), model::shape_of(model.config()), k_prompt, k_prompt + 1),
          sequence_(make_pool(model), k_prompt + 1) {
        sequence_.hold(0, k_prompt + 1);
        const std::vector<int32_t> prompt = some_ids(static_cast<size_t>(k_prompt));
        std::vector<runtime::StepRow> rows;
        for (size_t i = 0; i < prompt.size(); ++i)
            rows.push_back({prompt[i], {&sequence_.view(), static_cast<int64_t>(i)}, i + 1 == prompt.size()});
        std::vector<float> logits(static_cast<size_t>(model.config().n_vocab));
        forward_.step(rows, space_, {logits.data(), {}}, nullptr);
    }

    std::vector<float> next_logits() {
        const runtime::StepRow row = {7, {&sequence_.view(), k_prompt}, true};
        std::vector<float> logits(static_cast<size_t>(model_.config().n_vocab));
        forward_.step({&row, 1}, space_, {logits.data(), {}}, nullptr);
        return logits;
    }

  private:
    static std::shared_ptr<kv::PagePool> make_pool(const model::Model& model) {
        const model::Config& c = model.config();
        std::vector<kv::DeviceLayers> parts;
        for (const runtime::Stage& stage : model.placement().stages())
            parts.push_back({stage.backend, stage.n_layer});
        return std::make_shared<kv::PagePool>(
            backend::KvLayout{c.n_layer, c.n_head_kv, c.head_dim, Format::f16, Format::f16},
            std::move(parts));
    }

    const model::Model& model_;
    const runtime::ForwardPass forward_;
    runtime::StepSpace space_;
    kv::Sequence sequence_;
};

// Returns the first step whose logits are not those of step 0, or n_steps. Step 0 is computed, step 1 recorded, the others are repeated.
int64_t first_that_differs(const model::Model& model, int64_t n_steps, bool varies) {
    Text text(model);
    const std::vector<float> first = text.next_logits();
    for (int64_t step = 1; step < n_steps; ++step) {
        if (varies) vary_step(step);
        const std::vector<float> logits = text.next_logits();
        if (std::memcmp(first.data(), logits.data(), first.size() * sizeof(float)) != 0) return step;
    }
    return n_steps;
}

bool check(const model::Model& model, int64_t n_steps, size_t n_texts) {
    std::vector<int64_t> differs(n_texts, -1);
    std::atomic<bool> has_failed = false;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < n_texts; ++i) {
        threads.emplace_back([&, i] {
            try {
                differs[i] = first_that_differs(model, n_steps, n_texts == 1);
            } catch (const std::exception& error) {
                std::printf("FAILED: %s\n", error.what());
                has_failed = true;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    bool is_good = !has_failed;
    for (size_t i = 0; i < n_texts && !has_failed; ++i) {
        if (differs[i] == n_steps) continue;
        std::printf("FAILED: text %zu of %zu: step %lld differs from step 0\n", i, n_texts,
                    static_cast<long long>(differs[i]));
        is_good = false;
    }
    if (is_good) std::printf("ok   %lld equal steps, %zu texts\n", static_cast<long long>(n_steps), n_texts);
    return is_good;
}

int run(int64_t n_steps) {
    const backend::DeviceInfo device = cuda::runtime::devices().front();
    if (!device.why_not.empty()) {
        std::printf("skipped: no usable CUDA device: %s\n", device.why_not.c_str());
        return 77;
    }
    const auto model = open_on(model_path(), {0}, backend::Arithmetic::fast);
    bool is_good = check(*model, n_steps, 1);
    vary_step(0);
    is_good = check(*model, n_steps, 4) && is_good;
    const backend::StepCounts counts = model->placement().stages()[0].backend->step_counts();
    std::printf("steps: %lld computed, %lld recorded, %lld repeated, %lld records failed%s%s\n",
                static_cast<long long>(counts.computed), static_cast<long long>(counts.recorded),
                static_cast<long long>(counts.repeated), static_cast<long long>(counts.failed),
                counts.why_failed != nullptr ? ": " : "",
                counts.why_failed != nullptr ? counts.why_failed : "");
    return is_good ? 0 : 1;
}

}  // namespace
}  // namespace minim::test

int main(int argc, char** argv) {
    try {
        return minim::test::run(argc > 1 ? std::atoll(argv[1]) : 2000);
    } catch (const std::exception& error) {
        std::printf("FAILED: %s\n", error.what());
        return 1;
    }
}
