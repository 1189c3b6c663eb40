// SPDX-License-Identifier: Apache-2.0
// Chooses the next token of one sequence from a row of logits. The steps, in order: penalties, DRY, logit bias,
// masks, then temperature and the filters top_k, top_p and min_p in the order the parameters name, then one
// draw. All sums are doubles, taken in a defined order, with this layer's own exp and random numbers: the
// same parameters and the same logits give the same tokens on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/top_k.h"
#include "sampling/dry.h"
#include "sampling/logprobs.h"
#include "sampling/params.h"
#include "sampling/penalties.h"
#include "sampling/random.h"
#include "sampling/ranking.h"
#include "sampling/short_row.h"
#include "sampling/softmax.h"

namespace minim::sampling {

struct Choice {
    int32_t token = 0;
    float logprob = 0.0F;               // of the model's own distribution; 0 unless Params::logprobs
    std::vector<TokenProbability> top;  // Params::n_top_logprobs entries, whether or not they may be chosen
};

// One thread at a time. A copy continues exactly as the original would, as forks and speculative steps
// need.
class Sampler {
  public:
    // `forbidden` has one entry per id, or none: an id with a non-zero entry is never chosen (padding rows
    // without a token, and whatever else the caller knows). Throws what validate() throws, and
    // Status::invalid for a mask of another size.
    Sampler(const Params& params, int32_t n_vocab, std::span<const uint8_t> forbidden = {});

    // Adds a token to the history that penalties use; sample() does not do that. `generated` is false for the
    // prompt's tokens. Throws Status::invalid for an id outside the vocabulary.
    void accept(int32_t token, bool generated);

    // Chooses from one row of n_vocab logits. `banned_now`: ids that may not be chosen in this call (an EOS token
    // before min_tokens). `allowed`, unless empty: one bit for each id, 64 a word, lowest first, set for ids that may
    // be chosen. Draws one random number at every temperature but 0. Throws, with the sampler unchanged,
    // Status::internal if a logit is NaN, and Status::invalid for a row or mask of another size, for an id outside
    // the vocabulary, and if no candidate is left.
    Choice sample(std::span<const float> logits, std::span<const int32_t> banned_now = {},
                  std::span<const uint64_t> allowed = {});

    // Returns the top-k query that suffices for the sample() below, as far as that is known in advance; without
    // candidates if the whole row is needed. `banned` and `accepted`: ids that may be banned, and accepted, by then;
    // `masked`: `allowed` will not be empty.
    TopKQuery query(std::span<const int32_t> banned = {}, std::span<const int32_t> accepted = {},
                    bool masked = false) const;

    // Chooses exactly the token that the whole row would give. Returns nothing, with the sampler unchanged, if only
    // the whole row determines it, or if the row would be refused.
    std::optional<Choice> sample(const TopK& top, std::span<const int32_t> banned_now = {},
                                 std::span<const uint64_t> allowed = {});

    // While true, penalties change no logits; tokens still enter their history.
    void pause_penalties(bool are_paused) noexcept { penalties_are_paused_ = are_paused; }

    const Params& params() const noexcept { return params_; }

  private:
    void copy_row(std::span<const float> logits, std::span<const uint64_t> allowed);
    void copy_allowed(std::span<const float> logits, std::span<const uint64_t> allowed);
    void adjust_row(std::span<const int32_t> banned_now);
    int32_t highest() const;
    void change_row(std::span<const int32_t> banned_now);
    void append_changing(std::vector<int32_t>& tokens, std::span<const int32_t> banned) const;
    void check_banned(std::span<const int32_t> banned) const;
    void check_mask(std::span<const uint64_t> allowed) const;
    bool report_logprobs(const TopK& top, Choice& choice) const;
    bool top_k_is_on() const noexcept { return params_.top_k > 0 && params_.top_k < n_vocab_; }
    double filter_temperature() const noexcept;
    bool needs_total() const noexcept;
    std::optional<int32_t> draw(float top);
    std::optional<int64_t> filtered_count(float top);
    std::optional<int64_t> nucleus_count(int64_t count, const Softmax& softmax);
    std::optional<int64_t> min_p_count(int64_t count, const Softmax& softmax);
    std::optional<Range> total_weight(int64_t count, const Softmax& softmax);

    Params params_;
    int32_t n_vocab_;
    std::vector<int32_t> forbidden_;
    Penalties penalties_;
    Dry dry_;
    bool penalties_are_paused_ = false;
    Random random_;

    std::vector<float> adjusted_;    // the row after penalties, bias and masks
    ShortRow short_row_;             // the same if only the top-k of the row is on the host
    bool is_short_ = false;          // true: short_row_ is used
    std::vector<int32_t> changing_;  // ids whose logits change
    Ranking ranking_;                // of the row
};

}  // namespace minim::sampling
