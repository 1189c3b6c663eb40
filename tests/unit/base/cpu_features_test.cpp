// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/helpers.h"
#include "support/setting.h"
#include "support/temporary_folder.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr CpuLevel k_all_levels[] = {CpuLevel::scalar,   CpuLevel::avx2,        CpuLevel::avx2_vnni,
                                     CpuLevel::avx512,   CpuLevel::avx512_vbmi, CpuLevel::neon_dotprod,
                                     CpuLevel::neon_i8mm};

// Writes the description of a CPU as the system has it. An empty text: no such file.
void describe_cpu(const TemporaryFolder& folder, int cpu, const std::string& core_cpus,
                  const std::string& siblings, const std::string& capacity) {
    const std::filesystem::path path = std::filesystem::path(folder.path()) / ("cpu" + std::to_string(cpu));
    std::filesystem::create_directories(path / "topology");
    const auto write = [&](const char* name, const std::string& text) {
        if (!text.empty()) std::ofstream(path / name) << text << "\n";
    };
    write("topology/core_cpus_list", core_cpus);
    write("topology/thread_siblings_list", siblings);
    write("cpu_capacity", capacity);
}

}  // namespace

TEST_CASE("levels are ordered, each above those it contains") {
    const std::span<const CpuLevel> levels = architecture_cpu_levels();
    REQUIRE(levels.front() == CpuLevel::scalar);
    for (size_t i = 1; i < levels.size(); ++i) CHECK(levels[i - 1] < levels[i]);
    for (size_t i = 1; i < levels.size(); ++i) {
        const CpuLevel contained = levels[i] == CpuLevel::avx512 ? CpuLevel::avx2 : levels[i - 1];
        if (has_cpu_level(levels[i])) CHECK(has_cpu_level(contained) == is_built(contained));
    }
}

TEST_CASE("the levels of a processor are scalar and more, the detected one last") {
    const std::vector<CpuLevel> levels = cpu_levels();
    CHECK(levels.front() == CpuLevel::scalar);
    CHECK(levels.back() == detected_cpu_level());
    CHECK(std::ranges::is_sorted(levels));
    for (const CpuLevel level : k_all_levels)
        CHECK(has_cpu_level(level) == (std::ranges::count(levels, level) == 1));
}

TEST_CASE("levels have the names that MINIM_CPU takes") {
    CHECK(to_string(CpuLevel::scalar) == "scalar");
    CHECK(to_string(CpuLevel::avx2) == "avx2");
    CHECK(to_string(CpuLevel::avx2_vnni) == "avx2_vnni");
    CHECK(to_string(CpuLevel::avx512) == "avx512");
    CHECK(to_string(CpuLevel::avx512_vbmi) == "avx512_vbmi");
    CHECK(to_string(CpuLevel::neon_dotprod) == "neon_dotprod");
    CHECK(to_string(CpuLevel::neon_i8mm) == "neon_i8mm");
}

TEST_CASE("MINIM_CPU chooses among the levels of the CPU") {
    const std::span<const CpuLevel> known = architecture_cpu_levels();
    for (const CpuLevel level : k_all_levels) {
        const std::string name(to_string(level));
        const Setting variable("MINIM_CPU", name.c_str());
        INFO(name);
        if (std::ranges::count(known, level) == 0) {
            expect_error(Status::invalid, name, [] { active_cpu_level(); });
        } else if (has_cpu_level(level)) {
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

TEST_CASE("an error of MINIM_CPU names the levels of this architecture alone") {
    const Setting variable("MINIM_CPU", "sse9");
    const auto error = error_of([] { active_cpu_level(); });
    REQUIRE(error);
    const std::span<const CpuLevel> known = architecture_cpu_levels();
    for (const CpuLevel level : k_all_levels) {
        const bool is_named =
            std::string_view(error->what()).find(to_string(level)) != std::string_view::npos;
        INFO(error->what());
        CHECK(is_named == (std::ranges::count(known, level) == 1));
    }
}

TEST_CASE("a core counts once, whatever its hyper-threads and its core_id") {
    const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
    const TemporaryFolder hyper_threads;  // x86-64: CPUs 0 and 4 are one core
    for (const int cpu : all)
        describe_cpu(hyper_threads, cpu, std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4), "", "");
    CHECK(cores_of(all, hyper_threads.path()) == std::vector<int>{0, 1, 2, 3});
    CHECK(cores_of(std::vector<int>{1, 5, 6}, hyper_threads.path()) == std::vector<int>{1, 6});

    const TemporaryFolder
        clusters;  // a device tree with two clusters of four: core_id would be 0 .. 3 in both
    for (const int cpu : all) describe_cpu(clusters, cpu, std::to_string(cpu), "", "");
    CHECK(cores_of(all, clusters.path()) == all);

    const TemporaryFolder old_kernel;
    for (const int cpu : all)
        describe_cpu(old_kernel, cpu, "", std::to_string(cpu / 2 * 2) + "-" + std::to_string(cpu / 2 * 2 + 1),
                     "");
    CHECK(cores_of(all, old_kernel.path()) == std::vector<int>{0, 2, 4, 6});

    const TemporaryFolder empty;  // without a description every CPU is a core
    CHECK(cores_of(all, empty.path()) == all);
}

TEST_CASE("big cores have at least 0.7 of the largest capacity") {
    const std::vector<int> all = {0, 1, 2, 3, 4, 5};
    const TemporaryFolder three_kinds;  // little, middle and large cores
    const char* const capacities[] = {"380", "380", "717", "1024", "716", "1024"};
    for (const int cpu : all) describe_cpu(three_kinds, cpu, std::to_string(cpu), "", capacities[cpu]);
    CHECK(big_cores_of(all, three_kinds.path()) == std::vector<int>{2, 3, 5});
    CHECK(big_cores_of(std::vector<int>{0, 1}, three_kinds.path()) == std::vector<int>{0, 1});

    const TemporaryFolder equal;  // x86-64, and servers: no cpu_capacity
    for (const int cpu : all) describe_cpu(equal, cpu, std::to_string(cpu), "", "");
    CHECK(big_cores_of(all, equal.path()) == all);
    CHECK(big_cores_of({}, equal.path()).empty());
}

TEST_CASE("big cores are some of the usable ones") {
    CHECK(usable_big_core_count() >= 1);
    CHECK(usable_big_core_count() <= usable_core_count());
}

TEST_CASE("usable cores are at least one and no more than the processors allowed") {
    cpu_set_t allowed;
    REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    CHECK(usable_core_count() >= 1);
    CHECK(usable_core_count() <= CPU_COUNT(&allowed));
}
