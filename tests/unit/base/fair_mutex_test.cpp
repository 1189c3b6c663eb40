// SPDX-License-Identifier: Apache-2.0
#include "base/fair_mutex.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "support/helpers.h"

using namespace minim;

TEST_CASE("a thread that has waited gets the mutex before the one that unlocks it and locks it again") {
    FairMutex mutex;
    int n_first = 0;
    constexpr int k_rounds = 5;
    for (int round = 0; round < k_rounds; ++round) {
        std::atomic<bool> begins{false};
        std::atomic<bool> had_it{false};
        std::unique_lock lock(mutex);
        std::thread waiting([&] {
            begins = true;
            const std::lock_guard turn(mutex);
            had_it = true;
        });
        while (!begins) std::this_thread::yield();
        std::this_thread::sleep_for(25 * FairMutex::k_patience);
        lock.unlock();
        lock.lock();
        n_first += had_it ? 1 : 0;
        lock.unlock();
        waiting.join();
    }
    // On a busy machine a thread may not have begun to wait in this time.
    CHECK(n_first >= k_rounds - 1);
}

TEST_CASE("a fair mutex lets one thread in at a time, and all of them in the end") {
    FairMutex mutex;
    int64_t count = 0;
    const auto add = [&] {
        for (int i = 0; i < 20000; ++i) {
            const std::lock_guard turn(mutex);
            ++count;
        }
    };
    std::thread threads[] = {std::thread(add), std::thread(add), std::thread(add), std::thread(add)};
    for (std::thread& thread : threads) thread.join();
    CHECK(count == 80000);
}
