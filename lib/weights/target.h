// SPDX-License-Identifier: Apache-2.0
// Where the weights of a part are stored: one implementation for each Storage.
#pragma once

#include <cstdint>
#include <memory>

#include "base/log.h"
#include "checkpoint/load_counter.h"
#include "weights/place.h"
#include "weights/reader.h"

namespace minim::weights {

// Making a target allocates all memory and throws out_of_memory or out_of_device_memory. The arguments of the functions
// below must outlive it.
class Target {
  public:
    virtual ~Target() = default;
    virtual uint64_t bytes_to_read() const = 0;
    // Reads the weights. Throws cancelled, device_lost and what reading throws.
    virtual void read(checkpoint::LoadCounter& counter) = 0;
    // Returns the weights, without their factors and storage. Called once, after read(). Throws what read() throws.
    virtual PlacedWeights finish() = 0;
};

// One block of a device's own memory, in the order of the files, packed there once the weights have arrived.
std::unique_ptr<Target> device_target(const DeviceWeights& part, const Reader& reader,
                                      const PlaceOptions& options);

// Host memory on its NUMA nodes: allocated at once, prefaulted while the weights are read.
std::unique_ptr<Target> host_target(const DeviceWeights& part, const Reader& reader,
                                    const PlaceOptions& options, const Logger& log);

// A packed file (packed_file.h): one that fits is mapped, or a new one is written. On failure there is no new file.
// Throws what PackedFile and PackedWriter throw.
std::unique_ptr<Target> packed_target(const DeviceWeights& part, uint64_t part_hash, const Reader& reader,
                                      const PlaceOptions& options, const Logger& log);

// The checkpoint's mapped files.
std::unique_ptr<Target> mapped_target(const DeviceWeights& part, const Reader& reader,
                                      const PlaceOptions& options);

// Returns whether mapped weights of the part are prefaulted.
bool prefaults(const DeviceWeights& part, const PlaceOptions& options);

}  // namespace minim::weights
