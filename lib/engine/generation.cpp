#include "engine/generation.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace minim::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t microseconds_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

}  // namespace

Generation::Generation(Session& session, const GenerateParams& params, std::span<const int32_t> prompt,
                       const CancelToken* cancel)
    : session_(session), answer_(session.model(), params) {
    state_.seed = answer_.seed();
    state_.n_prompt = static_cast<int64_t>(prompt.size());

    const Clock::time_point start = Clock::now();
    const int64_t n_before = session.n_tokens();
    if (prompt.empty()) {
        session.eval_last(cancel);
    } else {
        session.eval(prompt, false, {}, cancel);
    }
    state_.prompt_us = microseconds_since(start);
    try {
        answer_.follow(session.tokens());
        const int64_t most = std::min(params.n_draft, session.n_ubatch() - 1);
        if (most > 0) {
            const auto n_logits = static_cast<uint64_t>((most + 1) * session.model().config().n_vocab);
            drafts_ = Drafts{Drafter(most), Buffer(n_logits * sizeof(float), "logits")};
        }
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
        for (event = answer_.take_event(); !event && !answer_.has_ended(); event = answer_.take_event())
            produce(cancel);
    } catch (...) {
        stop();
        throw;
    }
    if (event) {
        ++state_.n_generated;
        state_.generate_us = microseconds_since(first_token_at_);
    }
    state_.finish = answer_.reported_finish();
    if (state_.finish != Finish::none) state_.stop_token = answer_.end_token();
    return event;
}

void Generation::stop() {
    if (state_.finish != Finish::none) return;
    answer_.stop();
    session_.truncate(n_session_before_ + state_.n_generated);
    state_.finish = Finish::stopped;
}

void Generation::produce(const CancelToken* cancel) {
    if (session_.n_tokens() >= session_.n_context()) return answer_.finish(Finish::context_full);
    throw_if_cancelled(cancel, "generation");
    const Clock::time_point start = Clock::now();
    const int64_t n_before = answer_.n_chosen();
    const bool may_guess = drafts_ && session_.has_waiting_token();
    std::span<const int32_t> guess;
    // The session must have room for the guess and the token after it.
    if (may_guess)
        guess = drafts_->drafter.guess(session_.tokens(), session_.n_context() - session_.n_tokens() - 1);
    const auto n_guessed = static_cast<int64_t>(guess.size());
    if (n_guessed > 0) {
        produce_guessed(guess, cancel);
    } else if (const auto token = choose_next(cancel)) {
        session_.append(*token);
    }
    if (may_guess) drafts_->drafter.learn(n_guessed, answer_.n_chosen() - n_before, seconds_since(start));
}

std::optional<int32_t> Generation::choose_next(const CancelToken* cancel) {
    return answer_.choose(
        {session_.shortlist(answer_.query(), cancel), [&] { return session_.last_logits(cancel); }});
}

// Chooses as it would have chosen token by token: as long as the choice is the guess, its logits are known.
void Generation::produce_guessed(std::span<const int32_t> guess, const CancelToken* cancel) {
    const auto n_vocab = static_cast<size_t>(session_.model().config().n_vocab);
    const std::vector<int32_t> guessed(guess.begin(), guess.end());  // the session's own tokens, which grow
    const std::span<float> logits(drafts_->logits.as<float>(), (guessed.size() + 1) * n_vocab);
    session_.eval_guess(guessed, answer_.query(guessed), logits, cancel);
    const auto choose = [&](size_t row) {
        const auto at = static_cast<int64_t>(row);
        return answer_.choose(
            {session_.guess_shortlist(at), [&] { return session_.guess_logits(at, logits); }});
    };
    size_t n_right = 0;
    std::optional<int32_t> token = choose(0);
    while (token && !answer_.has_ended() && n_right < guessed.size() && *token == guessed[n_right])
        token = choose(++n_right);
    session_.keep_guess(guessed, static_cast<int64_t>(n_right), logits);
    if (token) session_.append(*token);
}

}  // namespace minim::engine
