// SPDX-License-Identifier: Apache-2.0
// Copies matrices of experts from the host to a device. A matrix is copied as the host has it, packed or not; a device that packs
// too changes the order of bits in place. If the host has it in another format (expanded), or packed for a device that does not
// pack, its rows are read into a buffer first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "runtime/pooled_layer.h"
#include "weights/reader.h"
#include "weights/spec.h"

namespace minim::runtime {

// Returns whether a copied matrix arrives as rows that the device computes with faster once they are packed.
bool is_left_to_pack(const backend::Backend& device, const weights::WeightSpec& weight,
                     const backend::ExpertStack& on_host);

// One thread's copies, in a stream of their own.
class ExpertCopier {
  public:
    // For experts of any of the layers. The device and the reader must outlive it. Throws out_of_memory.
    ExpertCopier(const backend::Backend& device, std::span<const PooledLayer> layers,
                 const weights::Reader& reader);

    // Starts copying the matrix of an expert to `to` in the device's memory. Throws what reading weights throws.
    void start(const weights::WeightSpec& weight, const backend::ExpertStack& on_host, int64_t expert,
               std::byte* to);
    // Waits for the copies. Throws device_lost.
    void finish();
    backend::Scratch& stream() const noexcept { return *stream_; }

  private:
    const backend::Backend& device_;
    const weights::Reader& reader_;
    std::unique_ptr<backend::Memory> buffer_;   // for the rows of a matrix; null: no layer needs it
    std::unique_ptr<backend::Scratch> stream_;  // ends before the buffer that it reads
};

}  // namespace minim::runtime
