// SPDX-License-Identifier: Apache-2.0
// What the runtime on the host lets tests see: work that a stream records instead of doing it, which is what a CUDA
// graph is, how often memory is taken, and how many copies are on their way at once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace minim::test {

struct RecordedWork {
    std::vector<std::function<void()>> work;
    bool has_early_kernel = false;  // one that starts early
    bool waits_for_host = false;    // one that does not end before another thread has done its part
};

// Where this thread's work goes; null: it is done.
inline RecordedWork*& recording() {
    static thread_local RecordedWork* work = nullptr;
    return work;
}

struct Records {
    int64_t n_repeats = 0;       // records started
    bool refuse = false;         // none can be begun
    bool fail = false;           // none can be ended
    bool refuse_early = false;   // none with a kernel that starts early can be ended
    bool spoil = false;          // what is recorded meets an error
    bool no_room = false;        // none can be started
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

// What runtime::use() said of this thread's launches.
inline bool& starts_early() {
    static thread_local bool early = true;
    return early;
}

// Records that have been made and not been ended.
inline int64_t& graphs_held() {
    static int64_t count = 0;
    return count;
}

// Blocks of device and of pinned host memory that were taken from the runtime so far.
inline int64_t& blocks_taken() {
    static int64_t count = 0;
    return count;
}

// Copies of streams from the host to a device.
inline int64_t& copies_to_device() {
    static int64_t count = 0;
    return count;
}

// Copies from pinned memory that were put off at a time.
inline size_t& most_late_copies() {
    static size_t count = 0;
    return count;
}

// Whether there is no pinned memory to be had.
inline bool& refuses_pinned() {
    static bool refuses = false;
    return refuses;
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

// Does this thread's kernels that are not done yet (Emulation::starts_early).
void finish_kernels();

}  // namespace minim::test
