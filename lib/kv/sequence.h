// SPDX-License-Identifier: Apache-2.0
// The KV cache of one sequence: its pages, in the order of positions, and a reservation of the pages that it may still need.
// Pages may be shared with other sequences of the same pool; a shared page is copied before it is written to.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/kv_view.h"
#include "kv/page_pool.h"

namespace minim::kv {

// One thread at a time; sequences that share pages may be used by different threads.
class Sequence {
  public:
    // Makes an empty sequence and reserves the pages for n_context positions. Throws as `PagePool::reserve`.
    Sequence(const std::shared_ptr<PagePool>& pool, int64_t n_context);

    // Makes an empty sequence without a reservation.
    static Sequence unreserved(std::shared_ptr<PagePool> pool, int64_t n_context);

    // Makes a sequence with a pool of its own and memory for n_context positions.
    static Sequence alone(const backend::KvLayout& layout, int64_t n_context);

    // Makes a sequence of n_context positions that begins with the first n_shared of this one: whole pages are shared, the
    // rest is copied. Throws as `PagePool::reserve`.
    Sequence fork(int64_t n_shared, int64_t n_context) const;

    ~Sequence();
    Sequence(Sequence&&) noexcept;
    Sequence& operator=(Sequence&&) = delete;
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;

    // Makes positions begin .. end - 1 writable; those before `begin` stay as they are. Takes memory only to copy shared
    // pages that are written again after truncate(). Throws out_of_memory; the sequence is then unchanged.
    void hold(int64_t begin, int64_t end);

    // Does the same for a shared pool: allocates no memory, but takes further pages of the pool if the reservation does not
    // suffice. Returns false, and changes nothing, if the pool has too few pages.
    bool try_hold(int64_t begin, int64_t end);

    // append_shared() appends a whole page of another sequence, append_copy() a copy of one, append_bytes() a page with these
    // contents, layout().page_bytes() bytes. This sequence's context must have room. The last two take a reserved page, and return
    // false if there is none. append_bytes() throws device_lost and peer_lost; the sequence is then unchanged.
    void append_shared(const Page& page) noexcept;
    bool append_copy(const Page& page) noexcept;
    bool append_bytes(const std::byte* bytes);

    // Releases the pages behind the first `count` positions.
    void truncate(int64_t count) noexcept;

    const backend::KvLayout& layout() const noexcept { return pool_->layout(); }
    // Returns the pages in the form that attention reads, in the pool's first part. Valid until the sequence is moved.
    const backend::KvSequence& view() const noexcept { return views_[0]; }
    const PagePool& pool() const noexcept { return *pool_; }
    int64_t n_pages() const noexcept { return static_cast<int64_t>(pages_.size()); }
    const Page& page(int64_t i) const noexcept { return pages_[i]; }

    // Reserves further pages of the pool. Returns false if there are too few.
    bool try_reserve(int64_t n);
    // Keeps at most n reserved pages.
    void limit_reservation(int64_t n) noexcept;

  private:
    Sequence(std::shared_ptr<PagePool> pool, int64_t n_context, int64_t n_to_reserve);
    int64_t pages_to_take(int64_t begin, int64_t end) const noexcept;
    void take_pages(int64_t begin, int64_t end) noexcept;
    Page take() noexcept;
    void append(const Page& page) noexcept;
    void show_pages() noexcept;
    void set_place(size_t i) noexcept;

    std::shared_ptr<PagePool> pool_;
    std::vector<Page> pages_;                      // capacity for n_context positions: never grows later
    std::vector<std::vector<std::byte*>> places_;  // addresses of these pages, for each part
    std::vector<backend::KvSequence> views_;       // one for each part
    int64_t n_reserved_ = 0;
};

}  // namespace minim::kv
