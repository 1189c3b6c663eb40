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

TEST_CASE("MINIM_CUDA_PATHS: each word enables one path, others are refused by name") {
    const cuda::LaunchPaths none = cuda::parse_launch_paths("");
    CHECK((!none.two_tables && !none.chosen_places && !none.dense_prompts && !none.tiles &&
           !none.exchange_pieces && !none.stream));
    CHECK(cuda::parse_launch_paths("stream").stream);
    CHECK(cuda::parse_launch_paths("exchange-pieces").exchange_pieces);
    const cuda::LaunchPaths one = cuda::parse_launch_paths("chosen-places");
    CHECK((!one.two_tables && one.chosen_places && !one.dense_prompts));
    const cuda::LaunchPaths two = cuda::parse_launch_paths("two-tables,dense-prompts,");
    CHECK((two.two_tables && !two.chosen_places && two.dense_prompts && !two.tiles));
    CHECK(cuda::parse_launch_paths("tiles").tiles);
    expect_error(Status::invalid, "'two-table'", [] { cuda::parse_launch_paths("dense-prompts,two-table"); });
}

}  // namespace minim::test
