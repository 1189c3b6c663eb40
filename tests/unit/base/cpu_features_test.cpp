// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/helpers.h"
#include "support/setting.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr CpuLevel k_levels[] = {CpuLevel::scalar, CpuLevel::avx2, CpuLevel::avx2_vnni, CpuLevel::avx512,
                                 CpuLevel::avx512_vbmi};

}  // namespace

TEST_CASE("levels are ordered, each above those it contains") {
    for (size_t i = 1; i < std::size(k_levels); ++i) CHECK(k_levels[i - 1] < k_levels[i]);
    for (size_t i = 1; i < std::size(k_levels); ++i) {
        const CpuLevel contained = k_levels[i] == CpuLevel::avx512 ? CpuLevel::avx2 : k_levels[i - 1];
        if (has_cpu_level(k_levels[i])) CHECK(has_cpu_level(contained) == is_built(contained));
    }
}

TEST_CASE("the levels of a processor are scalar and more, the detected one last") {
    const std::vector<CpuLevel> levels = cpu_levels();
    CHECK(levels.front() == CpuLevel::scalar);
    CHECK(levels.back() == detected_cpu_level());
    CHECK(std::ranges::is_sorted(levels));
    for (const CpuLevel level : k_levels)
        CHECK(has_cpu_level(level) == (std::ranges::count(levels, level) == 1));
}

TEST_CASE("levels have the names that MINIM_CPU takes") {
    CHECK(to_string(CpuLevel::scalar) == "scalar");
    CHECK(to_string(CpuLevel::avx2) == "avx2");
    CHECK(to_string(CpuLevel::avx2_vnni) == "avx2_vnni");
    CHECK(to_string(CpuLevel::avx512) == "avx512");
    CHECK(to_string(CpuLevel::avx512_vbmi) == "avx512_vbmi");
}

TEST_CASE("MINIM_CPU chooses among the levels of the CPU") {
    for (const CpuLevel level : k_levels) {
        const std::string name(to_string(level));
        const Setting variable("MINIM_CPU", name.c_str());
        INFO(name);
        if (has_cpu_level(level)) {
            CHECK(active_cpu_level() == level);
        } else {
            expect_error(Status::unsupported, name, [] { active_cpu_level(); });
        }
    }
}

TEST_CASE("an empty MINIM_CPU means the detected level") {
    const Setting variable("MINIM_CPU", "");
    CHECK(active_cpu_level() == detected_cpu_level());
}

TEST_CASE("another name in MINIM_CPU is invalid") {
    for (const char* name : {"AVX2", "avx", "avx512 ", "neon"}) {
        const Setting variable("MINIM_CPU", name);
        expect_error(Status::invalid, name, [] { active_cpu_level(); });
    }
}

TEST_CASE("usable cores are at least one and no more than the processors allowed") {
    cpu_set_t allowed;
    REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    CHECK(usable_core_count() >= 1);
    CHECK(usable_core_count() <= CPU_COUNT(&allowed));
}
