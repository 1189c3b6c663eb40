// Weights on their way from the checkpoint to the devices that compute with them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/cancel.h"
#include "base/log.h"
#include "checkpoint/load.h"
#include "model/expand_weights.h"
#include "model/packed_file.h"
#include "model/stage.h"
#include "model/upload_ring.h"
#include "model/weights.h"

namespace minim::model {

// Of the shares whose device computes on host memory.
uint64_t host_weight_bytes(std::span<const Share> shares, Weights& weights);

struct WeightBytes {
    uint64_t total = 0;
    uint64_t experts = 0;    // of the total
    bool is_mapped = false;  // pages of the files
};

// What the weights of a share lie in; nothing where they stay in their files.
struct WeightMemory {
    std::unique_ptr<backend::Memory> device;  // of a device with memory of its own
    std::vector<Buffer> host;
    std::optional<PackedFile> packed;  // where host weights are mapped from

    uint64_t bytes() const noexcept;  // without what is mapped
};

// One a share: the size of its memory, or of its weights where it has none of its own.
std::vector<WeightBytes> weight_bytes(std::span<const Share> shares, Weights& weights,
                                      std::span<const WeightMemory> memory);

// Throws unsupported where a device does not compute with the format of one of the share's matrices.
void check_formats(const Share& share, Weights& weights);

// What a share takes of the memory of a device that has its own, in one block. Of the weights only shapes and formats count.
uint64_t block_bytes(const Share& share, Weights& weights);

struct PlaceOptions {
    bool copies_host = true;
    // Where the host's weights are mapped from instead, made of `origin` if need be; empty: none.
    std::string packed_file = {};
    PackedOrigin origin = {};
    bool checks_packed = false;  // reads and checks all of a file that is there
    // Of what is copied on the host or packed; `automatic` is as in a packed file that is there.
    Expand expand = Expand::automatic;
    checkpoint::Progress progress;
    const CancelToken* cancel = nullptr;
};

// Copies the weights of every share into its device's memory and puts them there in the order its kernels read
// fastest; `weights` points there afterwards. Where host memory is the device's, a packed file may take its place, and
// where neither is wanted, they stay where they are. Progress counts bytes that are read, and on the host packed. Throws
// unsupported for a format that a device does not run, out_of_memory or out_of_device_memory, cancelled, device_lost,
// what `read` throws, and for a packed file what PackedFile and NewFile throw: `weights` is of no use then.
std::vector<WeightMemory> place_weights(std::span<const Share> shares, const PlaceOptions& options,
                                        const ReadWeights& read, Weights& weights, const Logger& log);

}  // namespace minim::model
