// SPDX-License-Identifier: Apache-2.0
// A device for the tests of the CUDA backend: a GPU in gpu_test, host memory in gpu_on_host_test.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "cuda/runtime.h"
#include "support/catch.h"

namespace minim::test {

// Returns whether there are `count` usable devices. If not, prints the words that CTest takes for "skipped". A device
// that run.sh has seen and an earlier test has lost is no reason to skip.
inline bool has_devices(size_t count) {
    size_t n_usable = 0;
    for (const backend::DeviceInfo& device : cuda::runtime::devices())
        if (device.why_not.empty()) ++n_usable;
    const char* seen = std::getenv("MINIM_GPUS_SEEN");
    INFO(n_usable << " CUDA devices are usable");
    if (seen != nullptr) REQUIRE(n_usable >= std::strtoull(seen, nullptr, 10));
    if (n_usable >= count) return true;
    std::printf("skipped: %zu CUDA devices are needed, %zu are usable\n", count, n_usable);
    return false;
}

}  // namespace minim::test
