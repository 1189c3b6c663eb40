// SPDX-License-Identifier: Apache-2.0
// The parts of KV cache pages that other processes have, as the process with the page pools drives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_view.h"

namespace minim::kv {

// Any thread. Calls take effect in their order, also among steps. After the loss of a process, those that return or throw
// throw peer_lost, and the others do nothing.
class RemotePages {
  public:
    virtual ~RemotePages() = default;

    // Makes a pool of pages in every other process. Returns its number. `whole`: the layout of all layers and heads.
    virtual uint32_t make_pool(const backend::KvLayout& whole) = 0;
    virtual void end_pool(uint32_t pool) noexcept = 0;

    // Allocates a slab of pages in every other process. Throws what a process refuses with; then no process has the slab.
    virtual void add_slab(uint32_t pool, int32_t slab, int64_t n_pages) = 0;
    virtual void drop_slab(uint32_t pool, int32_t slab) noexcept = 0;

    // Copies the parts of a page in every other process.
    virtual void copy(uint32_t pool, backend::KvPage from, backend::KvPage to) noexcept = 0;
    // Return and set the bytes of a process's parts of a page, one part after another.
    virtual std::vector<std::byte> read(uint32_t pool, backend::KvPage page, int32_t process) = 0;
    virtual void write(uint32_t pool, backend::KvPage page, int32_t process,
                       std::span<const std::byte> bytes) = 0;
};

}  // namespace minim::kv
