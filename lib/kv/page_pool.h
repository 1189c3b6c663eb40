// SPDX-License-Identifier: Apache-2.0
// KV cache pages with reference counts: a page belongs to every sequence that uses it and is free again when the last one
// releases it. Pages that a sequence may need later are reserved when it is created, so memory can run out only then, and
// never in the middle of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/kv_view.h"
#include "base/buffer.h"
#include "kv/page_store.h"
#include "kv/remote_pages.h"

namespace minim::kv {

struct PoolState {
    int64_t n_pages = 0;     // pages that have memory
    int64_t n_in_use = 0;    // pages that at least one sequence owns
    int64_t n_reserved = 0;  // reserved pages among those without an owner

    int64_t n_unclaimed() const noexcept { return n_pages - n_in_use - n_reserved; }
    bool operator==(const PoolState&) const = default;
};

// Consecutive layers whose KV cache is in the memory of one device.
struct DeviceLayers {
    std::shared_ptr<const backend::Backend> backend;  // null: host memory
    int64_t n_layer = 0;
};

// The parts of pages in all processes.
struct PageParts {
    std::vector<PagePart> here;
    RemotePages* remote = nullptr;  // null: there are no other processes; else it must outlive the pool
    std::vector<std::vector<PagePart>> remote_parts = {};  // of other processes, from process 1 on
};

// Any thread.
class PagePool {
  public:
    // Throws unsupported if is_kv_format() is false for a format, or if a head is not a multiple of the format's blocks.
    // `parts` have the layers of the layout, in their order. Without parts, all layers are in host memory.
    explicit PagePool(const backend::KvLayout& layout, std::vector<DeviceLayers> parts = {});
    // Does the same for parts that may be in other processes. Together they have all heads of all layers. Throws what other
    // processes refuse with, and peer_lost.
    PagePool(const backend::KvLayout& layout, PageParts parts);
    ~PagePool();
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    const backend::KvLayout& layout() const noexcept { return store_.layout(); }  // of all layers
    // Return the parts in this process.
    size_t n_parts() const noexcept { return store_.parts().size(); }
    const backend::KvLayout& part_layout(size_t part) const noexcept { return store_.part_layout(part); }
    // Returns the number by which other processes know the pool.
    uint32_t number() const noexcept { return number_; }
    // Returns whether a page is one block of host memory.
    bool is_on_host() const noexcept;
    PoolState state() const;

    // Allocates n pages that stay until the pool ends. Throws out_of_memory, with the bytes needed, the bytes available
    // and the largest context that would fit.
    void keep_pages(int64_t n);

    // Reserves n pages that are neither owned nor reserved. Returns false, and reserves none, if there are fewer.
    bool try_reserve(int64_t n);

    // Does the same, but allocates missing pages, which are freed once they are not needed. Throws as keep_pages.
    void reserve(int64_t n);

    void release_reservation(int64_t n) noexcept;

    // Takes a reserved page, with one owner and unspecified contents.
    Page take() noexcept;

    // Returns the address of a page in the memory of a part.
    std::byte* place(const Page& page, size_t part) const noexcept { return store_.place(page, part); }

    // Copy a whole page, layout().page_bytes() bytes: to the host, from the host, to another page. read() and write()
    // throw device_lost and peer_lost.
    void read(const Page& page, std::byte* out) const;
    void write(const Page& page, const std::byte* bytes) const;
    void copy(const Page& from, const Page& to) const noexcept;

    void share(const Page& page) noexcept;
    bool is_shared(const Page& page) const noexcept;

    // Removes one owner of a page. If it was the last owner and `keep_reserved` is set, keeps a page reserved for the
    // caller and returns true.
    bool release(const Page& page, bool keep_reserved) noexcept;

  private:
    struct Slab {
        std::vector<int32_t> n_holders;  // owners of each page
        std::vector<int32_t> free;       // a stack of pages
        bool stays = false;
        bool is_named = false;  // its number is taken; it may have no pages yet
    };

    int32_t name_slab();
    void make_slab(int64_t n, bool stays, int64_t n_to_reserve);
    int64_t reserve_free(int64_t n, bool all_or_nothing);
    void drop_spare_slabs() noexcept;

    PageStore store_;
    RemotePages* const remote_;  // null: there are no other processes
    const std::vector<std::vector<PagePart>> remote_parts_;
    uint32_t number_ = 0;
    mutable std::mutex mutex_;
    std::vector<Slab> slabs_;  // by number; a freed slab stays as an empty entry
    PoolState state_;
};

// Host access to one page after another: to the page itself if it is in host memory, else to a copy of it.
class HostPage {
  public:
    // Throws out_of_memory.
    explicit HostPage(const PagePool& pool);

    // Returns the page's bytes for reading. Throws device_lost.
    const std::byte* read(const Page& page) const;
    // Returns a buffer in which the caller writes the whole page before write_back(), which throws device_lost.
    std::byte* place(const Page& page) const noexcept;
    void write_back(const Page& page) const;

  private:
    const PagePool& pool_;
    Buffer copy_;
};

}  // namespace minim::kv
