// The candidates of one row in the order in which sampling sums them: highest logit first, lowest id first on
// ties. Entries at -inf are no candidates. A vocabulary has 200 000 ids of which a draw looks at a few dozen,
// so the order is found in pieces, as far as it is asked for: each piece is a pass over the row, and each is
// four times the one before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/shortlist.h"

namespace minim::sampling {

class Ranking {
  public:
    // Begins with a new row, without NaN, which must outlive the queries. `first_piece` (at least 1) is how
    // many candidates will surely be asked for.
    void start(std::span<const float> logits, int64_t first_piece);

    // Begins with the candidates themselves, in their order; `has_others`: there are more, which are not known.
    void start(std::span<const Candidate> candidates, bool has_others);

    // Whether there is a candidate of this rank, counted from 0.
    bool has(int64_t rank) {
        while (rank >= static_cast<int64_t>(sorted_.size()) && !complete_) extend();
        return rank < static_cast<int64_t>(sorted_.size());
    }

    // Whether the candidates behind those that there are exist, but are not known.
    bool ends_early() const noexcept { return has_others_; }

    // The candidate of a rank for which has() was true.
    const Candidate& operator[](int64_t rank) const { return sorted_[static_cast<size_t>(rank)]; }

  private:
    void extend();

    std::span<const float> logits_;
    std::vector<Candidate> sorted_;  // kept from row to row, so that it seldom grows
    int64_t piece_ = 1;              // candidates the next pass will add
    bool complete_ = true;           // sorted_ holds all there are
    bool has_others_ = false;        // that are not known
};

}  // namespace minim::sampling
