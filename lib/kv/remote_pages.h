// SPDX-License-Identifier: Apache-2.0
// The parts of KV cache pages in other processes, as the process that leads them manages them. A page has the same number in all
// processes; each has the layers and heads of its ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_view.h"

namespace minim::kv {

// Any thread. Calls take effect in their order, also among steps.
class RemotePages {
  public:
    virtual ~RemotePages() = default;

    // Makes a pool in every other process, and returns its number. The layout is that of all layers and heads. Throws what a process
    // refuses with, with its rank's name in front.
    virtual uint32_t make_pool(const backend::KvLayout& whole) = 0;
    virtual void end_pool(uint32_t pool) noexcept = 0;

    // Allocates the pages of a slab. Throws as make_pool(); then no process has the slab.
    virtual void add_slab(uint32_t pool, int32_t slab, int64_t n_pages) = 0;
    virtual void drop_slab(uint32_t pool, int32_t slab) noexcept = 0;

    virtual void copy(uint32_t pool, backend::KvPage from, backend::KvPage to) noexcept = 0;

    // Returns the number of processes, this one included, whose number is 0.
    virtual int32_t n_processes() const noexcept = 0;
    // Return and set the bytes of a process's parts of a page.
    virtual std::vector<std::byte> read(uint32_t pool, backend::KvPage page, int32_t process) = 0;
    virtual void write(uint32_t pool, backend::KvPage page, int32_t process,
                       std::span<const std::byte> bytes) = 0;
};

}  // namespace minim::kv
