// SPDX-License-Identifier: Apache-2.0
#include "cuda/debug.h"

#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {

TEST_CASE("MINIM_CUDA_DEBUG: each word takes one part away, others are refused by name") {
    const cuda::DebugSwitches all = cuda::parse_debug_switches("");
    CHECK((all.early && all.prefetch && all.fold && all.record && all.library && !all.sync));
    CHECK_FALSE(cuda::parse_debug_switches("no-fold").fold);
    CHECK_FALSE(cuda::parse_debug_switches("no-early").early);
    CHECK(cuda::parse_debug_switches("no-early").record);
    const cuda::DebugSwitches three = cuda::parse_debug_switches("no-prefetch,no-record,no-library");
    CHECK((three.early && !three.prefetch && !three.record && !three.library && !three.sync));
    const cuda::DebugSwitches sync = cuda::parse_debug_switches("sync,");
    CHECK((sync.sync && !sync.record && sync.early));
    expect_error(Status::invalid, "'no-erly'", [] { cuda::parse_debug_switches("sync,no-erly"); });
}

}  // namespace minim::test
