// Pages of keys and values, counted: a page belongs to every sequence that holds it and is free again when
// the last one lets go. What a sequence may need later is promised to it beforehand, so that running out of
// memory is an error when a context is asked for and never in the middle of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/kv_view.h"
#include "base/buffer.h"

namespace minim::kv {

// Pages that n_positions take.
int64_t page_count(int64_t n_positions) noexcept;

// Bytes of the pages for n_context positions; throws invalid where that is no sensible size.
uint64_t bytes_for(const backend::KvLayout& layout, int64_t n_context);

struct PoolState {
    int64_t n_pages = 0;     // there is memory for
    int64_t n_held = 0;      // by at least one sequence
    int64_t n_promised = 0;  // of the others

    int64_t n_unclaimed() const noexcept { return n_pages - n_held - n_promised; }
    bool operator==(const PoolState&) const = default;
};

class PagePool;

// A page as its holders know it.
class Page {
  public:
    std::byte* data() const noexcept { return data_; }

  private:
    friend class PagePool;
    int32_t slab_ = 0;
    int32_t index_ = 0;
    std::byte* data_ = nullptr;
};

// Any thread.
class PagePool {
  public:
    // Throws unsupported for a format that is_kv_format does not know, or whose blocks a head does not fill.
    explicit PagePool(const backend::KvLayout& layout);
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    const backend::KvLayout& layout() const noexcept { return layout_; }
    PoolState state() const;

    // Takes memory for n pages that stays until the pool ends. Throws out_of_memory naming the bytes asked,
    // the bytes available and the largest context that would fit.
    void keep_pages(int64_t n);

    // Promises n of the pages that are neither held nor promised. False, and nothing, where there are fewer.
    bool try_promise(int64_t n);

    // The same, taking memory for the pages that are missing; it is given back once nobody needs so many.
    // Throws as keep_pages.
    void promise(int64_t n);

    void withdraw_promise(int64_t n) noexcept;

    // A page of a promise, its contents unspecified, held once.
    Page take() noexcept;

    void share(const Page& page) noexcept;
    bool is_shared(const Page& page) const noexcept;

    // Lets go of a page once. Where nobody else holds it and `keep_promise` is set, a page stays promised to
    // the caller: returns whether that is so.
    bool release(const Page& page, bool keep_promise) noexcept;

  private:
    struct Slab {
        Buffer memory;
        std::vector<int32_t> n_holders;  // a page
        std::vector<int32_t> free;       // a stack of pages
        bool stays = false;
    };

    Slab make_slab(int64_t n, bool stays) const;
    void add_slab(Slab slab, int64_t n_to_promise);
    int64_t promise_free(int64_t n, bool all_or_nothing);
    void drop_spare_slabs() noexcept;

    const backend::KvLayout layout_;
    mutable std::mutex mutex_;
    std::vector<Slab> slabs_;  // one that was given back stays as an empty place
    PoolState state_;
};

}  // namespace minim::kv
