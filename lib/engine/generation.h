// Generates text in a session, one token a call: evaluate, choose, detokenise, look for stop texts.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "engine/session.h"
#include "sampling/sampler.h"
#include "sampling/stop_matcher.h"
#include "tokenizer/stream_decoder.h"

namespace minim::engine {

struct GenerateParams {
    sampling::Params sampling;
    bool has_seed = false;               // without one, chance picks it
    int64_t max_tokens = 0;              // 0: no limit but the context
    int64_t min_tokens = 0;              // no end token before so many
    bool ignore_end = false;             // end tokens are tokens like any other
    bool penalize_added_tokens = false;  // penalties spare markup unless asked
    std::vector<std::string> stop_texts;
    std::vector<int32_t> stop_tokens;

    GenerateParams();  // greedy
};

// Values equal the MINIM_FINISH_* constants of minim.h.
enum class Finish : int32_t { none = 0, end = 1, stop_text = 2, length = 3, context_full = 4, stopped = 5 };

// A generated token with the text it completes, which may be none. While a character or a possible stop text
// is unfinished, its tokens wait: nothing is reported that a stop text could still take back.
struct TokenEvent {
    sampling::Choice choice;
    std::string text;
};

struct GenerationState {
    Finish finish = Finish::none;
    int32_t stop_token = -1;
    int64_t n_prompt = 0;
    int64_t n_generated = 0;  // reported ones
    int64_t prompt_us = 0;
    int64_t generate_us = 0;
    uint64_t seed = 0;
};

class Generation {
  public:
    // Appends and evaluates the prompt, which may be empty where the session holds tokens. Throws invalid (an
    // empty prompt, an id or option out of range), context_full or cancelled with the session as it was.
    Generation(Session& session, const GenerateParams& params, std::span<const int32_t> prompt,
               const CancelToken* cancel);

    // The next token, or none when the text has ended. After an error the session holds exactly what was
    // reported.
    std::optional<TokenEvent> next(const CancelToken* cancel);

    // Ends the text after the last reported token.
    void stop();

    // `finish` is none until the last token has been reported.
    const GenerationState& state() const noexcept { return state_; }

    // Tokens in the session that were generated but are not reported yet.
    int64_t n_unreported() const noexcept {
        return session_.n_tokens() - n_session_before_ - state_.n_generated;
    }

  private:
    void produce(const CancelToken* cancel);
    bool ends_text(int32_t token) const;
    void finish(Finish why);
    void release_settled();
    void release_front();

    Session& session_;
    GenerateParams params_;
    sampling::Sampler sampler_;
    sampling::StopMatcher stops_;
    tokenizer::StreamDecoder decoder_;
    std::vector<int32_t> end_tokens_;
    // A token whose text may not be settled yet.
    struct WaitingToken {
        sampling::Choice choice;
        uint64_t text_end;           // bytes of text up to its last whole character
        bool ends_inside_character;  // which belongs to a later token then
    };
    std::deque<WaitingToken> waiting_;
    std::deque<TokenEvent> ready_;
    std::string settled_text_;    // past the stop texts, not yet given to a token
    uint64_t decoded_bytes_ = 0;  // of the text so far
    uint64_t given_bytes_ = 0;    // of it, given to tokens
    Finish end_ = Finish::none;   // set before the last token is reported, state_.finish after
    int32_t end_token_ = -1;
    int64_t n_produced_ = 0;
    int64_t n_session_before_ = 0;  // session tokens with the prompt, before the first generated one

    GenerationState state_;
    std::chrono::steady_clock::time_point first_token_at_;
};

}  // namespace minim::engine
