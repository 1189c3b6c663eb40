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

    // Lets go of the pages behind the first `count` positions.
    void truncate(int64_t count) noexcept;

    const backend::KvLayout& layout() const noexcept { return pool_->layout(); }
    // As attention sees it; stays at its place until the sequence is moved.
    const backend::KvSequence& view() const noexcept { return view_; }
    int64_t n_pages() const noexcept { return static_cast<int64_t>(pages_.size()); }

  private:
    Sequence(std::shared_ptr<PagePool> pool, int64_t n_context, int64_t n_to_promise);
    Page take() noexcept;
    void append(const Page& page) noexcept;
    void show_pages() noexcept;

    std::shared_ptr<PagePool> pool_;
    std::vector<Page> pages_;         // capacity for n_context positions: never grows later
    std::vector<std::byte*> places_;  // of the same pages
    int64_t n_promised_ = 0;
    backend::KvSequence view_;
};

}  // namespace minim::kv
