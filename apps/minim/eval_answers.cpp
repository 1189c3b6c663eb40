// SPDX-License-Identifier: Apache-2.0
#include "eval_answers.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "failure.h"
#include "interrupt.h"

namespace cli {
namespace {

constexpr size_t k_at_once = 16;
constexpr int64_t k_usual_answer = 2048;  // tokens
constexpr int64_t k_wait_ms = 200;        // between looks at Ctrl-C

struct Answering {
    minim::Request request;
    std::string text;
    std::string tools;
    bool opens_thought;
    int32_t chat_format;
};

minim::Sampling answer_sampling(const Options& options) {
    minim::Sampling sampling;
    if (options.sampling.temperature) sampling.set("temperature", *options.sampling.temperature);
    sampling.set("seed", static_cast<int64_t>(options.sampling.seed.value_or(1)));
    sampling.set("max_tokens", options.n_predict > 0 ? options.n_predict : k_usual_answer);
    if (options.reasoning_budget > 0) sampling.set("max_reasoning_tokens", options.reasoning_budget);
    return sampling;
}

Answering begin_answer(const minim::Model& model, minim::Engine& engine, const minim::Sampling& sampling,
                       const Options& options, const Conversation& conversation) {
    minim::ChatOptions chat;
    chat.tools = conversation.tools;
    chat.kwargs = options.chat_kwargs;
    chat.thinking_off = options.reasoning_budget == 0;
    const minim::Tokens tokens =
        model.chat_tokenize_with(conversation.messages, chat, MINIM_SPECIALS_TEMPLATE);
    const std::vector<int32_t> ids(tokens.begin(), tokens.end());
    return {engine.submit(sampling, {ids.data(), ids.size()}), "", conversation.tools,
            model.chat_opens_thinking(ids), model.chat_markup().format};
}

// Reads an answer to its end. Throws CANCELLED after Ctrl-C.
minim::Output finish_answer(Answering& answering) {
    minim_token token{};
    for (;;) {
        const auto what = answering.request.next(token, k_wait_ms);
        if (what == minim::Request::Next::end) break;
        if (what == minim::Request::Next::token) answering.text.append(token.text, token.text_length);
        if (was_interrupted()) fail(MINIM_E_CANCELLED, "cancelled during an answer");
    }
    const int32_t finish = answering.request.state().finish;
    minim::OutputParserOptions format;
    format.starts_in_content = !answering.opens_thought;
    format.tools = answering.tools;
    format.format = answering.chat_format;
    return minim::parse_output(answering.text,
                               finish == MINIM_FINISH_END ? MINIM_FINISH_END : MINIM_FINISH_LENGTH, format);
}

}  // namespace

void for_each_answer(const minim::Model& model, const Options& options, size_t n,
                     const std::function<Conversation(size_t)>& conversation,
                     const std::function<void(size_t, const minim::Output&)>& use) {
    minim::EngineOptions settings;
    settings.k_format = options.k_format;
    settings.v_format = options.v_format;
    settings.n_requests = static_cast<int32_t>(k_at_once);
    settings.n_batch = options.n_ubatch;
    settings.fewer_requests = true;
    minim::Engine engine(model, settings);
    const minim::Sampling sampling = answer_sampling(options);
    std::deque<Answering> running;  // in order; the engine works on all of them
    size_t next = 0;
    for (size_t i = 0; i < n; ++i) {
        for (; next < n && running.size() < k_at_once; ++next)
            running.push_back(begin_answer(model, engine, sampling, options, conversation(next)));
        use(i, finish_answer(running.front()));
        running.pop_front();
    }
}

Share share_of(int64_t right, int64_t count) {
    if (count == 0) return {};
    constexpr double k_z = 1.959963984540054;  // of 95 %
    const auto n = static_cast<double>(count);
    const double p = static_cast<double>(right) / n;
    const double scale = 1.0 + k_z * k_z / n;
    const double centre = (p + k_z * k_z / (2.0 * n)) / scale;
    const double half = k_z * std::sqrt(p * (1.0 - p) / n + k_z * k_z / (4.0 * n * n)) / scale;
    // At the ends rounding would leave a little more or less than 0 and 1.
    return {p, right == 0 ? 0.0 : centre - half, right == count ? 1.0 : centre + half};
}

}  // namespace cli
