// SPDX-License-Identifier: Apache-2.0
#include "base/read_bandwidth.h"

#include "support/catch.h"

using namespace minim;

TEST_CASE("memory is read at a speed that a machine can have, by one thread and by several") {
    for (const int32_t n_threads : {1, 2}) {
        const ThreadPool pool(n_threads);
        const ReadBandwidth bandwidth(pool, uint64_t{8} << 20);
        for (int round = 0; round < 3; ++round) {
            const double speed = bandwidth.measure();
            CHECK(speed > 1e7);
            CHECK(speed < 1e13);
        }
    }
}
