// SPDX-License-Identifier: Apache-2.0
// Tracks one answer in a constraint: which tokens may come next, and whether it may end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "constraint/constraint.h"
#include "constraint/open_elements.h"
#include "constraint/positions.h"

namespace minim::constraint {

// One thread at a time.
class Matcher {
  public:
    // `n_vocab` is the number of logits, `end_tokens` are those that end the answer.
    Matcher(std::shared_ptr<const Constraint> constraint, int64_t n_vocab, std::vector<int32_t> end_tokens);

    // Returns whether the constraint is active: it is not before its starts_after and opens_with tokens, but before the first token of
    // an answer that may begin with reasoning.
    bool has_started() const noexcept { return progress_.has_started; }

    // Returns one bit for each id, in words of 64: the tokens that may come next, and end tokens if the text may end.
    // Requires has_started(). At least one bit is set. Valid until the next call.
    std::span<const uint64_t> allowed();

    // Adds a token. Throws invalid if it is not allowed; the answer must then be stopped.
    void accept(int32_t token);

    // Returns whether accept() would take all these tokens, one after the other.
    bool fits(std::span<const int32_t> tokens);

    bool may_end() const noexcept {
        return progress_.has_started ? positions_.may_end(progress_.position)
                                     : constraint_->start().opens_with.has_value();
    }
    bool must_end() const noexcept {
        return progress_.has_started && positions_.must_end(progress_.position);
    }

  private:
    void allow(int32_t token) noexcept { allowed_[int64_t{token} / 64] |= uint64_t{1} << (token % 64); }
    bool is_allowed(int32_t token) const noexcept {
        return (allowed_[int64_t{token} / 64] >> (token % 64) & 1) != 0;
    }
    void allow_from(std::span<const Positions::Place> places);  // of one state and count
    // The progress of a text.
    struct Progress {
        bool may_reason;       // at the first token of an answer that may begin with reasoning
        bool waits_for_start;  // for starts_after
        bool has_started;
        int32_t position;
        OpenElements elements = {};  // followed if the constraint has an element_mark()
    };
    Progress beginning();
    void follow(Progress& progress, int32_t token);
    bool follow_elements(OpenElements& elements, int32_t token) const;
    void forbid_wrong_names();
    int32_t after_token(int32_t position, int32_t token);

    std::shared_ptr<const Constraint> constraint_;
    std::vector<int32_t> end_tokens_;
    Positions positions_;
    Progress progress_;
    std::vector<uint64_t> allowed_;
    bool allowed_is_known_ = false;  // for progress_
    std::vector<int32_t> path_;
};

}  // namespace minim::constraint
