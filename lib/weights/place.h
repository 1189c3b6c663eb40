// Weights on their way from the checkpoint to the devices that compute with them: source -> transform -> target.
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
#include "weights/choose_storage.h"
#include "weights/expand.h"
#include "weights/layout.h"
#include "weights/packed_file.h"

namespace minim::weights {

struct WeightBytes {
    uint64_t total = 0;
    uint64_t experts = 0;    // of the total
    bool is_mapped = false;  // pages of files, not memory of the process
};

// The weights of a part where operations find them, with the memory that they lie in.
struct PlacedPart {
    Storage storage = Storage::mapped;
    PlacedMatrices weights;                   // one matrix a weight of the part, its factor included
    std::unique_ptr<backend::Memory> device;  // Storage::device
    std::vector<Buffer> host;  // Storage::memory: one a NUMA node if rows are split, and one for the rest
    std::optional<PackedFile> packed;        // Storage::packed
    std::deque<std::vector<float>> widened;  // vectors that a mapped file stores as another type

    WeightBytes bytes(const Part& part) const;
};

struct PlaceOptions {
    std::string packed_file = {};  // of Storage::packed
    PackedOrigin origin = {};
    std::vector<uint64_t> part_hashes = {};  // of Storage::packed: which part of the model a part is
    bool prefault = false;                   // mapped weights are brought into memory
    Expand expand = Expand::automatic;       // of weights in host memory or a packed file
    const backend::Backend* threads =
        nullptr;  // a backend of the host, whose threads fill devices; null: the caller's
    checkpoint::Progress progress = {};
    const CancelToken* cancel = nullptr;
};

// Throws unsupported for a weight whose format the part's device does not compute with, naming both.
void check_formats(const Part& part);

// Takes all memory first, then reads: a model that does not fit is known before anything is read. Progress counts bytes
// that are read, or made present. The checkpoint must be loaded, and outlive the result, as must the parts. Throws
// unsupported for a format that a device does not run, out_of_memory, out_of_device_memory, cancelled, device_lost, and
// what reading and packed files throw.
std::vector<PlacedPart> place(std::span<const Part> parts, std::span<const Storage> storage,
                              const PlaceOptions& options, const checkpoint::Checkpoint& checkpoint,
                              const Logger& log);

}  // namespace minim::weights
