// Which weights in grid points the host's memory holds expanded (format/expand.h): what reads less takes less time where
// many threads share a memory, what computes less where few do.
#pragma once

#include <array>
#include <span>

#include "backend/backend.h"
#include "base/log.h"
#include "format/expand.h"
#include "weights/spec.h"

namespace minim::weights {

enum class Expand { automatic, off, on };

// A set of formats of files.
class ExpandedFormats {
  public:
    void add(Format format) noexcept { contains_[static_cast<size_t>(format)] = true; }
    bool contains(Format format) const noexcept { return contains_[static_cast<size_t>(format)]; }
    // What a product's weights of this format are held in.
    Format held(Format format) const noexcept { return contains(format) ? *expanded_format(format) : format; }

    // The set as a number for files: a bit each, by the number of the GGUF type. Others' bits are left out.
    uint64_t bits() const noexcept;
    static ExpandedFormats of_bits(uint64_t bits) noexcept;

  private:
    std::array<bool, k_format_count> contains_ = {};
};

// Of weights whose device computes on host memory. `automatic`: formats with much weight, whose products with one row
// take less time expanded, on the device's threads, as measured now; none where these formats expanded would not leave a
// quarter of the available memory free, or of what may be locked where weights are. Throws out_of_memory.
ExpandedFormats choose_expanded(const backend::Backend& backend, std::span<const WeightSpec* const> weights,
                                Expand expand, const Logger& log);

// The product of one row and a matrix that no cache has: how much of the time of grid points it takes with expanded
// weights.
double expanded_time(const backend::Backend& backend, Format format);

}  // namespace minim::weights
