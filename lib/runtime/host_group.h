// SPDX-License-Identifier: Apache-2.0
// A group over any transport and for any device: what ranks exchange goes through host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/group.h"
#include "runtime/transport.h"

namespace minim::runtime {

using backend::GroupLimits;

// Sums of at most this many floats are computed by every rank: all send all partial sums to all. Of larger ones, each rank adds
// one chunk and sends it to all. Both add in rank order.
inline constexpr int64_t k_max_floats_to_all = 16384;

class HostGroup final : public backend::Group {
  public:
    // The backend and the transport must outlive it. Throws out_of_memory.
    HostGroup(const backend::Backend& backend, Transport& transport, const GroupLimits& limits);

    int32_t rank() const noexcept override { return transport_.rank(); }
    int32_t size() const noexcept override { return transport_.size(); }
    bool records() const noexcept override { return false; }
    bool shares_slots() const noexcept override { return true; }
    void sum(backend::Scratch& scratch, float* data, int64_t count) override;
    void share_slots(backend::Scratch& scratch, const int32_t* ids, int64_t n_slots, int64_t hidden,
                     float* out) override;
    void gather_rows(backend::Scratch& scratch, const float* part, int64_t n, int64_t width,
                     float* whole) override;
    void go_on(const CancelToken* cancel) override;
    void abandon(const Error& error) noexcept override { transport_.abandon(error); }

  private:
    float* on_host(backend::Scratch& scratch, float* data, int64_t count);
    void sum_to_all(float* data, int64_t count);
    void sum_by_chunks(float* data, int64_t count);
    void send(int32_t to, const float* data, int64_t count);
    void receive(int32_t from, float* data, int64_t count);
    void wait();

    const backend::Backend& backend_;
    const bool is_on_host_;
    Transport& transport_;
    // Of this rank's data, if its device has memory of its own; of the other ranks' data; of ids.
    std::unique_ptr<backend::Memory> own_, others_, ids_;
    std::vector<Transport::Ticket> tickets_;
};

// Makes the group of a space: that of the device's link, or, if it has none, one over the host.
std::unique_ptr<backend::Group> make_group(const backend::Backend& backend, Transport& transport,
                                           backend::GroupLink* link, const GroupLimits& limits);

}  // namespace minim::runtime
