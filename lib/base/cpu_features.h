// What the processor can do, found once; and how many threads the process may use.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace minim {

// Instruction-set levels with kernels of their own, the better ones last. A processor that has one has those before it too, but
// for avx2_vnni: processors with AVX-512 may be without.
enum class CpuLevel : int32_t {
    scalar = 0,       // any processor
    avx2 = 1,         // AVX2, FMA, F16C
    avx2_vnni = 2,    // the same with AVX-VNNI: dots of bytes in one instruction
    avx512 = 3,       // AVX-512 F, BW, DQ, VL and VNNI
    avx512_vbmi = 4,  // the same with VBMI and GFNI: permutations of bytes across a register
};

// Whether this processor and operating system have a level.
bool has_cpu_level(CpuLevel level) noexcept;

// All that they have, the best one last.
std::vector<CpuLevel> cpu_levels();

// The best of them.
CpuLevel detected_cpu_level() noexcept;

// The level kernels are taken from: the detected one, or another one that is there, named by the environment variable
// MINIM_CPU (scalar, avx2, avx2_vnni, avx512, avx512_vbmi). Throws invalid for any other name,
// unsupported for a level that this machine has not.
CpuLevel active_cpu_level();

std::string_view to_string(CpuLevel level) noexcept;

// Whether the processor fetches memory ahead by itself for loops that read from front to back with dozens of load instructions.
// Zen 5 does it for few: where 36 loads walk through a block of 2,304 bytes, it gives a third of what it gives to one load
// or to requests (tests/bench/RESULTS.md). Others are taken to do it.
bool prefetches_unrolled_loads() noexcept;

// Physical cores this process may run on: the scheduler's affinity mask and the control group's quota both
// count.
int32_t usable_core_count() noexcept;

// The same cores by number, ascending: of each one logical processor. The quota does not count.
std::vector<int> usable_cores();

}  // namespace minim
