// SPDX-License-Identifier: Apache-2.0
// Limits on how often a text may pass the counted states of a rule (Grammar::counted): a place in such a rule has a count, and the states
// have no copies. For 5,000 characters without "</parameter>", 13 states with a count take the place of 65,000 states.
//
// From some states and counts no end can be reached: after 4,999 of 5,000 characters, `ab` cannot follow. Counter knows from which:
// a row has one bit for each state of the rule. Rows of neighbouring counts are nearly always equal, except close to the bounds.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::constraint {

class Counter {
  public:
    // A rule's states, numbered from 0 on.
    struct States {
        std::vector<std::vector<int32_t>> next;  // by state, without repeats
        std::vector<uint8_t> accepts;
        std::vector<uint8_t> is_counted;  // 1: entering the state counts
    };
    // `most` < 0: any number. Throws unsupported, with the rule's name, if the rows take more than `steps_left`, which is reduced.
    Counter(const States& states, int64_t least, int64_t most, std::string_view name, size_t& steps_left);
    static constexpr size_t k_max_steps = 50'000'000;  // of all counters of an automaton

    // Returns the count after one more; k_none beyond the largest one. Counts from `least` on are one if there is no upper bound.
    int64_t after(int64_t count) const noexcept;
    bool may_accept(int64_t count) const noexcept { return count >= least_; }
    // Returns whether the rule can end from here on, or ends here.
    bool is_alive(size_t state, int64_t count) const noexcept;
    bool is_ever_alive(size_t state) const noexcept;

    // Appends what determines the texts of up to `n` more counts: equal for counts that no such text can tell apart.
    void append_rows(int64_t count, int64_t n, std::vector<int32_t>& key) const;

    static constexpr int64_t k_none = -1;

  private:
    using Row = std::vector<uint64_t>;  // bits by state, and as the last bit whether accepting states accept
    struct Run {
        int64_t first;  // count
        int32_t row;
    };
    Row row_of(const States& states, int64_t count, const Row* above) const;
    const Run* run_of(int64_t count) const noexcept;

    int64_t least_;
    int64_t most_;
    int64_t top_;            // the largest count
    std::vector<Row> rows_;  // no two alike
    std::vector<Run> runs_;  // ascending: counts from `first` to before the next run's
};

}  // namespace minim::constraint
