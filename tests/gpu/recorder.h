// Work that a stream records instead of doing it, on the host: what a CUDA graph is.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace minim::test {

using RecordedWork = std::vector<std::function<void()>>;

// Where this thread's work goes; null: it is done.
inline RecordedWork*& recording() {
    static thread_local RecordedWork* work = nullptr;
    return work;
}

struct Records {
    int64_t n_repeats = 0;  // records started
    bool refuse = false;    // none can be begun
    bool fail = false;      // none can be ended
};
inline Records& records() {
    static Records records;
    return records;
}

template <typename Work>
void do_or_record(const Work& work) {
    if (recording() != nullptr) {
        recording()->push_back(work);
    } else {
        work();
    }
}

}  // namespace minim::test
