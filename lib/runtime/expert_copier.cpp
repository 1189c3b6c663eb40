// SPDX-License-Identifier: Apache-2.0
#include "runtime/expert_copier.h"

#include <algorithm>

#include "weights/stored_rows.h"

namespace minim::runtime {
namespace {

using backend::ExpertStack;
using backend::Matrix;
using weights::WeightSpec;

enum class Copy : uint8_t { panels, rows, buffered };

Copy copy_of(const backend::Backend& device, const WeightSpec& weight, const ExpertStack& on_host) {
    const bool is_there = std::ranges::find(on_host.expert, nullptr) == on_host.expert.end();
    if (on_host.format != weight.format || !is_there) return Copy::buffered;
    if (!on_host.packed) return Copy::rows;
    return device.packs(weight.format) ? Copy::panels : Copy::buffered;
}

// Returns the maximum number of bytes of a matrix that needs the buffer.
uint64_t buffer_bytes(const backend::Backend& device, std::span<const PooledLayer> layers) {
    uint64_t most = 0;
    const auto look_at = [&](const WeightSpec& weight, const ExpertStack& on_host) {
        if (copy_of(device, weight, on_host) == Copy::buffered) most = std::max(most, weight.bytes());
    };
    for (const PooledLayer& layer : layers) {
        look_at(*layer.gate.front(), layer.on_host->gate);
        look_at(*layer.up.front(), layer.on_host->up);
        look_at(*layer.down.front(), layer.on_host->down);
    }
    return most;
}

}  // namespace

bool is_left_to_pack(const backend::Backend& device, const WeightSpec& weight, const ExpertStack& on_host) {
    return device.packs(weight.format) && copy_of(device, weight, on_host) != Copy::panels;
}

ExpertCopier::ExpertCopier(const backend::Backend& device, std::span<const PooledLayer> layers,
                           const weights::Reader& reader)
    : device_(device), reader_(reader), stream_(device.reserve({})) {
    const uint64_t bytes = buffer_bytes(device, layers);
    if (bytes > 0) buffer_ = device.allocate_staging(bytes, "an expert on its way");
}

void ExpertCopier::start(const WeightSpec& weight, const ExpertStack& on_host, int64_t expert,
                         std::byte* to) {
    const Matrix stored = on_host.matrix(expert);
    const Copy copy = copy_of(device_, weight, on_host);
    if (copy == Copy::buffered) {
        device_.synchronize(*stream_);  // the matrix before has left the buffer
        const std::span<std::byte> rows(buffer_->data(), weight.bytes());
        weights::read_stored_rows(weight, stored, reader_, rows);
        device_.upload(*stream_, to, rows.data(), rows.size());
        return;
    }
    for (int64_t row = 0; row < stored.rows;) {
        int64_t end = stored.rows;
        if (stored.blocks != nullptr) end = *std::ranges::upper_bound(stored.blocks->first_row, row);
        device_.upload(*stream_, to + row * stored.row_bytes, stored.row(row),
                       static_cast<uint64_t>((end - row) * stored.row_bytes));
        row = end;
    }
    if (copy == Copy::panels)
        device_.adopt(*stream_, {&to, 1}, {to, stored.format, stored.rows, stored.cols, stored.row_bytes});
}

void ExpertCopier::finish() {
    device_.synchronize(*stream_);
}

}  // namespace minim::runtime
