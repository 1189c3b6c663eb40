// SPDX-License-Identifier: Apache-2.0
// Whether a launcher of parallel programs (mpirun, mpiexec, srun) has started this process, and with how many others.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace minim::ranks {

struct Launch {
    int32_t process = 0;  // the number of this process
    int32_t size = 1;     // processes; 1: no launcher, or one that started one process
    int32_t local =
        0;  // the number of this process among those of its machine; 0 if the launcher does not say
};

// Returns the value of an environment variable; null: it is not set.
using Environment = std::function<const char*(const char* name)>;

// Throws invalid if a launcher's variables are no numbers, or contradict one another.
Launch find_launch(const Environment& environment);
Launch find_launch();

}  // namespace minim::ranks
