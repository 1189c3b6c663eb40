// SPDX-License-Identifier: Apache-2.0
// What the runtime on the host lets tests see: the work that a stream records instead of doing it (as in a CUDA graph),
// how often memory is allocated, and how many copies are under way at once.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <vector>

namespace minim::test {

struct RecordedWork {
    std::vector<std::function<void()>> work;
    bool has_early_kernel = false;  // one that starts early
    bool waits_for_host = false;    // one that does not end before another thread has done its part
};

// The recorder of this thread's work; null: work is done at once.
inline RecordedWork*& recording() {
    static thread_local RecordedWork* work = nullptr;
    return work;
}

struct Records {
    int64_t n_repeats = 0;       // records started
    bool refuse = false;         // no record can be begun
    bool fail = false;           // no record can be ended
    bool refuse_early = false;   // no record with a kernel that starts early can be ended
    bool spoil = false;          // the recorded work meets an error
    bool no_room = false;        // no record can be started
    int64_t fail_at_repeat = 0;  // the start of a record that fails, the first being 1
    int64_t n_asked = 0;         // starts of records, whether or not they failed
};
inline Records& records() {
    static Records records;
    return records;
}

struct DeviceErrors {
    const char* of_launch = nullptr;  // of the next kernel that is started
    bool is_lost = false;             // errors are those of a device that is lost
};
inline DeviceErrors& device_errors() {
    static DeviceErrors errors;
    return errors;
}

// The kernels of cuda/fast/ that this thread has launched or recorded so far.
inline int64_t& kernels_launched() {
    static thread_local int64_t count = 0;
    return count;
}

// Those of them that compute dots by tables (cuda/fast/table_dots.h).
inline int64_t& kernels_by_tables() {
    static thread_local int64_t count = 0;
    return count;
}

// Those of them whose blocks run together.
inline int64_t& kernels_together() {
    static thread_local int64_t count = 0;
    return count;
}

// Whether this thread's launches may start early, as set by runtime::use().
inline bool& starts_early() {
    static thread_local bool early = true;
    return early;
}

// Records that have been made and not been ended.
inline int64_t& graphs_stored() {
    static int64_t count = 0;
    return count;
}

// Blocks of device and of pinned host memory that were taken from the runtime so far.
inline int64_t& blocks_taken() {
    static int64_t count = 0;
    return count;
}

// The number of copies that streams have made from the host to a device.
inline int64_t& copies_to_device() {
    static int64_t count = 0;
    return count;
}

// The maximum number of copies from pinned memory that were postponed at a time.
inline size_t& most_late_copies() {
    static size_t count = 0;
    return count;
}

// Whether allocations of pinned memory fail.
inline bool& refuses_pinned() {
    static bool refuses = false;
    return refuses;
}

// The work that this thread's stream does on a thread of its own, as that of a library that waits for other ranks.
inline std::shared_future<void>& outside_work() {
    static thread_local std::shared_future<void> work;
    return work;
}

// The shared memory that devices give a block.
inline int64_t& block_shared_bytes() {
    static int64_t bytes = int64_t{227} << 10;
    return bytes;
}

// Whether devices have bulk copies.
inline bool& has_bulk_copies() {
    static bool has = true;
    return has;
}

// Whether all blocks of a grid can be on a device at once, of kernels that ask for it.
inline bool& blocks_run_together() {
    static bool run = true;
    return run;
}

// Whether devices reach each other's memory.
inline bool& reaches_peers() {
    static bool reaches = true;
    return reaches;
}

template <typename Work>
void do_or_record(const Work& work) {
    if (recording() != nullptr) {
        recording()->work.push_back(work);
    } else {
        work();
    }
}

inline void note_early_kernel() {
    if (recording() != nullptr && starts_early()) recording()->has_early_kernel = true;
}

inline void note_waiting_kernel() {
    if (recording() != nullptr) recording()->waits_for_host = true;
}

// Finishes this thread's kernels that are not done yet (Emulation::starts_early).
void finish_kernels();

// Does work after that of this thread's stream so far, on a thread of its own. Work that is recorded is done by the thread that
// repeats the record.
inline void do_outside(const std::function<void()>& work) {
    if (recording() != nullptr) {
        recording()->work.emplace_back([work] {
            finish_kernels();
            work();
        });
        return;
    }
    finish_kernels();
    const std::shared_future<void> before = outside_work();
    outside_work() = std::async(std::launch::async, [before, work] {
                         if (before.valid()) before.wait();
                         work();
                     }).share();
}

}  // namespace minim::test
