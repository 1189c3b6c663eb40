// SPDX-License-Identifier: Apache-2.0
// Measures how long a job of two short tasks takes if it comes some time after the last one, as the host's share of a layer does while
// a device computes the rest of it: with workers that may fall asleep in between, and with workers that are kept awake.
//
//   wake_bench [GAP_US] [THREADS]     100 us and 2 threads unless said otherwise
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"

namespace {

using namespace minim;
using Clock = std::chrono::steady_clock;

constexpr int k_n_jobs = 1000;  // a round
constexpr int k_n_rounds = 10;  // of each kind, in turns
constexpr double k_task_us = 5.0;

double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Spends the time working, as a thread does that waits for a device.
void spend(double us) {
    const auto start = Clock::now();
    while (microseconds_since(start) < us) {
    }
}

// Times of the jobs of a round.
struct Times {
    std::vector<double> start;  // until a worker has begun with its task
    std::vector<double> job;    // until the job is done
};

void run_round(const ThreadPool& pool, double gap_us, bool stays_awake, Times& times) {
    std::optional<ThreadPool::Awake> awake;
    if (stays_awake) awake.emplace(pool);
    for (int i = 0; i < k_n_jobs; ++i) {
        spend(gap_us);
        std::atomic<double> worker_begins{-1.0};
        const auto start = Clock::now();
        pool.run(pool.n_threads(), [&](int64_t, int32_t thread) {
            if (thread == 1) worker_begins.store(microseconds_since(start), std::memory_order_relaxed);
            spend(k_task_us);
        });
        times.job.push_back(microseconds_since(start));
        // If the caller did the worker's task too, the worker would have begun after the end of the job.
        times.start.push_back(worker_begins < 0.0 ? times.job.back() : worker_begins.load());
    }
}

double quantile(std::vector<double> values, double share) {
    const auto at =
        values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::ranges::nth_element(values, at);
    return *at;
}

double number(std::string_view text, std::string_view name) {
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1.0 || value > 1e6)
        fail(Status::invalid, "{} is '{}'; a number from 1 to 1000000 is expected", name, text);
    return value;
}

void run(double gap_us, int32_t n_threads) {
    const ThreadPool pool(n_threads);
    std::array<Times, 2> times;
    for (int round = 0; round < k_n_rounds; ++round)
        for (const bool stays_awake : {false, true})
            run_round(pool, gap_us, stays_awake, times[static_cast<size_t>(stays_awake)]);
    std::printf("%d threads, a task of %.0f us each, %.0f us after the last job; %d jobs\n", n_threads,
                k_task_us, gap_us, k_n_rounds * k_n_jobs);
    std::printf("                 a worker begins after        the job takes\n");
    std::printf("                 median    quarter   90 %%    median    90 %%   us\n");
    for (const bool stays_awake : {false, true}) {
        const Times& t = times[static_cast<size_t>(stays_awake)];
        std::printf("%-16s %6.1f    %6.1f   %6.1f  %6.1f   %6.1f\n", stays_awake ? "kept awake" : "may sleep",
                    quantile(t.start, 0.5), quantile(t.start, 0.25), quantile(t.start, 0.9),
                    quantile(t.job, 0.5), quantile(t.job, 0.9));
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        run(argc > 1 ? number(argv[1], "the gap") : 100.0,
            argc > 2 ? static_cast<int32_t>(number(argv[2], "the thread count")) : 2);
    } catch (const Error& error) {
        std::fprintf(stderr, "wake_bench: %s\n", error.what());
        return 1;
    }
}
