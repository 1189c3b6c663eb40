// SPDX-License-Identifier: Apache-2.0
// An answer during generation: chooses tokens from logits, detokenises, checks stop texts, and reports each token
// once its text is final. A scheduler gives it the logits (scheduler.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/top_k.h"
#include "constraint/constraint.h"
#include "constraint/matcher.h"
#include "engine/lookup_draft.h"
#include "engine/loop_detector.h"
#include "engine/reasoning.h"
#include "engine/tool_block.h"
#include "model/text.h"
#include "sampling/sampler.h"
#include "sampling/stop_matcher.h"
#include "tokenizer/stream_decoder.h"

namespace minim::engine {

struct GenerateParams {
    sampling::Params sampling;
    bool has_seed = false;               // without one, the seed is random
    int64_t max_tokens = 0;              // 0: limited by the context only
    int64_t min_tokens = 0;              // the fewest tokens before an end token
    bool ignore_end = false;             // end tokens are tokens like any other
    bool penalize_added_tokens = false;  // penalties spare markup and tool calls unless asked
    int64_t max_reasoning = 0;           // the maximum number of tokens of reasoning; 0: no limit
    int64_t n_loop = 0;                  // end after this many tokens of repetition; 0: never
    int64_t n_draft = 0;                 // most draft tokens a step; changes speed, never the text
    // Likeliest tokens to report with the log-probability of each prompt token; -1: report none. Only for requests.
    int64_t n_prompt_logprobs = -1;
    int64_t first_prompt_logprob = 1;  // the index of the first prompt token that is reported then
    std::vector<std::string> stop_texts;
    std::vector<int32_t> stop_tokens;
    std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};  // texts that end repetitions
    std::shared_ptr<const constraint::Constraint> constraint;        // of the answer, or null

    GenerateParams();  // greedy
};

// Values equal the MINIM_FINISH_* constants of minim.h.
enum class Finish : int32_t {
    none = 0,
    end = 1,
    stop_text = 2,
    length = 3,
    context_full = 4,
    stopped = 5,
    timeout = 6,
    loop = 8  // 7 is for parsed output
};

struct AnswerState {
    Finish finish = Finish::none;  // none until the last token was read
    int32_t stop_token = -1;
    int32_t stop_text = -1;  // index of the stop text that ended it
    int64_t n_prompt = 0;
    int64_t n_prompt_done = 0;  // tokens of it that are evaluated or were cached
    int64_t n_reasoning = 0;    // tokens between <think> and </think> so far
    int64_t n_generated = 0;    // reported: read by the owner or still to be read
    int64_t prompt_us = 0;      // until the first token
    int64_t generate_us = 0;    // from the first token to the last one
    uint64_t seed = 0;
    float stop_logprob = 0.0F;      // of stop_token; 0 unless log-probabilities are asked for
    int64_t n_drafted = 0;          // draft tokens that were checked
    int64_t n_drafts_accepted = 0;  // those of them that became tokens of the text
    // Fields of a request to an engine:
    int64_t n_cached = 0;     // tokens of the prompt that the prefix cache had
    int64_t n_preempted = 0;  // how often it was preempted because memory was short
    int64_t queue_us = 0;     // from submission until it was started
};

// A generated token with the text that it completes, which may be empty. While a character or a possible stop text is
// incomplete, its tokens wait, so that no text is reported that a stop text could still remove.
struct TokenEvent {
    sampling::Choice choice;
    std::string text;
    // 0: a generated token; else one of the prompt, and its rank: 1 for the likeliest.
    int32_t prompt_rank = 0;
};

// A row of logits: its top-k, if it was requested, and a function that returns the whole row.
struct LogitsRow {
    std::optional<TopK> top;
    std::function<std::span<const float>()> whole;
};

