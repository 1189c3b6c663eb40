// SPDX-License-Identifier: Apache-2.0
#include "weights/expand.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/cache.h"
#include "base/memory_info.h"
#include "base/thread_pool.h"

namespace minim::weights {
namespace {

using backend::HostDevice;
using backend::Matrix;

// The fewest bytes of weights for which a format is measured: for fewer, measuring takes longer than it saves.
constexpr uint64_t k_min_bytes = uint64_t{64} << 20;
// A format is unpacked if that takes at most this part of the packed time. Formats that are not clearly faster stay
// packed.
constexpr double k_min_gain = 0.95;

constexpr int64_t k_cols = 3072;
constexpr uint64_t k_measured_bytes = uint64_t{32} << 20;  // packed
constexpr int k_rounds = 5;
constexpr int64_t k_fill_bytes = int64_t{1} << 20;  // by one thread at a time

constexpr const char* k_measuring = "measuring unpacked codebooks";

// Random packed weights: random codes, with scales of a normal size.
class RandomWeights {
  public:
    // Makes about k_measured_bytes of a format.
    RandomWeights(const HostDevice& backend, Format format)
        : RandomWeights(backend, format, rows_of(backend, format)) {}

    RandomWeights(const HostDevice& backend, Format format, int64_t rows)
        : bytes_(static_cast<uint64_t>(rows * row_bytes(format, k_cols)), k_measuring),
          matrix_{.data = bytes_.data(),
                  .format = format,
                  .rows = rows,
                  .cols = k_cols,
                  .row_bytes = row_bytes(format, k_cols),
                  .packed = backend.packs(format)} {
        const auto n_words = static_cast<int64_t>(bytes_.size() / sizeof(uint64_t));
        constexpr int64_t k_fill_words = k_fill_bytes / static_cast<int64_t>(sizeof(uint64_t));
        backend.run_tasks((n_words + k_fill_words - 1) / k_fill_words, [&](int64_t i, int32_t) {
            auto state = static_cast<uint64_t>(i);
            for (int64_t w = i * k_fill_words; w < std::min(n_words, (i + 1) * k_fill_words); ++w) {
                state = state * 6364136223846793005U + 1442695040888963407U;
                bytes_.as<uint64_t>()[w] =
                    ((state ^ (state >> 29)) & 0x0FFF0FFF0FFF0FFFU) | 0x2000200020002000U;
            }
        });
    }

    static int64_t rows_of(const HostDevice& backend, Format format) {
        const int64_t together = backend.pack_rows_together();
        return static_cast<int64_t>(k_measured_bytes) / row_bytes(format, k_cols) / together * together;
    }

    int64_t rows() const { return matrix_.rows; }
    uint64_t bytes() const { return bytes_.size(); }

