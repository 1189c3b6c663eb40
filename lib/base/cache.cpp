// SPDX-License-Identifier: Apache-2.0
#include "base/cache.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "base/cpu_features.h"

namespace minim {
namespace {

#if defined(__x86_64__)
constexpr size_t k_line = 64;

[[gnu::target("clflushopt")]] void flush_unordered(std::span<const std::byte> bytes) noexcept {
    for (size_t at = 0; at < bytes.size(); at += k_line)
        _mm_clflushopt(const_cast<std::byte*>(bytes.data()) + at);
}

void flush(std::span<const std::byte> bytes) noexcept {
    for (size_t at = 0; at < bytes.size(); at += k_line) _mm_clflush(bytes.data() + at);
}
#elif defined(__aarch64__)
// Returns the bytes of the smallest line of the data caches.
size_t data_line_bytes() noexcept {
    uint64_t type = 0;
    asm volatile("mrs %0, ctr_el0" : "=r"(type));
    return size_t{4} << (type >> 16 & 15);  // CTR_EL0.DminLine: log2 of the number of words
}
#endif

}  // namespace

void evict_from_caches(std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
    // CLFLUSHOPT takes 2 ms for 32 MiB. CLFLUSH takes 70, because each waits for the one before.
    static const bool k_has_clflushopt = has_clflushopt();
    if (k_has_clflushopt)
        flush_unordered(bytes);
    else
        flush(bytes);
    if (!bytes.empty()) _mm_clflush(bytes.data() + bytes.size() - 1);
    _mm_mfence();
#elif defined(__aarch64__)
    static const size_t k_line = data_line_bytes();
    const auto first = reinterpret_cast<uintptr_t>(bytes.data());
    for (uintptr_t at = first / k_line * k_line; at < first + bytes.size(); at += k_line)
        asm volatile("dc civac, %0" ::"r"(at) : "memory");
    asm volatile("dsb ish" ::: "memory");
#else
    static_cast<void>(bytes);
#endif
}

}  // namespace minim
