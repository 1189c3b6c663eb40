// SPDX-License-Identifier: Apache-2.0
#include "engine/answer.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.h"

namespace minim::engine {
namespace {

uint64_t chance_seed() {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32) ^ device();
}

sampling::Params completed(const GenerateParams& params, const model::Text& text) {
    sampling::Params sampling = params.sampling;
    sampling.logprobs = sampling.logprobs || sampling.n_top_logprobs > 0;
    if (!params.has_seed) sampling.seed = chance_seed();
    // Penalising markup breaks tool calls.
    if (!params.penalize_added_tokens) sampling.penalty_exempt_from = text.first_added_token();
    if (sampling.dry_multiplier > 0.0F)
        for (const std::string& breaker : params.dry_breakers)
            sampling.dry_breakers.push_back(text.dry_breaker(breaker));
    return sampling;
}

}  // namespace

GenerateParams::GenerateParams() {
    sampling.temperature = 0.0F;
}

Answer::Answer(const model::Text& text, const GenerateParams& params)
    : text_(text),
      params_(params),
      sampler_(completed(params, text), static_cast<int32_t>(text.unused_rows().size()), text.unused_rows()),
      drafter_(params.n_draft),
      reasoning_(text.tokenizer(), params.max_reasoning),
      tool_block_(text.tokenizer()),
      loops_(params.n_loop),
      stops_(params.stop_texts) {
    const int64_t n_vocab = std::ssize(text.unused_rows());
    for (const int32_t id : params.stop_tokens) {
        if (id < 0 || id >= n_vocab)
            fail(Status::invalid, "stop token {} is out of range; ids go to {}", id, n_vocab - 1);
    }
    end_tokens_ = params.stop_tokens;
    const std::span<const int32_t> eog = text.tokenizer().eog_ids();
    if (!params.ignore_end) end_tokens_.insert(end_tokens_.end(), eog.begin(), eog.end());
    if (params.constraint) {
        if (&params.constraint->tokenizer() != &text.tokenizer())
            fail(Status::invalid, "the constraint was made for another model");
        matcher_.emplace(params.constraint, n_vocab, end_tokens_);
    }
}

void Answer::follow(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
        sampler_.accept(token, false);
        reasoning_.follow(token);
        tool_block_.follow(token);
    }
    if (!params_.penalize_added_tokens) sampler_.pause_penalties(tool_block_.is_open());
}

std::optional<int32_t> Answer::choose(std::span<const float> logits) {
    return choose({std::nullopt, [logits] { return logits; }});
}

TopKQuery Answer::query(std::span<const int32_t> draft) const {
    if (!reasoning_.due().empty() && !(matcher_ && matcher_->has_started())) return {};
    const bool is_masked = matcher_ && (matcher_->has_started() || !draft.empty());
    std::vector<int32_t> ids = banned();
    if (matcher_ && !draft.empty()) ids.insert(ids.end(), end_tokens_.begin(), end_tokens_.end());
    return sampler_.query(ids, draft, is_masked);
}

sampling::Choice Answer::forced_choice(int32_t token, const LogitsRow& row) const {
    sampling::Choice choice;
    choice.token = token;
    if (!sampler_.params().logprobs) return choice;
    const std::span<const float> logits = row.whole();
    const sampling::LogNormaliser normaliser = sampling::log_normaliser(logits);
    choice.logprob = normaliser.logprob(logits[token]);
    choice.top = sampling::top_logprobs(logits, normaliser, sampler_.params().n_top_logprobs);
    return choice;
}

// Returns the token that must come next to close reasoning. A constraint that has started goes before the budget: where
// it does not allow all of the closing tokens, none is forced.
std::optional<int32_t> Answer::forced() {
    const std::span<const int32_t> due = reasoning_.due();
    if (due.empty() || (matcher_ && !matcher_->fits(due))) return std::nullopt;
    return due[0];
}