    // Returns the seconds of a product with one row. The threads are awake, as in a step: on many cores they take longer to wake
    // than to multiply.
    double time_product(const HostDevice& backend, backend::Scratch& scratch, const float* h,
                        float* y) const {
        evict_from_caches({bytes_.data(), bytes_.size()});
        std::optional<ThreadPool::Awake> awake;
        if (const ThreadPool* pool = backend.threads_for(1); pool != nullptr) {
            awake.emplace(*pool);
            pool->run(pool->n_threads(), [](int64_t, int32_t) {});
        }
        const backend::LinearTask task = {&matrix_, y, false};
        const auto start = std::chrono::steady_clock::now();
        backend.linear(scratch, h, 1, {&task, 1});
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

  private:
    Buffer bytes_;
    Matrix matrix_;
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

// Returns the bytes of the weights if the formats of `expanded` are unpacked.
uint64_t stored_bytes(std::span<const WeightSpec* const> weights, const UnpackedFormats& unpacked) {
    uint64_t total = 0;
    for (const WeightSpec* weight : weights) {
        const Format format =
            weight->use == Use::product ? unpacked.stored_format(weight->format) : weight->format;
        total += static_cast<uint64_t>(weight->rows * row_bytes(format, weight->cols));
    }
    return total;
}

// Returns the bit of a format that can be unpacked; 0 for every other format.
uint64_t bit_of(const FormatTraits& entry) {
    return unpacked_format(entry.format) ? uint64_t{1} << entry.gguf_type : 0;
}

}  // namespace

uint64_t UnpackedFormats::bits() const noexcept {
    uint64_t bits = 0;
    for (const FormatTraits& entry : all_formats())
        if (contains(entry.format)) bits |= bit_of(entry);
    return bits;
}

UnpackedFormats UnpackedFormats::of_bits(uint64_t bits) noexcept {
    UnpackedFormats formats;
    for (const FormatTraits& entry : all_formats())
        if ((bits & bit_of(entry)) != 0) formats.add(entry.format);
    return formats;
}

double product_rate(const HostDevice& backend, Format format) {
    const RandomWeights matrix(backend, format);
    const auto scratch = backend.reserve({.n_rows = 1, .hidden = k_cols});
    const std::vector<float> h(k_cols, 1.0F);
    std::vector<float> y(matrix.rows());
    std::vector<double> seconds;
    seconds.reserve(k_rounds);
    for (int round = 0; round < k_rounds; ++round)
        seconds.push_back(matrix.time_product(backend, *scratch, h.data(), y.data()));
    return static_cast<double>(matrix.bytes()) / median(std::move(seconds));
}

double unpacked_time(const HostDevice& backend, Format format) {
    const RandomWeights points(backend, format);
    const int64_t rows = points.rows();
    const RandomWeights unpacked(backend, *unpacked_format(format), rows);
    const auto scratch = backend.reserve({.n_rows = 1, .hidden = k_cols});
    const std::vector<float> h(k_cols, 1.0F);
    std::vector<float> y(rows);
    std::vector<double> shares;
    for (int round = 0; round < k_rounds; ++round) {
        const double with_points = points.time_product(backend, *scratch, h.data(), y.data());
        shares.push_back(unpacked.time_product(backend, *scratch, h.data(), y.data()) / with_points);
    }
    return median(std::move(shares));
}

UnpackedFormats choose_unpacked(const HostDevice& backend, std::span<const WeightSpec* const> weights,
                                Expand expand, const Logger& log) {
    if (expand == Expand::off) return {};
    std::array<uint64_t, k_format_count> product_bytes = {};
    for (const WeightSpec* weight : weights)
        if (weight->use == Use::product)
            product_bytes[static_cast<size_t>(weight->format)] += weight->bytes();
    const uint64_t least_bytes = expand == Expand::on ? 1 : k_min_bytes;
    UnpackedFormats possible;
    std::vector<Format> formats;
    for (const FormatTraits& entry : all_formats()) {
        const auto unpacked = unpacked_format(entry.format);
        if (!unpacked || !backend.packs(entry.format) || !backend.packs(*unpacked)) continue;
        if (product_bytes[static_cast<size_t>(entry.format)] < least_bytes) continue;
        possible.add(entry.format);
        formats.push_back(entry.format);
    }
    if (expand == Expand::on || formats.empty()) return possible;

    const uint64_t wanted = stored_bytes(weights, possible);
    uint64_t available = available_memory_bytes();
    if (backend.host_memory().locks()) available = std::min(available, lock_limit().left());
    if (wanted > available / 4 * 3) {
        log.info("{}: codebooks stay packed: unpacked they would take {} bytes of {}", backend.name(), wanted,
                 available);
        return {};
    }
    UnpackedFormats chosen;
    for (const Format format : formats) {
        const double time = unpacked_time(backend, format);
        log.info("{}: unpacked codebooks of {} take {:.2f} of the time of packed ones", backend.name(),
                 traits(format).name, time);
        if (time <= k_min_gain) chosen.add(format);
    }
    return chosen;
}

}  // namespace minim::weights
