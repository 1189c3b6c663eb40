// SPDX-License-Identifier: Apache-2.0
// A process that computes what the leader's messages say (messages.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_view.h"
#include "ranks/messages.h"
#include "ranks/processes.h"

namespace minim::ranks {

// What a follower does with the messages, in their order, on one thread. Numbers of spaces, pools and slabs that it gets are those
// that it was told of before. What make_space(), make_pool(), add_slab() and read() throw is a refusal, which the leader throws.
class FollowerCalls {
  public:
    virtual ~FollowerCalls() = default;

    virtual void make_space(uint32_t space, int64_t n_rows, int64_t n_context) = 0;
    virtual void end_space(uint32_t space) noexcept = 0;
    // Computes a step. May throw cancelled, on all ranks or on none.
    virtual void step(const StepMessage& step) = 0;

    virtual void make_pool(uint32_t pool, const backend::KvLayout& whole) = 0;
    virtual void end_pool(uint32_t pool) noexcept = 0;
    virtual void add_slab(uint32_t pool, int32_t slab, int64_t n_pages) = 0;
    virtual void drop_slab(uint32_t pool, int32_t slab) noexcept = 0;
    virtual void copy(uint32_t pool, backend::KvPage from, backend::KvPage to) noexcept = 0;
    // Return and set the bytes of this process's parts of a page.
    virtual std::vector<std::byte> read(uint32_t pool, backend::KvPage page) = 0;
    virtual void write(uint32_t pool, backend::KvPage page, std::span<const std::byte> bytes) = 0;
};

// Follows the leader, process 0, until it stops; this process may leave then. Throws the error that has ended the work: of a rank
// of any process, which the other processes get too, or peer_lost.
void follow(Processes& processes, FollowerCalls& calls);

}  // namespace minim::ranks
