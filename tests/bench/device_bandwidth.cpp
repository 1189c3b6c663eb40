// SPDX-License-Identifier: Apache-2.0
#include "device_bandwidth.h"

#include <chrono>

#include "base/buffer.h"
#include "random_bytes.h"

namespace minim::bench {
namespace {

constexpr uint64_t k_bytes = uint64_t{256} << 20;
// Long enough that the time to start the copies and to wait for them does not matter.
constexpr double k_enough_seconds = 0.01;

// The smallest work space: nothing is computed in it.
constexpr backend::StepLimits k_limits = {.n_rows = 1,
                                          .n_context = 1,
                                          .hidden = 32,
                                          .n_head = 1,
                                          .n_head_kv = 1,
                                          .head_dim = 32,
                                          .n_expert = 1,
                                          .n_expert_used = 1,
                                          .expert_ff = 32,
                                          .n_vocab = 1};

}  // namespace

DeviceBandwidth::DeviceBandwidth(const backend::Backend& device)
    : device_(device),
      from_(device.allocate(k_bytes, "memory to measure the bandwidth")),
      to_(device.allocate(k_bytes, "memory to measure the bandwidth")),
      stream_(device.reserve(k_limits)) {
    const Buffer bytes(k_bytes, "memory to measure the bandwidth");
    RandomBytes().fill({bytes.data(), k_bytes});
    device.write(from_->data(), bytes.data(), k_bytes);
}

double DeviceBandwidth::measure() const {
    for (int64_t n_copies = 1;; n_copies *= 4) {
        const auto start = std::chrono::steady_clock::now();
        for (int64_t i = 0; i < n_copies; ++i) device_.move(*stream_, to_->data(), from_->data(), k_bytes);
        device_.synchronize(*stream_);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        if (seconds.count() >= k_enough_seconds)
            return 2.0 * static_cast<double>(n_copies) * static_cast<double>(k_bytes) / seconds.count();
    }
}

}  // namespace minim::bench
