// SPDX-License-Identifier: Apache-2.0
// Messages between ranks, on the host. Messages from one rank to another arrive in the order in which they were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "runtime/waiting.h"

namespace minim::runtime {

// One rank's end. Used by one thread at a time, but for abandon().
class Transport {
  public:
    using Ticket = uint64_t;

    virtual ~Transport() = default;

    virtual int32_t rank() const noexcept = 0;
    virtual int32_t size() const noexcept = 0;

    // Begin to send bytes to another rank, and to receive bytes from it. The receiver states as many bytes as the sender. A send
    // may end only once it is received: post all messages of an exchange, then wait for them. The bytes must stay until wait()
    // has returned or thrown.
    virtual Ticket send(int32_t to, std::span<const std::byte> bytes) = 0;
    virtual Ticket receive(int32_t from, std::span<std::byte> bytes) = 0;

    // Ends the messages that can end without waiting. Returns how many of these have not ended. Throws the error that a rank has
    // abandoned with; then all messages of this rank are withdrawn.
    virtual int64_t count_unfinished(std::span<const Ticket> tickets) = 0;

    // Waits until all of these have ended. Throws as count_unfinished().
    void wait(std::span<const Ticket> tickets) {
        Waiting waiting;
        int64_t n_before = std::ssize(tickets);
        while (const int64_t n = count_unfinished(tickets)) {
            if (n < n_before) waiting.restart();
            n_before = n;
            waiting.pause();
        }
    }

    // Ends the waits of all ranks, now and later, with this error; the first one counts. Any thread.
    virtual void abandon(const Error& error) noexcept = 0;
    // Throws the error that a rank has abandoned with, if one has.
    virtual void throw_if_abandoned() const = 0;
};

}  // namespace minim::runtime
