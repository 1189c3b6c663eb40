#include "engine/generation.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.h"

namespace minim::engine {
namespace {

using Clock = std::chrono::steady_clock;

int64_t microseconds_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

uint64_t chance_seed() {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32) ^ device();
}

sampling::Params completed(const GenerateParams& params, const model::Model& model) {
    sampling::Params sampling = params.sampling;
    sampling.logprobs = sampling.logprobs || sampling.n_top_logprobs > 0;
    if (!params.has_seed) sampling.seed = chance_seed();
    // Penalising markup breaks tool calls.
    if (!params.penalize_added_tokens) sampling.penalty_exempt_from = model.first_added_token();
    return sampling;
}

}  // namespace

GenerateParams::GenerateParams() {
    sampling.temperature = 0.0F;
}

Generation::Generation(Session& session, const GenerateParams& params, std::span<const int32_t> prompt,
                       const CancelToken* cancel)
    : session_(session),
      params_(params),
      sampler_(completed(params, session.model()), static_cast<int32_t>(session.model().config().n_vocab),
               session.model().unused_rows()),
      stops_(params.stop_texts) {
    const tokenizer::Tokenizer& tokenizer = session.model().tokenizer();
    const int64_t n_vocab = session.model().config().n_vocab;
    for (const int32_t id : params.stop_tokens) {
        if (id < 0 || id >= n_vocab)
            fail(Status::invalid, "stop token {} is out of range; ids go to {}", id, n_vocab - 1);
    }
    end_tokens_ = params.stop_tokens;
    if (!params.ignore_end)
        end_tokens_.insert(end_tokens_.end(), tokenizer.eog_ids().begin(), tokenizer.eog_ids().end());
    state_.seed = sampler_.params().seed;
    state_.n_prompt = static_cast<int64_t>(prompt.size());

    const Clock::time_point start = Clock::now();
    const int64_t n_before = session.n_tokens();
    if (prompt.empty()) {
        session.last_logits(cancel);
    } else {
        session.eval(prompt, false, {}, cancel);
    }
    state_.prompt_us = microseconds_since(start);
    try {
        for (const int32_t token : session.tokens()) sampler_.accept(token, false);
    } catch (...) {
        session.truncate(n_before);
        throw;
    }
    n_session_before_ = session.n_tokens();
    first_token_at_ = Clock::now();
}

std::optional<TokenEvent> Generation::next(const CancelToken* cancel) {
    try {
        while (ready_.empty() && end_ == Finish::none) produce(cancel);
    } catch (...) {
        stop();
        throw;
    }
    std::optional<TokenEvent> event;
    if (!ready_.empty()) {
        event = std::move(ready_.front());
        ready_.pop_front();
        ++state_.n_generated;
        state_.generate_us = microseconds_since(first_token_at_);
    }
    if (ready_.empty() && end_ != Finish::none) {
        state_.finish = end_;
        state_.stop_token = end_token_;
    }
    return event;
}

void Generation::stop() {
    if (state_.finish != Finish::none) return;
    waiting_.clear();
    ready_.clear();
    session_.truncate(n_session_before_ + state_.n_generated);
    end_ = Finish::stopped;
    state_.finish = end_;
}

void Generation::produce(const CancelToken* cancel) {
    if (session_.n_tokens() >= session_.n_context()) return finish(Finish::context_full);

    throw_if_cancelled(cancel, "generation");
    const std::span<const float> logits = session_.last_logits(cancel);
    const bool may_end = n_produced_ >= params_.min_tokens;
    sampling::Choice choice =
        sampler_.sample(logits, may_end ? std::span<const int32_t>() : std::span(end_tokens_));
    if (ends_text(choice.token)) {
        end_token_ = choice.token;
        return finish(Finish::end);
    }
    session_.append(choice.token);
    sampler_.accept(choice.token, true);
    ++n_produced_;

    const tokenizer::Tokenizer& tokenizer = session_.model().tokenizer();
    const bool is_text = tokenizer.token_type(choice.token) != tokenizer::TokenType::control;
    const std::string piece = is_text ? decoder_.push(tokenizer.token_bytes(choice.token)) : std::string();
    decoded_bytes_ += piece.size();
    waiting_.push_back({std::move(choice), decoded_bytes_, decoder_.held_bytes() > 0});
    settled_text_ += stops_.push(piece);
    if (stops_.stopped()) return finish(Finish::stop_text);
    release_settled();
    if (params_.max_tokens > 0 && n_produced_ >= params_.max_tokens) finish(Finish::length);
}

bool Generation::ends_text(int32_t token) const {
    return std::ranges::find(end_tokens_, token) != end_tokens_.end();
}

// Ends the text. What was held back comes out, unless a stop text ended it.
void Generation::finish(Finish why) {
    settled_text_ += stops_.push(decoder_.finish());
    end_ = stops_.stopped() ? Finish::stop_text : why;
    if (!stops_.stopped()) settled_text_ += stops_.finish();
    while (!waiting_.empty()) release_front();
    // A character that never became whole is the last token's.
    if (!ready_.empty()) ready_.back().text += std::exchange(settled_text_, {});
}

void Generation::release_settled() {
    while (!waiting_.empty()) {
        const WaitingToken& token = waiting_.front();
        const uint64_t settled = given_bytes_ + settled_text_.size();
        const bool is_settled =
            token.ends_inside_character ? settled > token.text_end : settled >= token.text_end;
        if (!is_settled) return;
        release_front();
    }
}

// Gives the first waiting token its text, as far as there is any, and makes it ready.
void Generation::release_front() {
    const uint64_t wanted = waiting_.front().text_end - given_bytes_;
    const auto size = static_cast<size_t>(std::min<uint64_t>(wanted, settled_text_.size()));
    ready_.push_back({std::move(waiting_.front().choice), settled_text_.substr(0, size)});
    waiting_.pop_front();
    settled_text_.erase(0, size);
    given_bytes_ += size;
}

}  // namespace minim::engine
