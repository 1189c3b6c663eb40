// SPDX-License-Identifier: Apache-2.0
// The bytes with which the devices of a group's ranks find one another, over a transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/group.h"
#include "runtime/transport.h"

namespace minim::runtime {

class TransportChannel final : public backend::GroupChannel {
  public:
    // The transport must outlive it.
    TransportChannel(Transport& transport, bool is_one_process, std::chrono::milliseconds timeout)
        : transport_(transport), is_one_process_(is_one_process), timeout_(timeout) {}

    int32_t rank() const noexcept override { return transport_.rank(); }
    int32_t size() const noexcept override { return transport_.size(); }
    bool is_one_process() const noexcept override { return is_one_process_; }
    std::chrono::milliseconds timeout() const noexcept override { return timeout_; }
    void exchange(std::span<const std::byte> own, std::span<std::byte> all) override;
    void throw_if_abandoned() const override { transport_.throw_if_abandoned(); }
    void abandon(const Error& error) noexcept override { transport_.abandon(error); }

  private:
    Transport& transport_;
    const bool is_one_process_;
    const std::chrono::milliseconds timeout_;
};

}  // namespace minim::runtime
