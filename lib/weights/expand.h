// SPDX-License-Identifier: Apache-2.0
// Chooses the formats whose codebooks are unpacked in host memory (format/expand.h). Packed codebooks read fewer
// bytes, which is faster if many threads share the memory; unpacked ones need fewer instructions, which is faster if
// few do.
#pragma once

#include <array>
#include <span>

#include "backend/host_device.h"
#include "base/log.h"
#include "format/expand.h"
#include "weights/spec.h"

namespace minim::weights {

enum class Expand { automatic, off, on };

// A set of file formats whose codebooks are unpacked.
class UnpackedFormats {
  public:
    void add(Format format) noexcept { contains_[static_cast<size_t>(format)] = true; }
    bool contains(Format format) const noexcept { return contains_[static_cast<size_t>(format)]; }
    // Returns the format in which weights of this file format are stored if they are used in products.
    Format stored_format(Format format) const noexcept {
        return contains(format) ? *unpacked_format(format) : format;
    }

    // Convert the set to and from a number for files: one bit for each format, by the number of the GGUF type. Other
    // bits are ignored.
    uint64_t bits() const noexcept;
    static UnpackedFormats of_bits(uint64_t bits) noexcept;

  private:
    std::array<bool, k_format_count> contains_ = {};
};

// Chooses the formats to unpack, for weights whose device computes on host memory. `automatic`: formats with many
// weights whose products with one row are faster unpacked, measured now on the device's threads; none if this would
// not leave a quarter of the available memory free (or of the lockable memory, if weights are locked). Throws
// out_of_memory.
UnpackedFormats choose_unpacked(const backend::HostDevice& backend,
                                std::span<const WeightSpec* const> weights, Expand expand, const Logger& log);

// Measures the product of one row and a matrix that is in no cache. Returns the matrix's bytes divided by the time.
double product_rate(const backend::HostDevice& backend, Format format);

// Measures the same product with packed weights and with unpacked codebooks. Returns the time with unpacked codebooks divided
// by that with packed weights.
double unpacked_time(const backend::HostDevice& backend, Format format);

}  // namespace minim::weights
