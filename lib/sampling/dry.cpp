// SPDX-License-Identifier: Apache-2.0
#include "sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace minim::sampling {
namespace {

// Returns the largest exponent for which the power still fits a float.
int64_t largest_exponent(float base) {
    constexpr double k_log_of_largest_float = 88.7228391;
    if (base <= 1.000001F) return INT64_MAX;
    return static_cast<int64_t>(k_log_of_largest_float / std::log(static_cast<double>(base)));
}

// Computes a power by multiplication alone, so that the result is the same on every machine.
double power(double base, int64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 == 1) result *= base;
        base *= base;
    }
    return result;
}

}  // namespace

std::span<const DryBreaker::Entry> DryBreaker::of(int32_t token) const noexcept {
    return {std::ranges::lower_bound(entries, token, {}, &Entry::token),
            std::ranges::upper_bound(entries, token, {}, &Entry::token)};
}

Dry::Dry(const Params& params)
    : multiplier_(params.dry_multiplier),
      base_(params.dry_base),
      allowed_length_(params.dry_allowed_length),
      last_n_(params.dry_last_n),
      exempt_from_(params.penalty_exempt_from),
      breakers_(params.dry_breakers) {}

void Dry::accept(int32_t token) {
    if (!is_on()) return;
    tokens_.push_back(token);
    are_known_ = false;
}

std::span<const Dry::Penalty> Dry::penalties() const {
    if (is_on() && !are_known_) find_penalties();
    are_known_ = true;
    return penalties_;
}

// Returns the number of tokens behind the last breaker; n_window if there is none.
size_t Dry::breaker_distance(size_t n_window) const {
    for (size_t i = 0; i < n_window; ++i) {
        std::ptrdiff_t longest = -1;
        for (const auto& breaker : breakers_) {
            for (const DryBreaker::Entry& entry : breaker->of(back(i))) {
                const size_t n = entry.tail.size();
                if (n > i || std::cmp_less_equal(n, longest)) continue;
                size_t n_equal = 0;
                while (n_equal < n && entry.tail[n_equal] == back(i - n_equal - 1)) ++n_equal;
                if (n_equal == n) longest = static_cast<std::ptrdiff_t>(n);
            }
        }
        if (longest >= 0) return i - longest;
    }
    return n_window;
}

// Runs the Z algorithm from the end. It looks at each token once, whatever repeats.
void Dry::count_repetitions(size_t n_window, size_t limit) const {
    repetitions_.assign(n_window, 0);
    const auto limited = [&](size_t n) { return static_cast<int32_t>(std::min(n, limit)); };
    size_t first = 0;  // the stretch of tokens that is known to equal the last ones
    size_t last = 0;
    for (size_t k = 1; k < n_window; ++k) {
        const size_t n_known = k <= last ? last - k + 1 : 0;
        const auto n_before = n_known > 0 ? static_cast<size_t>(repetitions_[k - first]) : 0;
        if (n_before < n_known) {
            repetitions_[k] = limited(n_before);
            continue;
        }
        size_t end = k + n_known;
        while (end < n_window && back(end) == back(end - k)) ++end;
        repetitions_[k] = limited(end - k);
        if (end == k) continue;
        first = k;
        last = end - 1;
    }
}

bool Dry::is_breaker(int32_t token) const {
    return std::ranges::any_of(breakers_, [&](const auto& breaker) {
        return std::ranges::any_of(breaker->of(token),
                                   [](const DryBreaker::Entry& entry) { return entry.tail.empty(); });
    });
}

void Dry::find_penalties() const {
    penalties_.clear();
    const auto n_all = std::ssize(tokens_);
    const int64_t n_window = last_n_ < 0 ? n_all : std::min(n_all, last_n_);
    if (n_window <= allowed_length_) return;
    const size_t limit = breaker_distance(n_window);
    if (std::cmp_less(limit, allowed_length_)) return;
    count_repetitions(n_window, limit);

    // The token behind a repeated stretch would extend the repetition. For each token, the longest such stretch counts.
    std::vector<std::pair<int32_t, int32_t>> lengths;
    for (size_t k = 1; k < static_cast<size_t>(n_window); ++k)
        if (repetitions_[k] >= allowed_length_) lengths.emplace_back(back(k - 1), -repetitions_[k]);
    std::ranges::sort(lengths);
    const auto same = std::unique(lengths.begin(), lengths.end(),
                                  [](const auto& a, const auto& b) { return a.first == b.first; });
    lengths.erase(same, lengths.end());
    const int64_t most = largest_exponent(base_);
    for (const auto& [token, length] : lengths) {
        if (token >= exempt_from_ || is_breaker(token)) continue;
        const int64_t exponent = std::min(-int64_t{length} - allowed_length_, most);
        penalties_.push_back({token, static_cast<float>(multiplier_ * power(base_, exponent))});
    }
}

}  // namespace minim::sampling
