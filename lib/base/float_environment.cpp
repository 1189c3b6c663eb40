// SPDX-License-Identifier: Apache-2.0
#include "base/float_environment.h"

#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace minim {
namespace {

#if defined(__x86_64__)
constexpr std::string_view k_outputs = "FTZ", k_inputs = "DAZ", k_both = "FTZ and DAZ";
constexpr uint64_t k_flushes_outputs = 1U << 15, k_flushes_inputs = 1U << 6;

uint64_t control_bits() noexcept {
    return _mm_getcsr();
}
#elif defined(__aarch64__)
constexpr std::string_view k_outputs = "FZ", k_inputs = "FIZ", k_both = "FZ and FIZ";
constexpr uint64_t k_flushes_outputs = 1U << 24, k_flushes_inputs = 1U << 0;

uint64_t control_bits() noexcept {
    uint64_t bits = 0;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
}
#else
constexpr std::string_view k_outputs, k_inputs, k_both;
constexpr uint64_t k_flushes_outputs = 0, k_flushes_inputs = 0;

uint64_t control_bits() noexcept {
    return 0;
}
#endif

}  // namespace

std::string_view flushing_bits() noexcept {
    const uint64_t bits = control_bits();
    const bool outputs = (bits & k_flushes_outputs) != 0;
    const bool inputs = (bits & k_flushes_inputs) != 0;
    if (outputs && inputs) return k_both;
    if (outputs) return k_outputs;
    return inputs ? k_inputs : std::string_view();
}

}  // namespace minim
