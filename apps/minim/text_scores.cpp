// SPDX-License-Identifier: Apache-2.0
#include "text_scores.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "failure.h"
#include "interrupt.h"

namespace cli {
namespace {

constexpr size_t k_texts_running = 64;
constexpr size_t k_texts_submitted = 2 * k_texts_running;  // the engine has the next ones at hand
constexpr int64_t k_next_look_ms = 200;                    // between looks at Ctrl-C

// A text whose last tokens are scored. The last one is not evaluated: the answer is forced to be this token, and its log-probability, which
// biases do not change, is reported with it.
struct Scoring {
    minim::Request request;
    int32_t last;
};

Scoring begin_scoring(minim::Engine& engine, const ScoredText& text) {
    constexpr float k_forced = 1000.0F;  // the largest bias
    const int32_t last = text.ids.back();
    minim::Sampling sampling;
    sampling.set("max_tokens", 1);
    sampling.set("ignore_end", 1);
    sampling.set("logprobs", 1);
    sampling.set("prompt_logprobs", 0);
    sampling.set("prompt_logprobs_from", static_cast<int64_t>(text.first));
    sampling.add_logit_bias(last, k_forced);
    return {engine.submit(sampling, {text.ids.data(), text.ids.size() - 1}), last};
}

// Throws CANCELLED after Ctrl-C.
double finish_scoring(Scoring& scoring) {
    double sum = 0.0;
    minim_token token{};
    for (;;) {
        const auto what = scoring.request.next(token, k_next_look_ms);
        if (what == minim::Request::Next::end) return sum;
        if (what == minim::Request::Next::token) {
            sum += static_cast<double>(token.logprob);
            if (token.prompt_rank == 0 && token.id != scoring.last)
                fail(MINIM_E_INTERNAL,
                     fmt::format("token {} was chosen in place of {}: its logit is over 1000 larger",
                                 token.id, scoring.last));
        }
        if (was_interrupted()) fail(MINIM_E_CANCELLED, "cancelled during a question");
    }
}

}  // namespace

void for_each_score(const minim::Model& model, const Options& options, size_t n, size_t longest,
                    const std::function<ScoredText(size_t)>& text,
                    const std::function<void(size_t, double)>& use) {
    minim::EngineOptions settings;
    settings.k_format = options.k_format;
    settings.v_format = options.v_format;
    // A step has a row for each request.
    constexpr auto k_running = static_cast<int32_t>(k_texts_running);
    settings.n_requests = options.n_ubatch > 0 ? std::min(options.n_ubatch, k_running) : k_running;
    settings.n_batch = options.n_ubatch;
    settings.fewer_requests = true;
    settings.max_context = longest;
    minim::Engine engine(model, settings);
    std::deque<Scoring> submitted;  // in order
    size_t next = 0;
    for (size_t i = 0; i < n; ++i) {
        for (; next < n && submitted.size() < k_texts_submitted; ++next)
            submitted.push_back(begin_scoring(engine, text(next)));
        use(i, finish_scoring(submitted.front()));
        submitted.pop_front();
    }
}

}  // namespace cli
