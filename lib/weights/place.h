// SPDX-License-Identifier: Apache-2.0
// Places weights from the checkpoint on the devices that compute with them: source -> transform -> target.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/cancel.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/load_counter.h"
#include "weights/buffer_layout.h"
#include "weights/choose_storage.h"
#include "weights/expand.h"
#include "weights/packed_file.h"

namespace minim::weights {

struct WeightBytes {
    uint64_t total = 0;
    uint64_t experts = 0;    // of the total
    bool is_mapped = false;  // in pages of files, not in memory of the process
    bool is_locked = false;  // locked in memory, like all that the process allocates for its backend
};

// The weights of a part as operations use them, with their memory.
struct PlacedWeights {
    Storage storage = Storage::mapped;
    PlacedMatrices weights;                   // one matrix for each weight of the part, including its factor
    std::unique_ptr<backend::Memory> device;  // Storage::device
    std::vector<Buffer> host;  // Storage::memory: one per NUMA node if rows are split, and one for the rest
    std::optional<PackedFile> packed;        // Storage::packed
    std::deque<std::vector<float>> widened;  // vectors that a mapped file stores as another type

    WeightBytes bytes(const DeviceWeights& part) const;
};

struct PlaceOptions {
    std::string packed_file = {};  // of Storage::packed
    PackedOrigin origin = {};
    std::vector<uint64_t> part_hashes = {};     // of Storage::packed: identify the parts of the model
    bool prefault = false;                      // prefault mapped weights
    Expand expand = Expand::automatic;          // of weights in host memory or a packed file
    const backend::HostDevice* host = nullptr;  // whose threads fill devices; null: the calling thread does
    checkpoint::Progress progress = {};
    const CancelToken* cancel = nullptr;
};

// Throws unsupported for a weight whose format the part's device does not compute with, naming both.
void check_formats(const DeviceWeights& part);

// Places the weights of all parts. Allocates all memory first, then reads, so that a model that does not fit fails
// before anything is read. Progress counts bytes that are read or prefaulted. The checkpoint and
// the parts must outlive the result. Throws unsupported for a format that a device does not support, out_of_memory,
// out_of_device_memory, cancelled, device_lost, and what reading and packed files throw.
std::vector<PlacedWeights> place(std::span<const DeviceWeights> parts, std::span<const Storage> storage,
                                 const PlaceOptions& options, const checkpoint::Checkpoint& checkpoint,
                                 const Logger& log);

}  // namespace minim::weights
