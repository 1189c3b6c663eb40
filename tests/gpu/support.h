// A device for the tests of the CUDA backend: a GPU in gpu_test, host memory in gpu_on_host_test.
#pragma once

#include <cstdio>

#include "cuda/runtime.h"

namespace minim::test {

// Says so, in the words that CTest takes for "skipped", where there is none.
inline bool has_devices(size_t count) {
    size_t n_usable = 0;
    for (const backend::DeviceInfo& device : cuda::runtime::devices())
        if (device.why_not.empty()) ++n_usable;
    if (n_usable >= count) return true;
    std::printf("skipped: %zu CUDA devices are needed, %zu are usable\n", count, n_usable);
    return false;
}

}  // namespace minim::test
