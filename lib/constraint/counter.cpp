// SPDX-License-Identifier: Apache-2.0
#include "constraint/counter.h"

#include <algorithm>

#include "base/error.h"

namespace minim::constraint {
namespace {

constexpr size_t k_max_runs = 100'000;

bool has_bit(const std::vector<uint64_t>& bits, size_t i) noexcept {
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

void set_bit(std::vector<uint64_t>& bits, size_t i) noexcept {
    bits[i / 64] |= uint64_t{1} << (i % 64);
}

}  // namespace

// From the largest count down. Where a row equals the one above it, all lower ones do, up to the next bound.
Counter::Counter(const States& states, int64_t least, int64_t most, std::string_view name, size_t& steps_left)
    : least_(least), most_(most), top_(most < 0 ? least : most) {
    size_t n_transitions = states.next.size();
    for (const auto& targets : states.next) n_transitions += targets.size();
    std::map<Row, int32_t> numbers;
    Row above;
    for (int64_t count = top_; count >= 0;) {
        Row row = row_of(states, count, above.empty() ? nullptr : &above);
        const auto [place, is_new] = numbers.try_emplace(row, static_cast<int32_t>(rows_.size()));
        if (is_new) rows_.push_back(row);
        if (!runs_.empty() && runs_.back().row == place->second) {
            const int64_t last = count >= least_ ? least_ : 0;
            runs_.back().first = last;
            count = last;
        } else {
            runs_.push_back({count, place->second});
        }
        --count;
        above = std::move(row);
        if (n_transitions > steps_left || runs_.size() > k_max_runs) {
            fail(Status::unsupported,
                 "the constraint's part '{}' counts up to {} with too many different transitions", name,
                 top_);
        }
        steps_left -= n_transitions;
    }
    std::ranges::reverse(runs_);
}

Counter::Row Counter::row_of(const States& states, int64_t count, const Row* above) const {
    const size_t n_states = states.next.size();
    Row row((n_states + 64) / 64, 0);
    if (may_accept(count)) set_bit(row, n_states);
    // With no upper bound, the largest count follows itself.
    const bool follows_itself = most_ < 0 && count == top_;
    const auto is_open = [&](int32_t to) {
        const int64_t target = to;
        if (states.is_counted[target] == 0 || follows_itself) return has_bit(row, target);
        return above != nullptr && has_bit(*above, target);
    };
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (size_t state = n_states; state-- > 0;) {
            if (has_bit(row, state)) continue;
            const bool accepts = states.accepts[state] != 0 && may_accept(count);
            if (!accepts && std::ranges::none_of(states.next[state], is_open)) continue;
            set_bit(row, state);
            has_changed = true;
        }
    }
    return row;
}

const Counter::Run* Counter::run_of(int64_t count) const noexcept {
    const auto after = std::ranges::upper_bound(runs_, count, {}, &Run::first);
    return &*(after - 1);
}

int64_t Counter::after(int64_t count) const noexcept {
    if (count < top_) return count + 1;
    return most_ < 0 ? top_ : k_none;
}

bool Counter::is_alive(size_t state, int64_t count) const noexcept {
    return has_bit(rows_[run_of(count)->row], state);
}

bool Counter::is_ever_alive(size_t state) const noexcept {
    return std::ranges::any_of(rows_, [&](const Row& row) { return has_bit(row, state); });
}

void Counter::append_rows(int64_t count, int64_t n, std::vector<int32_t>& key) const {
    const int64_t last = most_ < 0 ? count + n : std::min(count + n, top_);
    for (const Run* run = run_of(count); count <= last; ++run) {
        const bool is_last_run = run == &runs_.back();
        const int64_t end = is_last_run ? last + 1 : std::min((run + 1)->first, last + 1);
        key.push_back(run->row);
        key.push_back(static_cast<int32_t>(end - count));
        count = end;
    }
}

}  // namespace minim::constraint
