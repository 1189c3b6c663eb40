// SPDX-License-Identifier: Apache-2.0
// The memory of KV cache pages on the devices of one process. A page is divided into parts: each device has some layers of
// it, and some heads of these layers. Slabs are blocks of pages; their numbers are the caller's.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/kv_view.h"

namespace minim::kv {

using Page = backend::KvPage;

// The layers and heads of a page that one device has. Several devices may have the same ones: each then has a copy.
struct PagePart {
    std::shared_ptr<const backend::Backend> backend =
        nullptr;  // null: host memory of this process, or another process
    int64_t first_layer = 0;
    int64_t n_layer = 0;
    int64_t first_head = 0;
    int64_t n_head = 0;

    bool has_same_positions(const PagePart& other) const noexcept {
        return first_layer == other.first_layer && n_layer == other.n_layer &&
               first_head == other.first_head && n_head == other.n_head;
    }
};

// Returns the bytes of the pages for n_context positions. Throws invalid if n_context is below 1 or too large to address.
uint64_t bytes_for(const backend::KvLayout& layout, int64_t n_context);

// Returns the number of pages for n_positions positions.
int64_t page_count(int64_t n_positions) noexcept;

// Returns the layout of a part, as the part's device sees it.
backend::KvLayout layout_of(const PagePart& part, const backend::KvLayout& whole) noexcept;

// Copy a part's bytes out of a whole page, and into it.
void take_part(const backend::KvLayout& whole, const PagePart& part, const std::byte* page,
               std::byte* out) noexcept;
void put_part(const backend::KvLayout& whole, const PagePart& part, const std::byte* bytes,
              std::byte* page) noexcept;

// Any thread.
class PageStore {
  public:
    // The memory of a slab's pages, one block for each part.
    using Slab = std::vector<std::unique_ptr<backend::Memory>>;

    // `layout`: of a whole page. Throws unsupported if is_kv_format() is false for a format, or if a head is not a multiple of
    // the format's blocks.
    PageStore(const backend::KvLayout& layout, std::vector<PagePart> parts);

    const backend::KvLayout& layout() const noexcept { return layout_; }
    std::span<const PagePart> parts() const noexcept { return parts_; }
    const backend::KvLayout& part_layout(size_t part) const noexcept { return part_layouts_[part]; }
    // Returns the bytes of all parts of a page.
    int64_t bytes() const noexcept { return bytes_; }

    // Allocates the memory of n pages. Throws out_of_memory or out_of_device_memory, with the bytes needed, the bytes
    // available and the largest context that would fit.
    Slab allocate(int64_t n_pages) const;
    // Set and free the memory of a slab.
    void add(int32_t slab, Slab memory);
    void drop(int32_t slab) noexcept;

    // Return the addresses of a page, and of several, in the memory of a part.
    std::byte* place(const Page& page, size_t part) const noexcept;
    std::vector<std::byte*> places(std::span<const Page> pages, size_t part) const;

    // Copy one part of a page, part_layout(part).page_bytes() bytes, to the host and from it. Throw device_lost.
    void read(const Page& page, size_t part, std::byte* out) const;
    void write(const Page& page, size_t part, const std::byte* bytes) const;
    // Do the same with all parts, one after another: bytes() bytes.
    std::vector<std::byte> read_all(const Page& page) const;
    void write_all(const Page& page, std::span<const std::byte> bytes) const;
    // Copy one part into the whole page of which it is a part, and out of it.
    void read_into(const Page& page, size_t part, std::byte* whole) const;
    void write_from(const Page& page, size_t part, const std::byte* whole) const;
    // Copies all parts to another page.
    void copy(const Page& from, const Page& to) const noexcept;

  private:
    // Returns whether the part is one run of bytes in the whole page: it has all heads.
    bool is_contiguous(size_t part) const noexcept { return parts_[part].n_head == layout_.n_head_kv; }

    const backend::KvLayout layout_;
    const std::vector<PagePart> parts_;
    std::vector<backend::KvLayout> part_layouts_;
    int64_t bytes_ = 0;
    mutable std::mutex mutex_;
    std::vector<Slab> slabs_;  // by number; a freed slab stays as an empty entry
};

}  // namespace minim::kv
