// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>

#include <asm/hwcap.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string>

#include "base/control_groups.h"
#include "base/error.h"
#include "base/format_text.h"

namespace minim {
namespace {

// The names of all levels, by number.
constexpr std::string_view k_names[] = {"scalar",      "avx2",         "avx2_vnni", "avx512",
                                        "avx512_vbmi", "neon_dotprod", "neon_i8mm"};

// The levels of this architecture.
constexpr CpuLevel k_levels[] = {
    CpuLevel::scalar,
#if defined(__x86_64__)
    CpuLevel::avx2,   CpuLevel::avx2_vnni, CpuLevel::avx512, CpuLevel::avx512_vbmi,
#elif defined(__aarch64__)
    CpuLevel::neon_dotprod,
    CpuLevel::neon_i8mm,
#endif
};

// Returns the first number in a file of the system's description of a CPU; -1 if there is none.
int32_t read_number(const std::string& folder, int cpu, const char* leaf) noexcept {
    char path[256];
    std::snprintf(path, sizeof(path), "%s/cpu%d/%s", folder.c_str(), cpu, leaf);
    std::FILE* file = std::fopen(path, "re");
    if (file == nullptr) return -1;
    int value = -1;
    if (std::fscanf(file, "%d", &value) != 1) value = -1;
    std::fclose(file);
    return value;
}

constexpr const char* k_cpu_folder = "/sys/devices/system/cpu";

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
constexpr LevelSet k_built =
    only(CpuLevel::scalar) | MINIM_HAS_AVX2 * only(CpuLevel::avx2) |
    MINIM_HAS_AVX2_VNNI * only(CpuLevel::avx2_vnni) | MINIM_HAS_AVX512 * only(CpuLevel::avx512) |
    MINIM_HAS_AVX512_VBMI * only(CpuLevel::avx512_vbmi) |
    MINIM_HAS_NEON_DOTPROD * only(CpuLevel::neon_dotprod) | MINIM_HAS_NEON_I8MM * only(CpuLevel::neon_i8mm);

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
#elif defined(__aarch64__)
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) return found;
    found |= only(CpuLevel::neon_dotprod);
    if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) found |= only(CpuLevel::neon_i8mm);
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

std::span<const CpuLevel> architecture_cpu_levels() noexcept {
    return k_levels;
}

std::vector<CpuLevel> cpu_levels() {
    std::vector<CpuLevel> levels;
    std::ranges::copy_if(k_levels, std::back_inserter(levels), has_cpu_level);
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
    for (const CpuLevel level : k_levels) {
        const std::string_view name = to_string(level);
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
    std::string known;
    for (const CpuLevel level : k_levels)
        known += format_text("{}{}", known.empty() ? "" : ", ", to_string(level));
    fail(Status::invalid, "MINIM_CPU is '{}'; it can be {}", wanted, known);
}

std::string_view to_string(CpuLevel level) noexcept {
    return k_names[static_cast<size_t>(level)];
}

std::vector<int> cores_of(std::span<const int> cpus, const std::string& folder) {
    std::vector<int> cores;
    std::set<int32_t> seen;  // the first CPU of each core; hyper-threads of a core count once
    for (const int cpu : cpus) {
        // core_id would not do: with a device tree it restarts in each cluster, without another package.
        int32_t first = read_number(folder, cpu, "topology/core_cpus_list");
        if (first < 0) first = read_number(folder, cpu, "topology/thread_siblings_list");
        if (first < 0 || seen.insert(first).second) cores.push_back(cpu);
    }
    return cores;
}

std::vector<int> big_cores_of(std::span<const int> cores, const std::string& folder) {
    constexpr double k_min_part =
        0.7;  // of the largest capacity: DynamIQ's middle cores are big, little ones have a third or a half
    std::vector<int32_t> capacity;
    for (const int core : cores) capacity.push_back(read_number(folder, core, "cpu_capacity"));
    const bool is_told = !capacity.empty() && std::ranges::min(capacity) >= 0;
    const double limit = is_told ? k_min_part * std::ranges::max(capacity) : -1.0;
    std::vector<int> big;
    for (size_t i = 0; i < cores.size(); ++i)
        if (capacity[i] >= limit) big.push_back(cores[i]);
    return big;
}

std::vector<int> usable_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    return cores_of(cpus, k_cpu_folder);
}

int32_t usable_big_core_count() noexcept {
    try {
        const std::vector<int> big = big_cores_of(usable_cores(), k_cpu_folder);
        return std::clamp(static_cast<int32_t>(big.size()), 1, usable_core_count());
    } catch (...) {
        return 1;
    }
}

int32_t usable_core_count() noexcept {
    try {
        return std::max(1, std::min(static_cast<int32_t>(usable_cores().size()), control_group_cores()));
    } catch (...) {
        return 1;
    }
}

}  // namespace minim
