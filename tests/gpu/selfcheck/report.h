// SPDX-License-Identifier: Apache-2.0
// Results of the self-check: a line a case, the worst last.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace minim::selfcheck {

// Returns |a - b| / |b| over all elements; NaN if either has an element that is not finite.
inline double relative_error(std::span<const float> a, std::span<const float> b) {
    double difference = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < b.size(); ++i) {
        const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        difference += d * d;
        size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    if (a.size() != b.size() || !std::isfinite(difference) || !std::isfinite(size)) return NAN;
    return size == 0.0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

class Report {
  public:
    // Only cases whose name contains `filter` are run.
    explicit Report(std::string filter) : filter_(std::move(filter)) {}

    bool wants(const std::string& name) const { return name.find(filter_) != std::string::npos; }

    void add(const std::string& name, double error, double expected) {
        cases_.push_back({name, error, expected});
        print(cases_.back());
        std::fflush(stdout);
    }
    void note(const std::string& text) { std::printf("      %s\n", text.c_str()); }

    // Prints the ten cases whose errors came nearest to the expected error or exceeded it. Returns whether no case
    // exceeded it.
    bool finish() {
        std::ranges::sort(cases_, [](const Case& a, const Case& b) { return a.share() < b.share(); });
        const size_t n_last = std::min<size_t>(10, cases_.size());
        const auto n_failed = std::ranges::count_if(cases_, [](const Case& c) { return !c.is_good(); });
        std::printf("\nthe worst:\n");
        for (size_t i = cases_.size() - n_last; i < cases_.size(); ++i) print(cases_[i]);
        std::printf("%zu cases, %td failed\n", cases_.size(), n_failed);
        return n_failed == 0 && !cases_.empty();
    }

  private:
    struct Case {
        std::string name;
        double error;
        double expected;

        bool is_good() const { return error <= expected; }  // NaN is not
        double share() const { return std::isfinite(error) ? error / expected : INFINITY; }
    };
    static void print(const Case& c) {
        std::printf("%-4s %-64s %9.2e  expected below %7.0e\n", c.is_good() ? "ok" : "FAIL", c.name.c_str(),
                    c.error, c.expected);
    }

    std::string filter_;
    std::vector<Case> cases_;
};

}  // namespace minim::selfcheck
