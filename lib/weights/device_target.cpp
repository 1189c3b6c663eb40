// SPDX-License-Identifier: Apache-2.0
#include "weights/device_target.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"

namespace minim::weights {
namespace {

// The alignment of every matrix in a device's memory, for wide loads of a GPU.
constexpr uint64_t k_alignment = 256;

// Returns the most bytes that a job spans in the target.
uint64_t most_job_bytes(const Layout& layout) {
    PieceCursor cursor(layout);
    std::vector<Piece> pieces;
    uint64_t most = 0;
    while (cursor.next_job(pieces, read_bytes) > 0) {
        const Piece& last = pieces.back();
        most = std::max(most, last.to() + last.stored_bytes() - pieces.front().to());
    }
    return most;
}

}  // namespace

uint64_t device_bytes(std::span<const WeightSpec* const> weights) {
    uint64_t total = 0;
    for (const WeightSpec* weight : weights) total += align_up(weight->bytes(), k_alignment);
    return total;
}

DeviceTarget::DeviceTarget(std::span<const WeightSpec* const> weights, const backend::Backend& backend,
                           uint64_t more_bytes)
    : weights_(weights),
      backend_(backend),
      layout_(weights, nullptr, {.alignment = k_alignment}),
      memory_(backend.allocate(device_bytes(weights) + more_bytes, "weights", backend::MemoryUse::weights)) {}

void DeviceTarget::fill(const Reader& reader, const backend::HostDevice* host,
                        checkpoint::LoadCounter& counter) {
    UploadRing ring(backend_, most_job_bytes(layout_));
    std::byte* staged = nullptr;
    uint64_t first = 0;  // position in the block of the first staged byte
    const Target target = {[&](std::span<const Piece> pieces) {
                               staged = ring.room();
                               first = pieces.front().to();
                           },
                           [&](const Piece& piece) { return staged + (piece.to() - first); },
                           {},
                           [&](std::span<const Piece> pieces) {
                               const Piece& last = pieces.back();
                               ring.send(memory_->data() + first, last.to() + last.stored_bytes() - first);
                           }};
    load(layout_, reader, host, target, counter);
    ring.finish();
    placed_ = layout_.placed([&](const Run& run) { return memory_->data() + run.to; });
}

// Packs matrices of the same shape and role, such as those of a layer's experts, by one call.
void DeviceTarget::pack(const CancelToken* cancel) {
    std::vector<std::byte*> data;
    for (size_t i = 0; i < weights_.size(); i += std::max<size_t>(data.size(), 1)) {
        const WeightSpec& first = *weights_[i];
        data.clear();
        if (first.use != Use::product || !backend_.packs(first.format)) continue;
        throw_if_cancelled(cancel, "loading");
        for (size_t k = i; k < weights_.size(); ++k) {
            const WeightSpec& weight = *weights_[k];
            if (weight.role != first.role || weight.layer != first.layer) break;
            data.push_back(memory_->data() + (placed_.matrices[k].data - memory_->data()));
        }
        backend_.pack(data, placed_.matrices[i]);
        for (size_t k = i; k < i + data.size(); ++k) placed_.matrices[k].packed = true;
    }
}

}  // namespace minim::weights
