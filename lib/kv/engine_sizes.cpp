// SPDX-License-Identifier: Apache-2.0
#include "kv/engine_sizes.h"

#include <algorithm>

#include "backend/kv_view.h"

namespace minim::kv {
namespace {

using backend::k_kv_page_tokens;

// A context that takes nothing from weights is preferred to a longer one from this length on.
constexpr int64_t k_useful_context = 8192;
constexpr int64_t k_min_rows = 32;

int64_t whole_pages(int64_t n_tokens) {
    return (n_tokens + k_kv_page_tokens - 1) / k_kv_page_tokens * k_kv_page_tokens;
}

// Returns the largest multiple of a page, from `low` to `high`, for which holds() is true; `low` if there is none. holds() is true up
// to some number and false from there on.
template <typename Holds>
int64_t largest(int64_t low, int64_t high, const Holds& holds) {
    if (high > low && holds(high)) return high;
    int64_t yes = low / k_kv_page_tokens;
    int64_t no = whole_pages(high) / k_kv_page_tokens;
    while (no - yes > 1) {
        const int64_t middle = yes + (no - yes) / 2;
        (holds(middle * k_kv_page_tokens) ? yes : no) = middle;
    }
    return std::max(low, yes * k_kv_page_tokens);
}

class Choice {
  public:
    Choice(const EngineWish& wish, const FitOf& fit_of)
        : wish_(wish), fit_of_(fit_of), n_rows_(wish.n_rows) {}

    EngineSizes choose() {
        int64_t n_context = context();
        while (n_context == 0 && wish_.fewer_rows && n_rows_ / 2 >= std::max(k_min_rows, wish_.n_requests)) {
            n_rows_ /= 2;
            n_context = context();
        }
        if (n_context == 0) return {0, 0, wish_.n_requests, wish_.n_rows};
        const int64_t n_tokens = tokens(n_context);
        const int64_t n_requests =
            wish_.fewer_requests ? std::min(wish_.n_requests, n_tokens / k_kv_page_tokens) : wish_.n_requests;
        return {n_context, n_tokens, n_requests, n_rows_};
    }

    int64_t longest(int64_t limit, Fit least) const {
        return largest(0, limit, [&](int64_t n_context) { return fit(n_context, n_context) >= least; });
    }

  private:
    Fit fit(int64_t n_context, int64_t n_tokens) const {
        // Requests that must run at once have a page each.
        const int64_t n_least = wish_.fewer_requests ? 0 : wish_.n_requests * k_kv_page_tokens;
        return fit_of_({n_context, std::max(whole_pages(n_tokens), n_least), wish_.n_requests, n_rows_});
    }

    // Returns the context; 0 if none fits.
    int64_t context() const {
        if (wish_.n_context > 0)
            return fit(wish_.n_context, wish_.n_context) >= Fit::tight ? wish_.n_context : 0;
        const int64_t limit = wish_.longest;
        const int64_t free = longest(limit, Fit::nothing);
        if (free >= std::min(k_useful_context, limit)) return free;
        if (const int64_t fair = longest(limit, Fit::beside); fair > 0) return fair;
        return longest(limit, Fit::yes);
    }

    int64_t tokens(int64_t n_context) const {
        const int64_t least =
            std::max(whole_pages(n_context), wish_.fewer_requests ? 0 : wish_.n_requests * k_kv_page_tokens);
        const int64_t all = n_context > k_usual_kv_tokens / wish_.n_requests ? k_usual_kv_tokens
                                                                             : n_context * wish_.n_requests;
        const Fit wanted = std::max(fit(n_context, n_context), Fit::beside);
        return largest(least, std::max(whole_pages(all), least),
                       [&](int64_t n_tokens) { return fit(n_context, n_tokens) >= wanted; });
    }

    const EngineWish& wish_;
    const FitOf& fit_of_;
    int64_t n_rows_;
};

}  // namespace

EngineSizes choose_sizes(const EngineWish& wish, const FitOf& fit_of) {
    return Choice(wish, fit_of).choose();
}

int64_t most_requests(const EngineWish& wish, const FitOf& fit_of) {
    const auto fits = [&](int64_t n_requests) {
        EngineWish other = wish;
        other.n_requests = n_requests;
        other.fewer_requests = false;
        // A step has a row for each request.
        if (wish.fewer_rows && wish.n_rows == wish.n_requests)
            other.n_rows = std::max(k_min_rows, n_requests);
        return choose_sizes(other, fit_of).n_context > 0;
    };
    int64_t yes = 0;
    for (int64_t step = wish.n_requests; step > 0; step /= 2)
        while (yes + step <= wish.n_requests && fits(yes + step)) yes += step;
    return yes;
}

int64_t longest_context(const EngineWish& wish, const FitOf& fit_of) {
    EngineWish other = wish;
    if (wish.fewer_rows) other.n_rows = std::min(wish.n_rows, std::max(k_min_rows, wish.n_requests));
    return Choice(other, fit_of).longest(std::max(wish.n_context, wish.longest), Fit::yes);
}

}  // namespace minim::kv
