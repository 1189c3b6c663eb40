// SPDX-License-Identifier: Apache-2.0
#include "placement/measure_host.h"

#include <array>
#include <memory>
#include <vector>

#include "backend/host_device.h"
#include "base/format_text.h"
#include "weights/expand.h"

namespace minim::placement {
namespace {

// A format is measured only if the model has at least this many bytes of it.
constexpr uint64_t k_min_bytes = uint64_t{64} << 20;
constexpr int64_t k_cols = 3072;  // a row of whole blocks in every format

}  // namespace

void measure_rates(HostFacts& host, std::span<const weights::WeightSpec> weights, const Threads& threads,
                   CpuLevel level, const Logger& log) {
    const std::shared_ptr<const backend::HostDevice> backend = make_backend("cpu", threads, level);
    std::array<uint64_t, k_format_count> bytes = {};
    std::vector<const weights::WeightSpec*> specs;
    for (const weights::WeightSpec& weight : weights) {
        specs.push_back(&weight);
        if (weight.use == weights::Use::product) bytes[static_cast<size_t>(weight.format)] += weight.bytes();
    }
    const weights::UnpackedFormats unpacked =
        weights::choose_unpacked(*backend, specs, weights::Expand::automatic, log);
    for (const FormatTraits& entry : all_formats()) {
        if (bytes[static_cast<size_t>(entry.format)] < k_min_bytes) continue;
        const Format stored = unpacked.stored_format(entry.format);
        const std::string key = format_text("product-{}-{}-{}", traits(stored).name, to_string(level),
                                            threads.decode->n_threads());
        const double rate = cached_number(key, [&] { return weights::product_rate(*backend, stored); });
        // An unpacked row has more bytes than the row in the checkpoint.
        const double part = static_cast<double>(row_bytes(entry.format, k_cols)) /
                            static_cast<double>(row_bytes(stored, k_cols));
        host.rates.push_back({entry.format, rate * part});
    }
}

}  // namespace minim::placement
