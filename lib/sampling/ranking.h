// SPDX-License-Identifier: Apache-2.0
// The candidates of one row in the order in which sampling sums them: highest logit first, lowest id first on
// ties. Entries at -inf are not candidates. A vocabulary has 200 000 ids, and a draw needs a few dozen of them. So the
// order is computed lazily, in pieces: each piece takes a pass over the row and has four times as many candidates as the
// one before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/top_k.h"

namespace minim::sampling {

class Ranking {
  public:
    // Starts a new row, without NaN, which must outlive the queries. `first_piece` (at least 1) is the number of candidates
    // that will be needed in any case.
    void start(std::span<const float> logits, int64_t first_piece);

    // Starts with known candidates, in their order; `has_others`: there are more, which are not known.
    void start(std::span<const Candidate> candidates, bool has_others);

    // Returns whether there is a candidate of this rank, counted from 0.
    bool has(int64_t rank) {
        while (rank >= static_cast<int64_t>(sorted_.size()) && !complete_) extend();
        return rank < static_cast<int64_t>(sorted_.size());
    }

    // Returns whether there are more candidates than the known ones.
    bool ends_early() const noexcept { return has_others_; }

    // Returns the candidate of a rank for which has() returned true.
    const Candidate& operator[](int64_t rank) const { return sorted_[rank]; }

  private:
    void extend();

    std::span<const float> logits_;
    std::vector<Candidate> sorted_;  // kept from row to row, so that it seldom grows
    int64_t piece_ = 1;              // candidates the next pass will add
    bool complete_ = true;           // sorted_ has all candidates that can be known
    bool has_others_ = false;        // there are more, which are not known
};

}  // namespace minim::sampling