inline int64_t microseconds(std::chrono::steady_clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

class Answer {
  public:
    // Throws invalid for a parameter out of range or a constraint of another model. The text must outlive the answer.
    Answer(const model::Text& text, const GenerateParams& params);

    // Sets the tokens before the answer, which penalties use.
    void follow(std::span<const int32_t> tokens);

    // Chooses the next token from these logits. Returns nothing if the model ended its turn. Throws internal if a
    // logit is NaN; the answer must then be stopped.
    std::optional<int32_t> choose(const LogitsRow& row);
    std::optional<int32_t> choose(std::span<const float> logits);

    // Returns the top-k query that most likely suffices for choose(); without candidates if the whole row is needed.
    // `guess`: draft tokens that may have been chosen by then.
    TopKQuery query(std::span<const int32_t> draft = {}) const;

    // Ends the text. Text that was held back is reported, unless a stop text ended it.
    void finish(Finish why);

    // Ends the text after the last reported token.
    void stop() noexcept;

    // Returns the next token to report; nothing while its text is not final, or after the last one.
    std::optional<TokenEvent> take_event();

    // Returns whether no more tokens will be chosen.
    bool has_ended() const noexcept { return end_ != Finish::none; }
    // Returns how the answer ended; none until the last token has been reported.
    Finish reported_finish() const noexcept { return ready_.empty() ? end_ : Finish::none; }
    int32_t end_token() const noexcept { return end_token_; }  // or -1
    float end_logprob() const noexcept { return end_logprob_; }
    int32_t stop_text() const noexcept { return stops_.matched_index(); }
    int64_t n_reasoning() const noexcept { return reasoning_.n_tokens(); }
    int64_t n_chosen() const noexcept { return n_chosen_; }
    int64_t n_reported() const noexcept { return n_reported_; }
    uint64_t seed() const noexcept { return sampler_.params().seed; }
    int64_t n_drafted() const noexcept { return n_drafted_; }
    int64_t n_drafts_accepted() const noexcept { return n_drafts_accepted_; }
    Drafter& drafter() noexcept { return drafter_; }  // of draft tokens, if the parameters ask for some
    // Counts a checked draft.
    void count_draft(int64_t n_drafted, int64_t n_accepted) noexcept {
        n_drafted_ += n_drafted;
        n_drafts_accepted_ += n_accepted;
    }

  private:
    bool may_end() const { return n_chosen_ >= params_.min_tokens && (!matcher_ || matcher_->may_end()); }
    bool ends_text(int32_t token) const;
    sampling::Choice forced_choice(int32_t token, const LogitsRow& row) const;
    sampling::Choice next_choice(const LogitsRow& row);
    std::optional<int32_t> forced();
    std::vector<int32_t> banned() const;
    void release_settled();
    void release_front();

    const model::Text& text_;
    GenerateParams params_;
    sampling::Sampler sampler_;
    Drafter drafter_;
    Reasoning reasoning_;
    ToolBlock tool_block_;
    LoopDetector loops_;
    sampling::StopMatcher stops_;
    tokenizer::StreamDecoder decoder_;
    std::vector<int32_t> end_tokens_;
    std::optional<constraint::Matcher> matcher_;
    // A token whose text may not be final yet.
    struct WaitingToken {
        sampling::Choice choice;
        uint64_t text_end;           // bytes of text up to its last whole character
        bool ends_inside_character;  // the character then belongs to a later token
    };
    std::deque<WaitingToken> waiting_;
    std::deque<TokenEvent> ready_;
    std::string settled_text_;    // final text, not yet assigned to a token
    uint64_t decoded_bytes_ = 0;  // of the text so far
    uint64_t given_bytes_ = 0;    // bytes of it that were given to tokens
    Finish end_ = Finish::none;
    int32_t end_token_ = -1;
    float end_logprob_ = 0.0F;
    int64_t n_chosen_ = 0;
    int64_t n_reported_ = 0;
    int64_t n_drafted_ = 0;
    int64_t n_drafts_accepted_ = 0;
};

}  // namespace minim::engine
