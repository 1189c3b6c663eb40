// SPDX-License-Identifier: Apache-2.0
// Copies experts of the host to a device for one step of many rows, a chunk at a time, into two areas in turn: while the device
// computes with one area, the next chunk is copied to the other.
//
//     copies   chunk 0 -> area 0 | chunk 1 -> area 1 | chunk 2 -> area 0 | ...
//     device                     | chunk 0           | chunk 1           | ...
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/host_device.h"
#include "base/thread_pool.h"
#include "runtime/expert_copier.h"
#include "runtime/pooled_layer.h"
#include "runtime/stream_rule.h"
#include "weights/reader.h"

namespace minim::runtime {

class ExpertStream {
  public:
    static constexpr size_t k_areas = StreamSpace::k_areas;

    // Makes areas for experts of any of the layers. The number of copying threads depends on the threads of `host`. The
    // arguments except the layers must outlive it. Throws out_of_memory and out_of_device_memory.
    ExpertStream(const backend::Backend& device, const backend::HostDevice& host,
                 std::span<const PooledLayer> layers, const weights::Reader& reader, const StreamRule& rule,
                 const StreamSpace& space);

    const StreamRule& rule() const noexcept { return rule_; }
    int64_t chunk_experts() const noexcept { return space_.chunk_experts; }
    // Returns the bytes of the areas in the device's memory.
    uint64_t device_bytes() const noexcept { return space_.device_bytes(); }

    // Locks the areas for one layer of a step. The device must have computed the last chunk of the layer before the
    // lock is released.
    std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

    // Copies at most chunk_experts() experts to an area. The copies are complete when the call returns. Needs the lock,
    // and the device must not compute with the area. Throws device_lost and what reading weights throws.
    void fill(size_t area, const PooledLayer& layer, const backend::ExpertWeights& shapes,
              std::span<const int32_t> experts);
    // Returns the weights of the experts in an area, and of no others.
    const backend::ExpertWeights& in(size_t area) const noexcept { return areas_[area].experts; }

  private:
    struct Area {
        std::byte* data = nullptr;
        backend::ExpertPlace* table = nullptr;  // [n_expert]
        backend::ExpertWeights experts;         // of the layer copied last
    };
    void copy(const PooledLayer& layer, std::span<const int32_t> experts);
    void pack(const backend::ExpertStack& stack, std::span<const int32_t> experts,
              const std::byte* backend::ExpertPlace::*matrix);

    const backend::Backend& device_;
    const StreamRule rule_;
    const StreamSpace space_;
    std::unique_ptr<backend::Memory> memory_;
    std::array<Area, k_areas> areas_;
    ThreadPool threads_;
    std::vector<ExpertCopier> copiers_;       // one a thread
    std::unique_ptr<backend::Memory> table_;  // [n_expert] on the host, on its way to an area
    std::vector<std::byte*> to_pack_;         // [chunk_experts]
    std::mutex mutex_;
};

}  // namespace minim::runtime
