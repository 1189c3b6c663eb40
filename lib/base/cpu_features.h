// SPDX-License-Identifier: Apache-2.0
// Features of the CPU, detected once, and the number of threads that the process may use.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minim {

// Instruction-set levels with kernels of their own, the better ones last. A CPU that has a level also has the levels before it,
// except avx2_vnni, which CPUs with AVX-512 may lack. All but scalar belong to one architecture.
enum class CpuLevel : int32_t {
    scalar = 0,  // any CPU
    // x86-64
    avx2 = 1,         // AVX2, FMA, F16C
    avx2_vnni = 2,    // the same with AVX-VNNI: dots of bytes in one instruction
    avx512 = 3,       // AVX-512 F, BW, DQ, VL and VNNI
    avx512_vbmi = 4,  // the same with VBMI and GFNI: permutations of bytes across a register
    // aarch64
    neon_dotprod = 5,  // FEAT_DotProd: dots of bytes in one instruction
    neon_i8mm = 6,     // the same with FEAT_I8MM: products of small matrices of bytes
};

// Returns the levels of the architecture that this build is for, the better ones last. Not every CPU has them.
std::span<const CpuLevel> architecture_cpu_levels() noexcept;

// Returns whether this build has the kernels of a level (the CMake option MINIM_CPU_LEVELS).
bool is_built(CpuLevel level) noexcept;

// Returns whether this CPU, its operating system and this build have a level.
bool has_cpu_level(CpuLevel level) noexcept;

// Returns all levels that this machine and this build have, the best one last.
std::vector<CpuLevel> cpu_levels();

// Returns the best of cpu_levels().
CpuLevel detected_cpu_level();

// Returns the level whose kernels are used: the detected one, or the one that the environment variable MINIM_CPU names
// (scalar; avx2, avx2_vnni, avx512, avx512_vbmi on x86-64; neon_dotprod, neon_i8mm on aarch64). Throws invalid for any other name,
// unsupported for a level that this machine or this build does not have.
CpuLevel active_cpu_level();

std::string_view to_string(CpuLevel level) noexcept;

// Returns whether the hardware prefetcher follows loops that read forward with dozens of load instructions. The prefetcher of
// Zen 5 does not: 36 loads that walk through a block of 2,304 bytes reach a third of the bandwidth of a single load, or of
// software prefetch. Other CPUs are assumed to follow such loops.
bool prefetches_unrolled_loads() noexcept;

// Returns whether the CPU has CLFLUSHOPT, which takes a line out of all caches.
bool has_clflushopt() noexcept;

// Returns the number of physical cores that this process may use. The affinity mask and the control group's quota both
// limit it.
int32_t usable_core_count() noexcept;

// Returns how many of these cores are big ones, if the CPU has cores of several speeds (big.LITTLE); else all of them.
int32_t usable_big_core_count() noexcept;

// Returns the physical cores that the affinity mask allows: the number of one logical CPU of each, ascending. Ignores the quota.
std::vector<int> usable_cores();

// Returns the physical cores of these logical CPUs, ascending, from the system's description in `folder` (/sys/devices/system/cpu). A
// core is its first CPU among them.
std::vector<int> cores_of(std::span<const int> cpus, const std::string& folder);

// Returns those of the cores that have at least 0.7 of the largest cpu_capacity among them; all where the system does not tell.
std::vector<int> big_cores_of(std::span<const int> cores, const std::string& folder);

}  // namespace minim
