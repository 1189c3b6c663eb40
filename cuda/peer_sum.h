// SPDX-License-Identifier: Apache-2.0
// Small sums over the ranks of a process, in one kernel (fast/peer_sum.h): its memory, and how the devices reach it.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "backend/group.h"
#include "cuda/cuda_device.h"
#include "cuda/fast/peer_sum.h"

namespace minim::cuda {

class PeerSum {
  public:
    static constexpr int64_t k_max_floats = fast::k_max_peer_floats;

    // All ranks call it together. Returns null, on all of them, if there are too many, or if a device has no memory that the others
    // reach. Throws the error that a rank abandons the group with.
    static std::unique_ptr<PeerSum> make(const CudaDevice& device, backend::GroupChannel& channel);

    // Starts a sum in a stream. Sums of all ranks have the same order and counts.
    void start(runtime::Stream stream, float* data, int64_t count) const {
        fast::sum_peers(stream, peers_, data, count);
    }
    // Ends the waits of all ranks' kernels, now and later. Any thread.
    void end_waits() noexcept { std::atomic_ref(*is_abandoned_).store(1, std::memory_order_release); }
    // Returns whether the devices write into each other's memory; otherwise they write into the host's.
    bool is_direct() const noexcept { return is_direct_; }

  private:
    struct Shared;

    PeerSum() = default;
    bool share(const CudaDevice& device, backend::GroupChannel& channel);
    bool write_directly(const CudaDevice& device, backend::GroupChannel& channel);
    void write_to_host();
    bool test_writes(const CudaDevice& device, backend::GroupChannel& channel) const;

    std::shared_ptr<Shared> shared_;  // of all ranks
    std::unique_ptr<backend::Memory>
        box_;  // [n_ranks] boxes in the device's memory, into which the others write
    std::unique_ptr<backend::Memory> turns_;
    fast::Peers peers_ = {};
    uint32_t* is_abandoned_ = nullptr;
    bool is_direct_ = false;
};

}  // namespace minim::cuda
