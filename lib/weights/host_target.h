// SPDX-License-Identifier: Apache-2.0
// Weights in host memory, on their NUMA nodes: allocated at once, prefaulted while they are read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/host_device.h"
#include "base/buffer.h"
#include "weights/load.h"

namespace minim::weights {

class HostTarget {
  public:
    // Allocates the memory of all buffers of the layout. The arguments must outlive it. Throws out_of_memory.
    HostTarget(const Layout& layout, const backend::HostDevice& backend);

    Target target();
    const std::byte* place(const Run& run) const { return buffers_[run.buffer].data() + run.to; }
    std::vector<Buffer> take_buffers() { return std::move(buffers_); }

  private:
    void prefault(std::span<const Piece> pieces);

    const backend::HostDevice& backend_;
    std::vector<Buffer> buffers_;
    std::vector<uint64_t> present_bytes_;  // of each buffer: the bytes prefaulted so far
};

}  // namespace minim::weights
