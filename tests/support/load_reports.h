// SPDX-License-Identifier: Apache-2.0
// Collects the progress reports of a load, and cancels a load at each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "checkpoint/load_counter.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {

// The reports in the order in which they came. Checks that they never decrease and that all have the same total.
struct LoadReports {
    std::vector<uint64_t> done;
    uint64_t total = 0;

    checkpoint::Progress progress() {
        return [this](uint64_t now, uint64_t all) {
            if (!done.empty()) {
                CHECK(now >= done.back());
                CHECK(all == total);
            }
            done.push_back(now);
            total = all;
            return true;
        };
    }
    void check_complete() const {
        REQUIRE_FALSE(done.empty());
        CHECK(done.back() == total);
    }
};

// Cancels load(progress) at its first report, its second ... up to the n-th, and calls after() each time.
template <typename Load, typename After>
void cancel_at_each(size_t n_reports, const Load& load, const After& after) {
    for (size_t stop = 1; stop <= n_reports; ++stop) {
        size_t calls = 0;
        const checkpoint::Progress progress = [&](uint64_t, uint64_t) { return ++calls < stop; };
        expect_error(Status::cancelled, "loading", [&] { load(progress); });
        CHECK(calls == stop);
        after();
    }
}

template <typename Load>
void cancel_at_each(size_t n_reports, const Load& load) {
    cancel_at_each(n_reports, load, [] {});
}

}  // namespace minim::test
