// SPDX-License-Identifier: Apache-2.0
#include "base/read_bandwidth.h"

#include <chrono>
#include <cstring>
#include <vector>

#include "base/cache.h"
#include "base/cpu_features.h"

namespace minim {
namespace {

constexpr int64_t k_piece = 256 << 10;

// Reads a piece in the widest vectors of the machine: with narrower vectors, this loop may be slower than a kernel. Has eight
// sums, so that no addition waits for another. Inlined into functions that have the target's vectors: GCC passes vectors that the
// target lacks through the stack.
template <typename Words>
[[gnu::always_inline]] inline uint64_t sum_of_words(const std::byte* piece) {
    constexpr int64_t k_step = 8 * static_cast<int64_t>(sizeof(Words));
    static_assert(k_piece % k_step == 0);
    Words sums[8] = {};
    for (int64_t at = 0; at < k_piece; at += k_step) {
        for (size_t k = 0; k < 8; ++k) {
            Words words;
            std::memcpy(&words, piece + at + k * sizeof(Words), sizeof(Words));
            sums[k] += words;
        }
    }
    Words both = {};
    for (const Words& sum : sums) both += sum;
    uint64_t total = 0;
    for (size_t k = 0; k < sizeof(Words) / sizeof(uint64_t); ++k) total += both[k];
    return total;
}

uint64_t sum_of_16(const std::byte* piece) {
    using Words = uint64_t __attribute__((vector_size(16)));
    return sum_of_words<Words>(piece);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] uint64_t sum_of_32(const std::byte* piece) {
    using Words = uint64_t __attribute__((vector_size(32)));
    return sum_of_words<Words>(piece);
}
[[gnu::target("avx512f")]] uint64_t sum_of_64(const std::byte* piece) {
    using Words = uint64_t __attribute__((vector_size(64)));
    return sum_of_words<Words>(piece);
}
#endif

uint64_t sum_of(const std::byte* piece) {
#if defined(__x86_64__)
    if (detected_cpu_level() >= CpuLevel::avx512) return sum_of_64(piece);
    if (detected_cpu_level() >= CpuLevel::avx2) return sum_of_32(piece);
#endif
    return sum_of_16(piece);
}

}  // namespace

ReadBandwidth::ReadBandwidth(const ThreadPool& pool, uint64_t bytes)
    : pool_(pool), bytes_(bytes, "measuring the memory's bandwidth") {
    std::memset(bytes_.data(), 1, bytes_.size());  // pages of zeros may share one page of memory
}

double ReadBandwidth::measure() const {
    std::vector<uint64_t> sums(bytes_.size() / k_piece);
    // The last-level cache of a server, of 300 MB and more, would keep the bytes from one pass to the next.
    pool_.run(static_cast<int64_t>(sums.size()), [&](int64_t piece, int32_t) {
        evict_from_caches({bytes_.data() + piece * k_piece, static_cast<size_t>(k_piece)});
    });
    const auto start = std::chrono::steady_clock::now();
    pool_.run(static_cast<int64_t>(sums.size()),
              [&](int64_t piece, int32_t) { sums[piece] = sum_of(bytes_.data() + piece * k_piece); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    uint64_t total = 0;
    for (const uint64_t sum : sums) total += sum;
    return total == 0 ? 0.0 : static_cast<double>(bytes_.size()) / seconds.count();  // the sums are never 0
}

}  // namespace minim
