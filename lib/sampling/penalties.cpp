// SPDX-License-Identifier: Apache-2.0
#include "sampling/penalties.h"

namespace minim::sampling {

void TokenCounts::resize(int32_t n_vocab) {
    counts_.assign(n_vocab, 0);
    places_.assign(n_vocab, 0);
    ids_.clear();
    ids_.reserve(n_vocab);
}

void TokenCounts::add(int32_t token) noexcept {
    const int64_t id = token;
    if (counts_[id] == 0) {
        ids_.push_back(token);
        places_[id] = static_cast<int32_t>(ids_.size() - 1);
    }
    ++counts_[id];
}

void TokenCounts::remove(int32_t token) noexcept {
    const int64_t id = token;
    if (--counts_[id] > 0) return;
    const int32_t last = ids_.back();
    ids_[places_[id]] = last;
    places_[last] = places_[id];
    ids_.pop_back();
}

Penalties::Penalties(const Params& params, int32_t n_vocab)
    : repetition_(params.repetition_penalty),
      presence_(params.presence_penalty),
      frequency_(params.frequency_penalty),
      exempt_from_(params.penalty_exempt_from),
      last_n_(params.penalty_last_n),
      counts_window_(repetition_ != 1.0F && last_n_ != 0),
      counts_generated_(presence_ != 0.0F || frequency_ != 0.0F) {
    if (counts_window_) window_.resize(n_vocab);
    if (counts_generated_) generated_.resize(n_vocab);
}

void Penalties::accept(int32_t token, bool generated) {
    if (counts_window_) accept_in_window(token);
    if (counts_generated_ && generated) generated_.add(token);
}

void Penalties::accept_in_window(int32_t token) {
    // The one step that allocates comes first, so that its failure leaves everything as it was.
    if (last_n_ < 0) {
        window_.add(token);
    } else if (static_cast<int64_t>(recent_.size()) < last_n_) {
        recent_.push_back(token);
        window_.add(token);
    } else {
        window_.remove(recent_[oldest_]);
        window_.add(token);
        recent_[oldest_] = token;
        oldest_ = (oldest_ + 1) % recent_.size();
    }
}

void Penalties::apply(std::span<float> logits) const {
    if (counts_window_) apply_repetition(logits);
    if (counts_generated_) apply_presence_and_frequency(logits);
}

void Penalties::apply_repetition(std::span<float> logits) const {
    for (const int32_t token : window_.ids()) {
        if (token >= exempt_from_) continue;
        float& logit = logits[token];
        logit = repeated(logit);
    }
}

float Penalties::used(int32_t token, float logit) const {
    logit -= frequency_ * static_cast<float>(generated_.count(token));
    return logit - presence_;
}

void Penalties::apply_presence_and_frequency(std::span<float> logits) const {
    for (const int32_t token : generated_.ids()) {
        if (token >= exempt_from_) continue;
        float& logit = logits[token];
        logit = used(token, logit);
    }
}

float Penalties::adjusted(int32_t token, float logit) const {
    if (token >= exempt_from_) return logit;
    if (counts_window_ && window_.count(token) > 0) logit = repeated(logit);
    if (counts_generated_ && generated_.count(token) > 0) logit = used(token, logit);
    return logit;
}

void Penalties::append_ids(std::vector<int32_t>& ids) const {
    ids.insert(ids.end(), window_.ids().begin(), window_.ids().end());
    ids.insert(ids.end(), generated_.ids().begin(), generated_.ids().end());
}

}  // namespace minim::sampling
