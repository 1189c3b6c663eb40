// SPDX-License-Identifier: Apache-2.0
#include "base/float_environment.h"

#include <cstdint>
#include <string_view>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "support/catch.h"

using namespace minim;

namespace {

#if defined(__x86_64__)
constexpr uint64_t k_outputs = 0x8000;
constexpr std::string_view k_name = "FTZ";

uint64_t bits() {
    return _mm_getcsr();
}
void set_bits(uint64_t value) {
    _mm_setcsr(static_cast<unsigned>(value));
}
#elif defined(__aarch64__)
constexpr uint64_t k_outputs = uint64_t{1} << 24;
constexpr std::string_view k_name = "FZ";

uint64_t bits() {
    uint64_t value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
}
void set_bits(uint64_t value) {
    asm volatile("msr fpcr, %0" ::"r"(value));
}
#endif

}  // namespace

TEST_CASE("subnormal numbers are not flushed unless the thread asks for it, and its threads inherit that") {
    CHECK(flushing_bits().empty());
#if defined(__x86_64__) || defined(__aarch64__)
    const uint64_t before = bits();
    set_bits(before | k_outputs);
    const std::string_view here = flushing_bits();
    std::string_view there;
    std::thread([&] { there = flushing_bits(); }).join();
    set_bits(before);
    CHECK(here == k_name);
    CHECK(there == k_name);
#endif
#if defined(__x86_64__)
    set_bits(before | 0x40);
    const std::string_view inputs = flushing_bits();
    set_bits(before | 0x8040);
    const std::string_view both = flushing_bits();
    set_bits(before);
    CHECK(inputs == "DAZ");
    CHECK(both == "FTZ and DAZ");
#endif
    CHECK(flushing_bits().empty());
}
