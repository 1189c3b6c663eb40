// SPDX-License-Identifier: Apache-2.0
#include "weights/device_target.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "weights/load.h"
#include "weights/target.h"
#include "weights/upload_ring.h"

namespace minim::weights {
namespace {

// The alignment of every matrix in a device's memory, for wide loads of a GPU.
constexpr uint64_t k_device_alignment = 256;

// Returns the most bytes that a job spans in the target.
uint64_t most_job_bytes(const BufferLayout& layout) {
    PieceCursor cursor(layout);
    std::vector<Piece> pieces;
    uint64_t most = 0;
    while (cursor.next_job(pieces, read_bytes) > 0) {
        const Piece& last = pieces.back();
        most = std::max(most, last.to() + last.stored_bytes() - pieces.front().to());
    }
    return most;
}

class DeviceTarget : public Target {
  public:
    DeviceTarget(const DeviceWeights& part, const Reader& reader, const PlaceOptions& options)
        : part_(part),
          reader_(reader),
          options_(options),
          layout_(part.weights, nullptr, {.alignment = k_device_alignment}) {
        placed_.device = part.backend->allocate(device_bytes(part.weights) + part.table_bytes, "weights",
                                                backend::MemoryUse::weights);
    }

    uint64_t bytes_to_read() const override { return layout_.read_bytes(); }

    void read(checkpoint::LoadCounter& counter) override {
        UploadRing ring(*part_.backend, most_job_bytes(layout_));
        std::byte* memory = placed_.device->data();
        std::byte* staged = nullptr;
        uint64_t first = 0;  // position in the block of the first staged byte
        const PieceTarget target = {[&](std::span<const Piece> pieces) {
                                        staged = ring.room();
                                        first = pieces.front().to();
                                    },
                                    [&](const Piece& piece) { return staged + (piece.to() - first); },
                                    {},
                                    [&](std::span<const Piece> pieces) {
                                        const Piece& last = pieces.back();
                                        ring.send(memory + first, last.to() + last.stored_bytes() - first);
                                        if (part_.backend->shares_host_memory()) forget(pieces);
                                    }};
        load(layout_, reader_, options_.host, target, counter);
        ring.finish();
        placed_.weights = layout_.placed([&](const Run& run) { return memory + run.to; });
    }

    PlacedWeights finish() override {
        pack();
        return std::move(placed_);
    }

  private:
    // The page cache would compete with the device for one memory: a file that was read would be there twice.
    void forget(std::span<const Piece> pieces) const {
        for (const Piece& piece : pieces)
            reader_.forget(*piece.run->weight, piece.run->from + piece.at, piece.bytes);
    }

    // Packs matrices of the same shape and role, such as those of a layer's experts, by one call.
    void pack() {
        std::byte* memory = placed_.device->data();
        std::vector<backend::Matrix>& matrices = placed_.weights.matrices;
        std::vector<std::byte*> data;
        for (size_t i = 0; i < matrices.size(); i += std::max<size_t>(data.size(), 1)) {
            const WeightSpec& first = *part_.weights[i];
            data.clear();
            if (first.use != Use::product || !part_.backend->packs(first.format)) continue;
            throw_if_cancelled(options_.cancel, "loading");
            for (size_t k = i; k < matrices.size(); ++k) {
                const WeightSpec& weight = *part_.weights[k];
                if (weight.role != first.role || weight.layer != first.layer) break;
                data.push_back(memory + (matrices[k].data - memory));
            }
            part_.backend->pack(data, matrices[i]);
            for (size_t k = i; k < i + data.size(); ++k) matrices[k].packed = true;
        }
    }

    const DeviceWeights& part_;
    const Reader& reader_;
    const PlaceOptions& options_;
    BufferLayout layout_;
    PlacedWeights placed_;
};

}  // namespace

uint64_t device_bytes(std::span<const WeightSpec* const> weights) {
    uint64_t total = 0;
    for (const WeightSpec* weight : weights) total += align_up(weight->bytes(), k_device_alignment);
    return total;
}

std::unique_ptr<Target> device_target(const DeviceWeights& part, const Reader& reader,
                                      const PlaceOptions& options) {
    return std::make_unique<DeviceTarget>(part, reader, options);
}

}  // namespace minim::weights