// Returns the tokens that may not come next, besides those that a constraint forbids.
std::vector<int32_t> Answer::banned() const {
    std::vector<int32_t> ids;
    if (!may_end()) ids = end_tokens_;
    const auto think = reasoning_.barred();
    const bool is_wanted =
        matcher_ && (matcher_->has_started() || params_.constraint->start().starts_after == think);
    if (think && !is_wanted) ids.push_back(*think);
    return ids;
}

sampling::Choice Answer::next_choice(const LogitsRow& row) {
    if (const auto token = forced()) return forced_choice(*token, row);
    const std::vector<int32_t> banned_now = banned();
    const bool is_constrained = matcher_ && matcher_->has_started();
    const auto allowed = is_constrained ? matcher_->allowed() : std::span<const uint64_t>();
    std::optional<sampling::Choice> chosen;
    if (row.top) chosen = sampler_.sample(*row.top, banned_now, allowed);
    return chosen ? std::move(*chosen) : sampler_.sample(row.whole(), banned_now, allowed);
}

std::optional<int32_t> Answer::choose(const LogitsRow& row) {
    sampling::Choice choice = next_choice(row);
    const int32_t token = choice.token;
    if (ends_text(token)) {
        end_token_ = token;
        end_logprob_ = choice.logprob;
        finish(Finish::end);
        return std::nullopt;
    }
    sampler_.accept(token, true);
    reasoning_.accept(token);
    tool_block_.follow(token);
    if (!params_.penalize_added_tokens) sampler_.pause_penalties(tool_block_.is_open());
    const bool is_loop = loops_.add(token);
    if (matcher_) matcher_->accept(token);
    ++n_chosen_;

    const tokenizer::Tokenizer& tokenizer = text_.tokenizer();
    const bool is_text = tokenizer.token_type(token) != tokenizer::TokenType::control;
    const std::string piece = is_text ? decoder_.push(tokenizer.token_bytes(token)) : std::string();
    decoded_bytes_ += piece.size();
    waiting_.push_back({std::move(choice), decoded_bytes_, decoder_.pending_bytes() > 0});
    settled_text_ += stops_.push(piece);
    if (stops_.stopped()) {
        finish(Finish::stop_text);
        return token;
    }
    release_settled();
    if (matcher_ && matcher_->must_end()) {
        finish(Finish::end);
        return token;
    }
    if (params_.max_tokens > 0 && n_chosen_ >= params_.max_tokens) {
        finish(Finish::length);
    } else if (is_loop) {
        finish(Finish::loop);
    }
    return token;
}

bool Answer::ends_text(int32_t token) const {
    return std::ranges::find(end_tokens_, token) != end_tokens_.end();
}

void Answer::finish(Finish why) {
    settled_text_ += stops_.push(decoder_.finish());
    end_ = stops_.stopped() ? Finish::stop_text : why;
    if (!stops_.stopped()) settled_text_ += stops_.finish();
    while (!waiting_.empty()) release_front();
    // The text of a character that never became complete goes to the last token.
    if (!ready_.empty()) ready_.back().text += std::exchange(settled_text_, {});
}

void Answer::stop() noexcept {
    if (reported_finish() != Finish::none) return;
    waiting_.clear();
    ready_.clear();
    end_ = Finish::stopped;
    end_token_ = -1;
    end_logprob_ = 0.0F;
}

std::optional<TokenEvent> Answer::take_event() {
    if (ready_.empty()) return std::nullopt;
    std::optional<TokenEvent> event = std::move(ready_.front());
    ready_.pop_front();
    ++n_reported_;
    return event;
}

void Answer::release_settled() {
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
void Answer::release_front() {
    const uint64_t wanted = waiting_.front().text_end - given_bytes_;
    const int64_t size = std::min<uint64_t>(wanted, settled_text_.size());
    ready_.push_back({.choice = std::move(waiting_.front().choice), .text = settled_text_.substr(0, size)});
    waiting_.pop_front();
    settled_text_.erase(0, size);
    given_bytes_ += size;
}

}  // namespace minim::engine
