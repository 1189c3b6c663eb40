// SPDX-License-Identifier: Apache-2.0
// Generates an answer in a session, one token for each call.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "base/cancel.h"
#include "engine/answer.h"
#include "engine/session.h"

namespace minim::engine {

using GenerationState = AnswerState;

class Generation {
  public:
    // Appends and evaluates the prompt, which may be empty if the session has tokens. Throws invalid (an empty
    // prompt, an id or option out of range), context_full or cancelled; the session is then unchanged.
    Generation(Session& session, const GenerateParams& params, std::span<const int32_t> prompt,
               const CancelToken* cancel);

    // Returns the next token, or nothing if the text has ended. After an error the session has exactly the tokens that
    // were reported.
    std::optional<TokenEvent> next(const CancelToken* cancel);

    // Ends the text after the last reported token.
    void stop();

    // `finish` is none until the last token has been reported.
    const GenerationState& state() const noexcept { return state_; }

    // Returns the number of tokens in the session that were generated but not reported yet.
    int64_t n_unreported() const noexcept {
        return session_.n_tokens() - n_session_before_ - state_.n_generated;
    }

  private:
    Session& session_;
    Answer answer_;
    int64_t n_session_before_ = 0;  // session tokens with the prompt, before the first generated one
    GenerationState state_;
    std::chrono::steady_clock::time_point first_token_at_;
};

}  // namespace minim::engine
