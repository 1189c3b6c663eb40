#include "bandwidth.h"

#include <chrono>
#include <cstring>
#include <vector>

namespace minim::bench {
namespace {

constexpr uint64_t k_bytes = uint64_t{512} << 20;
constexpr int64_t k_piece = 256 << 10;

using Words = uint64_t __attribute__((vector_size(64)));

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MINIM_WIDEST_LOADS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MINIM_WIDEST_LOADS
#endif

// Eight sums, so that no addition waits for another, and the widest loads of the machine: with narrower ones a
// kernel may read faster than this.
MINIM_WIDEST_LOADS uint64_t sum_of(const std::byte* piece) {
    Words sums[8] = {};
    for (int64_t at = 0; at < k_piece; at += 8 * static_cast<int64_t>(sizeof(Words))) {
        for (size_t k = 0; k < 8; ++k) {
            Words words;
            std::memcpy(&words, piece + at + k * sizeof(Words), sizeof(Words));
            sums[k] += words;
        }
    }
    uint64_t total = 0;
    for (const Words& sum : sums) {
        for (size_t k = 0; k < 8; ++k) total += sum[k];
    }
    return total;
}

}  // namespace

Bandwidth::Bandwidth(const ThreadPool& pool)
    : pool_(pool), bytes_(k_bytes, "memory to measure the bandwidth") {
    std::memset(bytes_.data(), 1, k_bytes);
}

double Bandwidth::measure() const {
    std::vector<uint64_t> sums(k_bytes / k_piece);
    const auto start = std::chrono::steady_clock::now();
    pool_.run(static_cast<int64_t>(sums.size()), [&](int64_t piece, int32_t) {
        sums[static_cast<size_t>(piece)] = sum_of(bytes_.data() + piece * k_piece);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    uint64_t total = 0;
    for (const uint64_t sum : sums) total += sum;
    return total == 0 ? 0.0 : static_cast<double>(k_bytes) / seconds.count();  // the sums are never 0
}

}  // namespace minim::bench
