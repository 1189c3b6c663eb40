// SPDX-License-Identifier: Apache-2.0
#include "base/cache.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace minim {

void evict_from_caches(std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
    constexpr size_t k_line = 64;
    for (size_t at = 0; at < bytes.size(); at += k_line) _mm_clflush(bytes.data() + at);
    if (!bytes.empty()) _mm_clflush(bytes.data() + bytes.size() - 1);
    _mm_mfence();
#else
    static_cast<void>(bytes);
#endif
}

}  // namespace minim
