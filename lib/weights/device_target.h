// SPDX-License-Identifier: Apache-2.0
// Weights in one block of a device's own memory, in the order of the files, packed there once they have arrived.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/host_device.h"
#include "base/cancel.h"
#include "weights/load.h"
#include "weights/upload_ring.h"

namespace minim::weights {

// Returns the bytes of the block that the weights take. Uses only their shapes and formats.
uint64_t device_bytes(std::span<const WeightSpec* const> weights);

class DeviceTarget {
  public:
    // Allocates the block, with room for more_bytes after the weights. The arguments must outlive it. Throws
    // out_of_memory and out_of_device_memory.
    DeviceTarget(std::span<const WeightSpec* const> weights, const backend::Backend& backend,
                 uint64_t more_bytes = 0);

    uint64_t bytes_to_read() const { return layout_.read_bytes(); }

    // Reads all weights on the threads of `host`; null: on the calling thread. Throws cancelled, device_lost and what
    // reading throws.
    void fill(const Reader& reader, const backend::HostDevice* host, checkpoint::LoadCounter& counter);
    // Puts the matrices into the order that the device's kernels read. Call it after fill(). Throws what fill() throws,
    // and out_of_device_memory.
    void pack(const CancelToken* cancel);

    PlacedMatrices take_placed() { return std::move(placed_); }
    std::unique_ptr<backend::Memory> take_memory() { return std::move(memory_); }

  private:
    std::span<const WeightSpec* const> weights_;
    const backend::Backend& backend_;
    Layout layout_;
    std::unique_ptr<backend::Memory> memory_;
    PlacedMatrices placed_;
};

}  // namespace minim::weights
