// SPDX-License-Identifier: Apache-2.0
// Two results of `minim eval choice`, question by question: which of them answers more, and whether that says anything. The exact test
// of McNemar looks at the questions that only one of them has right: by chance each is as likely to be one's as the other's.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "failure.h"
#include "json_lines.h"
#include "output.h"

namespace cli {
namespace {

using RightById = std::map<std::string, bool>;

RightById read_results(const std::string& path) {
    RightById results;
    for_each_json_line(path, [&](const nlohmann::json& line, const std::string& place) {
        if (!results.emplace(line.at("question_id").dump(), line.at("correct").get<bool>()).second)
            fail(MINIM_E_INVALID, fmt::format("{}: the question is there twice", place));
    });
    return results;
}

// Returns the probability that a fair coin, thrown a + b times, falls at least as unevenly.
double exact_p(int64_t a, int64_t b) {
    const int64_t n = a + b;
    const auto log_factorial = [](int64_t k) { return std::lgamma(static_cast<double>(k) + 1.0); };
    double sum = 0.0;
    for (int64_t k = 0; k <= std::min(a, b); ++k)
        sum += std::exp(log_factorial(n) - log_factorial(k) - log_factorial(n - k) -
                        static_cast<double>(n) * std::log(2.0));
    return std::min(2.0 * sum, 1.0);
}

}  // namespace

void eval_compare(const Options& options) {
    const RightById a = read_results(options.files[0]);
    const RightById b = read_results(options.files[1]);
    int64_t both = 0;
    int64_t neither = 0;
    int64_t only_a = 0;
    int64_t only_b = 0;
    for (const auto& [id, is_right] : a) {
        const auto other = b.find(id);
        if (other == b.end()) continue;
        int64_t& count = is_right ? (other->second ? both : only_a) : (other->second ? only_b : neither);
        ++count;
    }
    const int64_t n = both + neither + only_a + only_b;
    if (n == 0) fail(MINIM_E_INVALID, "the two files have no question in common");
    const int64_t n_left_out = std::ssize(a) + std::ssize(b) - 2 * n;
    if (n_left_out > 0)
        print_note(fmt::format("minim: note: {} questions are in one of the files alone\n", n_left_out));
    const double p = exact_p(only_a, only_b);
    if (options.prints_json) {
        const nlohmann::ordered_json all = {
            {"both", both}, {"neither", neither}, {"only_a", only_a}, {"only_b", only_b}, {"p", p}};
        return print(all.dump() + "\n");
    }
    const auto percent = [n](int64_t count) {
        return 100.0 * static_cast<double>(count) / static_cast<double>(n);
    };
    print(fmt::format("{:>16} {:>10} {:>10}\n", "", "B right", "B wrong"));
    print(fmt::format("{:>16} {:>10} {:>10}\n", "A right", both, only_a));
    print(fmt::format("{:>16} {:>10} {:>10}\n", "A wrong", only_b, neither));
    print(fmt::format("A {:.2f}%, B {:.2f}% of {} questions; p = {:.4g} (exact test of McNemar)\n",
                      percent(both + only_a), percent(both + only_b), n, p));
}

}  // namespace cli
