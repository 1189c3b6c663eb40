// Memory of the host as one model takes it: on which memory nodes, and whether the system may take pages away.
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
    // Without a plan, or with one that is off, memory lies where the system puts it.
    explicit HostMemory(std::shared_ptr<const NumaPlan> plan, bool locks = false)
        : plan_(std::move(plan)), locks_(locks) {}

    HostMemory locked(bool locks) const { return HostMemory(plan_, locks); }

    bool locks() const noexcept { return locks_; }
    bool is_placed() const noexcept { return plan_ != nullptr && plan_->mode != Numa::off; }
    // Nodes among which rows of weights are split, by their index in the plan; 1 where they are not.
    int32_t n_nodes() const noexcept;
    // The first row of each node, and the end.
    std::vector<int64_t> rows_of_nodes(int64_t n_rows, int64_t granule) const;

    // Memory on a node, or on all in turn. Throws out_of_memory, also where it is to be locked and the limit does not
    // allow it, and unsupported where the system refuses to place it.
    Buffer take(uint64_t bytes, std::string_view what, int32_t node = k_any_node,
                Buffer::Presence presence = Buffer::Presence::now) const;

    // Pages stay in memory once they are present. Throws out_of_memory, naming `what`, the bytes and the limit.
    void lock(const void* data, uint64_t bytes, std::string_view what) const;

    // Bytes of the blocks by the system's number of the node where they lie, as the system says; pages that are not
    // present are left out. Asks about some thousand pages, spread evenly. Throws unsupported where it does not say.
    std::map<int32_t, uint64_t> bytes_on_nodes(std::span<const std::span<const std::byte>> blocks) const;

    const NumaPlan* plan() const noexcept { return plan_.get(); }  // may be null

  private:
    const PlacementCalls& calls() const noexcept;

    std::shared_ptr<const NumaPlan> plan_;
    bool locks_ = false;
};

}  // namespace minim
