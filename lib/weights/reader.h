// SPDX-License-Identifier: Apache-2.0
// Reads weights from a checkpoint as their specs describe them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/checkpoint.h"
#include "weights/spec.h"

namespace minim::weights {

// Usable from any thread. The checkpoint must outlive the reader.
class Reader {
  public:
    // A reader without a checkpoint, for weights that are already in memory in the format of their specs. Nothing may
    // be read with it.
    Reader() = default;
    explicit Reader(const checkpoint::Checkpoint& checkpoint) : checkpoint_(&checkpoint) {}

    // Reads bytes [at, at + out.size()) of the weight. Columns are cut out of whole rows, some of which are in memory at a time.
    // Throws what reading the file throws, and format if an assembled matrix holds NaN.
    void read(const WeightSpec& weight, uint64_t at, std::span<std::byte> out) const;

    // Returns the factor of the whole matrix. Throws format if that of an assembled matrix is negative or not finite.
    float factor(const WeightSpec& weight) const;

    // Returns the mapped bytes of the weight, or null if the file does not have them in the form of the spec:
    // assembled matrices, parts of columns, and vectors of another type or without the alignment of a float. The checkpoint must be mapped.
    const std::byte* mapped(const WeightSpec& weight) const;

    // Asks the system to read bytes of the weight ahead of their use. Advice only.
    void read_ahead(const WeightSpec& weight, uint64_t at, uint64_t bytes) const noexcept;
    // Tells the system that bytes of the weight are not read again, as they are in a device's memory. Advice only.
    void forget(const WeightSpec& weight, uint64_t at, uint64_t bytes) const noexcept;

  private:
    // Bytes of a tensor that bytes of a weight are read from; no tensor if they are assembled from several.
    struct SourceBytes {
        const checkpoint::Tensor* tensor = nullptr;
        uint64_t from = 0;
        uint64_t count = 0;
    };
    static SourceBytes source_bytes(const WeightSpec& weight, uint64_t at, uint64_t bytes) noexcept;

    const checkpoint::Checkpoint* checkpoint_ = nullptr;
};

}  // namespace minim::weights
