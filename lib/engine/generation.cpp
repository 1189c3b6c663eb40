// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include "base/error.h"

namespace minim::engine {

using Clock = std::chrono::steady_clock;

Generation::Generation(Session& session, const GenerateParams& params, std::span<const int32_t> prompt,
                       const CancelToken* cancel)
    : session_(session), answer_(session.model().text(), params) {
    if (params.n_prompt_logprobs >= 0)
        fail(Status::invalid,
             "option prompt_logprobs is {}: it is for requests to an engine; evaluate the prompt with all "
             "logits instead (minim_session_eval)",
             params.n_prompt_logprobs);
    state_.seed = answer_.seed();
    state_.n_prompt = static_cast<int64_t>(prompt.size());
    session.reserve_drafts(params.n_draft);

    const Clock::time_point start = Clock::now();
    const int64_t n_before = session.n_tokens();
    if (prompt.empty()) {
        session.eval_last(cancel);
    } else {
        session.eval(prompt, false, {}, cancel);
    }
    state_.n_prompt_done = state_.n_prompt;
    state_.prompt_us = microseconds(Clock::now() - start);
    try {
        answer_.follow(session.tokens());
    } catch (...) {
        session.truncate(n_before);
        throw;
    }
    n_session_before_ = session.n_tokens();
    first_token_at_ = Clock::now();
}

std::optional<TokenEvent> Generation::next(const CancelToken* cancel) {
    std::optional<TokenEvent> event;
    try {
        for (event = answer_.take_event(); !event && !answer_.has_ended(); event = answer_.take_event()) {
            throw_if_cancelled(cancel, "generation");
            if (session_.n_tokens() < session_.n_context()) {
                session_.extend(answer_, cancel);
            } else {
                answer_.finish(Finish::context_full);
            }
        }
    } catch (...) {
        stop();
        throw;
    }
    if (event) {
        ++state_.n_generated;
        state_.generate_us = microseconds(Clock::now() - first_token_at_);
    }
    state_.n_reasoning = answer_.n_reasoning();
    state_.n_drafted = answer_.n_drafted();
    state_.n_drafts_accepted = answer_.n_drafts_accepted();
    state_.finish = answer_.reported_finish();
    if (state_.finish == Finish::none) return event;
    state_.stop_token = answer_.end_token();
    state_.stop_logprob = answer_.end_logprob();
    state_.stop_text = answer_.stop_text();
    return event;
}

void Generation::stop() {
    if (state_.finish != Finish::none) return;
    answer_.stop();
    session_.truncate(n_session_before_ + state_.n_generated);
    state_.finish = Finish::stopped;
}

}  // namespace minim::engine
