// SPDX-License-Identifier: Apache-2.0
// How the checks read a checkpoint: in tasks, on all threads, with progress.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/cancel.h"
#include "base/thread_pool.h"
#include "checkpoint/load_counter.h"
#include "weights/tasks_that_throw.h"

namespace minim::check {

struct Reading {
    const ThreadPool* threads = nullptr;
    const checkpoint::Progress* progress = nullptr;
    const CancelToken* cancel = nullptr;
    bool is_quick = false;  // 16 MiB in place of all
};

// Calls task(i) for each i in [0, n_tasks) on all threads, in groups; between two of them the caller may cancel. bytes(i): what task i
// reads. Throws what a task throws, and cancelled.
template <typename Bytes, typename Task>
void run_in_groups(const Reading& reading, int64_t n_tasks, const Bytes& bytes, const Task& task) {
    uint64_t total = 0;
    for (int64_t i = 0; i < n_tasks; ++i) total += bytes(i);
    const checkpoint::Progress none;
    checkpoint::LoadCounter counter(total, reading.progress != nullptr ? *reading.progress : none,
                                    reading.cancel);
    const int64_t n_group = 4 * int64_t{reading.threads->n_threads()};
    for (int64_t first = 0; first < n_tasks; first += n_group) {
        const int64_t n = std::min(n_group, n_tasks - first);
        weights::FirstError error;
        reading.threads->run(n, [&](int64_t i, int32_t) { error.run([&] { task(first + i); }); });
        error.rethrow();
        for (int64_t i = first; i < first + n; ++i) counter.add(bytes(i));
    }
}

}  // namespace minim::check
