// Pages of keys and values, counted: a page belongs to every sequence that holds it and is free again when
// the last one lets go. What a sequence may need later is promised to it beforehand, so that running out of
// memory is an error when a context is asked for and never in the middle of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
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

// Consecutive layers whose keys and values lie in the memory of one device.
struct Part {
    std::shared_ptr<const backend::Backend> backend;  // null: host memory
    int64_t n_layer = 0;
};

class PagePool;

// A page as its holders know it: one place in the memory of every part.
class Page {
    friend class PagePool;
    int32_t slab_ = 0;
    int32_t index_ = 0;
};

// Any thread.
class PagePool {
  public:
    // Throws unsupported for a format that is_kv_format does not know, or whose blocks a head does not fill.
    // `parts` have the layers of the layout, in their order; without them all lie in host memory.
    explicit PagePool(const backend::KvLayout& layout, std::vector<Part> parts = {});
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    const backend::KvLayout& layout() const noexcept { return layout_; }  // of all layers
    size_t n_parts() const noexcept { return parts_.size(); }
    const backend::KvLayout& part_layout(size_t part) const noexcept { return part_layouts_[part]; }
    // Whether a page is one block of host memory.
    bool is_on_host() const noexcept;
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

    // Where a page lies in the memory of a part.
    std::byte* place(const Page& page, size_t part) const noexcept;

    // Whole pages, [layout().page_bytes()] on the host. read() and write() throw device_lost.
    void read(const Page& page, std::byte* out) const;
    void write(const Page& page, const std::byte* bytes) const;
    void copy(const Page& from, const Page& to) const noexcept;

    void share(const Page& page) noexcept;
    bool is_shared(const Page& page) const noexcept;

    // Lets go of a page once. Where nobody else holds it and `keep_promise` is set, a page stays promised to
    // the caller: returns whether that is so.
    bool release(const Page& page, bool keep_promise) noexcept;

  private:
    struct Slab {
        std::vector<std::unique_ptr<backend::Memory>> memory;  // a part
        std::vector<int32_t> n_holders;                        // a page
        std::vector<int32_t> free;                             // a stack of pages
        bool stays = false;
    };

    Slab make_slab(int64_t n, bool stays) const;
    void add_slab(Slab slab, int64_t n_to_promise);
    int64_t promise_free(int64_t n, bool all_or_nothing);
    void drop_spare_slabs() noexcept;

    const backend::KvLayout layout_;
    const std::vector<Part> parts_;
    std::vector<backend::KvLayout> part_layouts_;
    mutable std::mutex mutex_;
    std::vector<Slab> slabs_;  // one that was given back stays as an empty place
    PoolState state_;
};

// A page on the host, one after another: the page itself where it lies there, else a copy of it.
class HostPage {
  public:
    // Throws out_of_memory.
    explicit HostPage(const PagePool& pool);

    // For reading; throws device_lost.
    const std::byte* read(const Page& page) const;
    // For writing all of it, up to write_back(), which throws device_lost.
    std::byte* place(const Page& page) const noexcept;
    void write_back(const Page& page) const;

  private:
    const PagePool& pool_;
    Buffer copy_;
};

}  // namespace minim::kv
