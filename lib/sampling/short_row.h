// SPDX-License-Identifier: Apache-2.0
// A row of logits of which only the top-k is on the host (`base/top_k.h`), after penalties, bias and masks: its candidates as
// far as their order is certain, and a range for the sum of all weights. Values that the top-k does not determine are
// reported as unknown.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/top_k.h"
#include "sampling/softmax.h"

namespace minim::sampling {

// The logit of a token that must not be chosen.
inline constexpr float k_never = -std::numeric_limits<float>::infinity();

// A range that contains a number which is not known to the last bit.
struct Range {
    double least;
    double most;
};

class ShortRow {
  public:
    // A logit changed by penalties or bias. An unknown logit starts at 0.
    struct Change {
        int32_t token;
        bool is_known;
        float logit;
        float adjusted;
    };

    // Starts a new row, which must outlive the queries. `tokens`: those whose logits change.
    void start(const TopK& top, int32_t n_vocab, std::span<const int32_t> tokens);

    std::span<Change> changes() noexcept { return changes_; }
    // Returns the change of a token that was given to start().
    Change& change_of(int32_t token) noexcept;

    // Ranks the candidates after the changes; `allowed` as in Sampler::sample. Returns false if a logit that may be chosen
    // is not known.
    bool rank(std::span<const uint64_t> allowed);

    std::span<const Candidate> candidates() const noexcept { return ranked_; }
    bool has_others() const noexcept { return has_others_; }  // candidates behind the known ones

    // Returns the model's logit of a token, before changes, if it is known.
    std::optional<float> logit(int32_t token) const;

    // Returns a range that contains Softmax::total() of the changed row, if it is known.
    std::optional<Range> total(const Softmax& softmax) const;

  private:
    const Change* find(int32_t token) const noexcept;

    const TopK* top_ = nullptr;
    int32_t n_vocab_ = 0;
    bool is_masked_ = false;
    bool has_others_ = false;
    std::vector<Candidate> known_;  // by token
    std::vector<Change> changes_;   // by token
    std::vector<Candidate> ranked_;
};

}  // namespace minim::sampling
