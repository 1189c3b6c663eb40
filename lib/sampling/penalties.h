// SPDX-License-Identifier: Apache-2.0
// The history of a sequence that penalties need, and their effect on a row of logits. The tables have one entry per
// vocabulary id and exist only for the penalties that are on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/params.h"

namespace minim::sampling {

// Counts of each id in a window that tokens enter and leave. `ids` lists the ids with a count above 0.
class TokenCounts {
  public:
    void resize(int32_t n_vocab);  // and clear
    void add(int32_t token) noexcept;
    void remove(int32_t token) noexcept;  // it must be in the window

    std::span<const int32_t> ids() const noexcept { return ids_; }
    int32_t count(int32_t token) const { return counts_[token]; }

  private:
    std::vector<int32_t> counts_;
    std::vector<int32_t> places_;  // of an id with a count, its index in ids_
    std::vector<int32_t> ids_;     // room for the whole vocabulary, so that add() never allocates
};

class Penalties {
  public:
    // `params` has been validated for this vocabulary.
    Penalties(const Params& params, int32_t n_vocab);

    // `token` is an id of the vocabulary; `generated` is false for the prompt's tokens.
    void accept(int32_t token, bool generated);

    // Changes the logits of the ids seen: first by repetition, then by frequency, then by presence.
    void apply(std::span<float> logits) const;

    // Returns one changed logit.
    float adjusted(int32_t token, float logit) const;

    // Adds the ids seen, some perhaps twice.
    void append_ids(std::vector<int32_t>& ids) const;

    bool are_on() const noexcept { return counts_window_ || counts_generated_; }

    // Returns an upper bound of the number of ids seen: some may be counted twice.
    size_t n_ids() const noexcept { return window_.ids().size() + generated_.ids().size(); }

  private:
    float repeated(float logit) const noexcept {
        return logit > 0.0F ? logit / repetition_ : logit * repetition_;
    }
    float used(int32_t token, float logit) const;
    void accept_in_window(int32_t token);
    void apply_repetition(std::span<float> logits) const;
    void apply_presence_and_frequency(std::span<float> logits) const;

    float repetition_;
    float presence_;
    float frequency_;
    int32_t exempt_from_;
    int64_t last_n_;  // -1: the whole sequence
    bool counts_window_;
    bool counts_generated_;

    TokenCounts window_;
    TokenCounts generated_;
    // The last `last_n_` tokens, filled as they come (the caller may ask for a window of 2^31) and then used
    // as a ring whose oldest entry is at oldest_.
    std::vector<int32_t> recent_;
    size_t oldest_ = 0;
};

}  // namespace minim::sampling
