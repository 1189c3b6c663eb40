// One sequence's keys and values: its pages, in the order of positions, and the promise of those it may need
// yet. Pages may be shared with other sequences of the same pool; a page is this one's alone before it is
// written to.
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
    // Holds nothing yet, with the pages for n_context positions promised. Throws as PagePool::promise.
    Sequence(const std::shared_ptr<PagePool>& pool, int64_t n_context);

    // The same with nothing promised.
    static Sequence unpromised(std::shared_ptr<PagePool> pool, int64_t n_context);

    // A pool of its own, and pages for n_context positions at hand.
    static Sequence alone(const backend::KvLayout& layout, int64_t n_context);

    // Another sequence of n_context positions that begins with the first n_shared of this one: whole pages
    // are shared, what is left is copied. Throws as PagePool::promise.
    Sequence fork(int64_t n_shared, int64_t n_context) const;

    ~Sequence();
    Sequence(Sequence&&) noexcept;
    Sequence& operator=(Sequence&&) = delete;
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;

    // Makes positions begin .. end - 1 writable, and those before `begin` stay as they are. Takes memory only
    // where pages shared with others are written again, after truncate(). Throws out_of_memory; the sequence
    // then holds what it held.
    void hold(int64_t begin, int64_t end);

    // The same for a pool that is shared with others: takes no memory, but further pages of the pool where
    // the promise does not suffice. False, and nothing, where there are too few.
    bool try_hold(int64_t begin, int64_t end);

    // Adds whole pages of another sequence, or a copy of one, behind those that it holds. There must be room
    // in its context. A copy wants a promised page: false where there is none.
    void append_shared(const Page& page) noexcept;
    bool append_copy(const Page& page) noexcept;

    // Lets go of the pages behind the first `count` positions.
    void truncate(int64_t count) noexcept;

    const backend::KvLayout& layout() const noexcept { return pool_->layout(); }
    // As attention sees it, the first part of the pool's parts; stays at its place until the sequence is moved.
    const backend::KvSequence& view() const noexcept { return views_[0]; }
    const PagePool& pool() const noexcept { return *pool_; }
    int64_t n_pages() const noexcept { return static_cast<int64_t>(pages_.size()); }
    const Page& page(int64_t i) const noexcept { return pages_[static_cast<size_t>(i)]; }

    // Further pages of the pool that nobody else may take: false where there are too few.
    bool try_promise(int64_t n);
    // Keeps at most n promised pages.
    void limit_promise(int64_t n) noexcept;

  private:
    Sequence(std::shared_ptr<PagePool> pool, int64_t n_context, int64_t n_to_promise);
    int64_t pages_to_take(int64_t begin, int64_t end) const noexcept;
    void take_pages(int64_t begin, int64_t end) noexcept;
    Page take() noexcept;
    void append(const Page& page) noexcept;
    void show_pages() noexcept;
    void set_place(size_t i) noexcept;

    std::shared_ptr<PagePool> pool_;
    std::vector<Page> pages_;                      // capacity for n_context positions: never grows later
    std::vector<std::vector<std::byte*>> places_;  // of the same pages, a part
    std::vector<backend::KvSequence> views_;       // a part
    int64_t n_promised_ = 0;
};

}  // namespace minim::kv
