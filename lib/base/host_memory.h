// SPDX-License-Identifier: Apache-2.0
// Allocates the host memory of one model: places it on NUMA nodes, and locks it if wanted (so that it is never paged out).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/numa.h"

namespace minim {

// Any thread.
class HostMemory {
  public:
    static constexpr int32_t k_any_node = -1;

    HostMemory() = default;
    // Without a plan, or with one that is off, the system chooses the NUMA nodes.
    explicit HostMemory(std::shared_ptr<const NumaPlan> plan, bool locks = false)
        : plan_(std::move(plan)), locks_(locks) {}

    HostMemory locked(bool locks) const { return HostMemory(plan_, locks); }

    bool locks() const noexcept { return locks_; }
    bool is_placed() const noexcept { return plan_ != nullptr && plan_->mode != Numa::off; }
    // Number of nodes that rows of weights are split over; 1 if they are not split.
    int32_t n_nodes() const noexcept;
    // Returns the first row of each node, and n_rows at the end.
    std::vector<int64_t> rows_of_nodes(int64_t n_rows, int64_t granule) const;

    // Allocates memory on a node, or interleaved over all. Throws out_of_memory (also if locking it exceeds the limit), and
    // unsupported if the system refuses to place it.
    Buffer take(uint64_t bytes, std::string_view what, int32_t node = k_any_node,
                Buffer::Presence presence = Buffer::Presence::now) const;

    // Locks pages: they stay in memory once present. Throws out_of_memory, naming `what`, the bytes and the limit.
    void lock(const void* data, uint64_t bytes, std::string_view what) const;

    // Returns how many bytes of the blocks lie on each node, by the system's number of the node. Pages that are not present are
    // left out. Samples a few thousand pages, spread evenly. Throws unsupported if the system does not report the nodes of pages.
    std::map<int32_t, uint64_t> bytes_on_nodes(std::span<const std::span<const std::byte>> blocks) const;

    const NumaPlan* plan() const noexcept { return plan_.get(); }  // may be null

  private:
    const PlacementCalls& calls() const noexcept;

    std::shared_ptr<const NumaPlan> plan_;
    bool locks_ = false;
};

}  // namespace minim
