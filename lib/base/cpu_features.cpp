// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/control_groups.h"
#include "base/error.h"

namespace minim {
namespace {

constexpr std::pair<CpuLevel, std::string_view> k_levels[] = {
    {CpuLevel::scalar, "scalar"},           {CpuLevel::avx2, "avx2"},
    {CpuLevel::avx2_vnni, "avx2_vnni"},     {CpuLevel::avx512, "avx512"},
    {CpuLevel::avx512_vbmi, "avx512_vbmi"},
};

int32_t read_topology(int cpu, const char* leaf) noexcept {
    char path[128];
    std::snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, leaf);
    std::FILE* file = std::fopen(path, "re");
    if (file == nullptr) return -1;
    int value = -1;
    if (std::fscanf(file, "%d", &value) != 1) value = -1;
    std::fclose(file);
    return value;
}

#if defined(__x86_64__)
struct Registers {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
};

// Returns the answer of CPUID; zeros if the CPU does not have the leaf. __builtin_cpu_supports does not know some names in
// clang 14.
Registers cpuid(unsigned leaf, unsigned subleaf) noexcept {
    Registers r;
    if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
    return r;
}

bool has_f16c() noexcept {
    return (cpuid(1, 0).ecx & bit_F16C) != 0;
}

bool has_avx_vnni() noexcept {
    return (cpuid(7, 1).eax & bit_AVXVNNI) != 0;
}
#endif

// A set of levels: bit i stands for level i.
using LevelSet = uint32_t;

constexpr LevelSet only(CpuLevel level) {
    return LevelSet{1} << static_cast<int32_t>(level);
}

// The levels whose kernels are built.
constexpr LevelSet k_built = only(CpuLevel::scalar) | MINIM_HAS_AVX2 * only(CpuLevel::avx2) |
                             MINIM_HAS_AVX2_VNNI * only(CpuLevel::avx2_vnni) |
                             MINIM_HAS_AVX512 * only(CpuLevel::avx512) |
                             MINIM_HAS_AVX512_VBMI * only(CpuLevel::avx512_vbmi);

// Returns the levels of the CPU. Executes CPUID, which takes microseconds in a virtual machine.
LevelSet find_cpu_levels() noexcept {
    LevelSet found = only(CpuLevel::scalar);
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return found;
    found |= only(CpuLevel::avx2);
    if (has_avx_vnni()) found |= only(CpuLevel::avx2_vnni);
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512vnni")) {
        return found;
    }
    found |= only(CpuLevel::avx512);
    const bool permutes = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
    if (permutes) found |= only(CpuLevel::avx512_vbmi);
#endif
    return found;
}

bool is_zen5() noexcept {
#if defined(__x86_64__)
    // AMD's manual of CPUID, 0000_0001 EAX: the family is the base family, plus the extended family if the base family is 15.
    // The extended family of Zen 5 is 11.
    if (!__builtin_cpu_is("amd")) return false;
    const unsigned eax = cpuid(1, 0).eax;
    const unsigned family = (eax >> 8 & 15) + (eax >> 20 & 255);
    return family == 26;
#else
    return false;
#endif
}

}  // namespace

bool is_built(CpuLevel level) noexcept {
    return (k_built & only(level)) != 0;
}

bool has_cpu_level(CpuLevel level) noexcept {
    static const LevelSet k_found = find_cpu_levels() & k_built;
    return (k_found & only(level)) != 0;
}

std::vector<CpuLevel> cpu_levels() {
    std::vector<CpuLevel> levels;
    for (const auto& [level, name] : k_levels) {
        if (has_cpu_level(level)) levels.push_back(level);
    }
    return levels;
}

CpuLevel detected_cpu_level() {
    return cpu_levels().back();
}

bool prefetches_unrolled_loads() noexcept {
    static const bool k_does = !is_zen5();
    return k_does;
}

bool has_clflushopt() noexcept {
#if defined(__x86_64__)
    return (cpuid(7, 0).ebx & bit_CLFLUSHOPT) != 0;
#else
    return false;
#endif
}

CpuLevel active_cpu_level() {
    const CpuLevel detected = detected_cpu_level();
    const char* wanted = std::getenv("MINIM_CPU");
    if (wanted == nullptr || *wanted == '\0') return detected;
    for (const auto& [level, name] : k_levels) {
        if (name != wanted) continue;
        if (!is_built(level)) {
            fail(Status::unsupported, "MINIM_CPU asks for {}, which this build leaves out (MINIM_CPU_LEVELS)",
                 name);
        }
        if (!has_cpu_level(level)) {
            fail(Status::unsupported, "MINIM_CPU asks for {}, but this CPU has {}", name,
                 to_string(detected));
        }
        return level;
    }
    fail(Status::invalid, "MINIM_CPU is '{}'; it can be scalar, avx2, avx2_vnni, avx512 or avx512_vbmi",
         wanted);
}

std::string_view to_string(CpuLevel level) noexcept {
    return k_levels[static_cast<size_t>(level)].second;
}

std::vector<int> usable_cores() {
    std::vector<int> cores;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
    std::set<std::pair<int32_t, int32_t>> seen;  // (package, core): hyper-threads of a core count once
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        const int32_t core = read_topology(cpu, "core_id");
        const bool is_new = core < 0 || seen.emplace(read_topology(cpu, "physical_package_id"), core).second;
        if (is_new) cores.push_back(cpu);
    }
    return cores;
}

int32_t usable_core_count() noexcept {
    try {
        return std::max(1, std::min(static_cast<int32_t>(usable_cores().size()), control_group_cores()));
    } catch (...) {
        return 1;
    }
}

}  // namespace minim
