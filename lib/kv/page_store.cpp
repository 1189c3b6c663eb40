// SPDX-License-Identifier: Apache-2.0
#include "kv/page_store.h"

#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "backend/device_memory.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"

namespace minim::kv {
namespace {

using backend::k_kv_page_tokens;
using backend::KvLayout;

void check_formats(const KvLayout& layout) {
    for (const Format format : {layout.k_format, layout.v_format}) {
        if (!backend::is_kv_format(format)) {
            fail(Status::unsupported, "KV format {} is not supported; F32, F16, BF16, Q8_0 and Q4_0 are",
                 traits(format).name);
        }
        if (layout.head_dim % traits(format).block_elems != 0) {
            fail(Status::unsupported, "KV format {} has blocks of {}, which heads of {} do not fill",
                 traits(format).name, traits(format).block_elems, layout.head_dim);
        }
    }
    if (layout.rotates_keys() && !std::has_single_bit(static_cast<uint64_t>(layout.head_dim))) {
        fail(Status::unsupported, "keys in {} need a head dimension that is a power of two, not {}",
             traits(layout.k_format).name, layout.head_dim);
    }
}

// `device`: empty for the host.
[[noreturn]] void fail_kv_memory(const KvLayout& layout, int64_t n_pages, std::string_view device,
                                 const std::string& budget, uint64_t bytes, uint64_t available) {
    const int64_t fitting = static_cast<int64_t>(available) / layout.page_bytes() * k_kv_page_tokens;
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(bytes);
    facts.available = static_cast<int64_t>(available);
    facts.device = DeviceName(device);
    throw Error(
        device.empty() ? Status::out_of_memory : Status::out_of_device_memory, Reason::none,
        format_text(
            "KV cache of {} tokens{}: {} bytes needed, {} bytes available; a context of {} would fit{}",
            n_pages * k_kv_page_tokens, device.empty() ? "" : format_text(" on {}", device), bytes, available,
            fitting, budget),
        facts);
}

bool is_host(const PagePart& part) {
    return part.backend == nullptr || part.backend->uses_host_memory();
}

std::unique_ptr<backend::Memory> take_memory(const PagePart& part, const KvLayout& layout, int64_t n_pages) {
    const uint64_t bytes = bytes_for(layout, n_pages * k_kv_page_tokens);
    const bool on_host = is_host(part);
    const uint64_t available = on_host ? available_memory_bytes() : part.backend->available_bytes();
    if (bytes > available && on_host) fail_kv_memory(layout, n_pages, {}, {}, bytes, available);
    if (bytes > available)
        fail_kv_memory(layout, n_pages, part.backend->name(), backend::budget_text(part.backend->memory()),
                       bytes, available);
    if (part.backend == nullptr) return backend::allocate_host_memory(bytes, "KV cache");
    return part.backend->allocate(bytes, "KV cache", backend::MemoryUse::kv);
}

// Calls visit(offset in the whole page, offset in the part, bytes) for each run of a part's bytes.
template <typename Visit>
void for_each_run(const KvLayout& whole, const PagePart& part, const Visit& visit) {
    const int64_t k_bytes = part.n_head * k_kv_page_tokens * whole.k_token_bytes();
    const int64_t v_bytes = part.n_head * k_kv_page_tokens * whole.v_token_bytes();
    const int64_t index_bytes = k_kv_page_tokens * whole.index_token_bytes();
    int64_t at = 0;
    for (int64_t layer = part.first_layer; layer < part.first_layer + part.n_layer; ++layer) {
        visit(whole.k_offset(layer, part.first_head), std::exchange(at, at + k_bytes), k_bytes);
        visit(whole.v_offset(layer, part.first_head), std::exchange(at, at + v_bytes), v_bytes);
        if (whole.has_index(layer))
            visit(whole.index_offset(layer), std::exchange(at, at + index_bytes), index_bytes);
    }
}

}  // namespace

int64_t page_count(int64_t n_positions) noexcept {
    return n_positions / k_kv_page_tokens + (n_positions % k_kv_page_tokens > 0 ? 1 : 0);
}

uint64_t bytes_for(const KvLayout& layout, int64_t n_context) {
    uint64_t bytes = 0;
    constexpr uint64_t k_limit = uint64_t{1} << 62;
    if (n_context < 1 ||
        !checked_mul(static_cast<uint64_t>(page_count(n_context)), static_cast<uint64_t>(layout.page_bytes()),
                     bytes) ||
        bytes > k_limit) {
        fail(Status::invalid, "a context of {} tokens is not possible", n_context);
    }
    return bytes;
}

KvLayout layout_of(const PagePart& part, const KvLayout& whole) noexcept {
    return whole.part(part.first_layer, part.n_layer, part.n_head);
}

void take_part(const KvLayout& whole, const PagePart& part, const std::byte* page, std::byte* out) noexcept {
    for_each_run(whole, part, [&](int64_t in_page, int64_t in_part, int64_t bytes) {
        std::memcpy(out + in_part, page + in_page, bytes);
    });
}

void put_part(const KvLayout& whole, const PagePart& part, const std::byte* bytes, std::byte* page) noexcept {
    for_each_run(whole, part, [&](int64_t in_page, int64_t in_part, int64_t count) {
        std::memcpy(page + in_page, bytes + in_part, count);
    });
}

PageStore::PageStore(const KvLayout& layout, std::vector<PagePart> parts)
    : layout_(layout), parts_(std::move(parts)) {
    check_formats(layout);
    for (const PagePart& part : parts_) {
        part_layouts_.push_back(layout_of(part, layout));
        bytes_ += part_layouts_.back().page_bytes();
    }
}

PageStore::Slab PageStore::allocate(int64_t n_pages) const {
    Slab slab;
    for (size_t i = 0; i < parts_.size(); ++i)
        slab.push_back(take_memory(parts_[i], part_layouts_[i], n_pages));
    return slab;
}

void PageStore::add(int32_t slab, Slab memory) {
    const std::lock_guard lock(mutex_);
    if (slab >= std::ssize(slabs_)) slabs_.resize(slab + 1);
    slabs_[slab] = std::move(memory);
}

void PageStore::drop(int32_t slab) noexcept {
    const std::lock_guard lock(mutex_);
    if (slab < std::ssize(slabs_)) slabs_[slab].clear();
}

std::byte* PageStore::place(const Page& page, size_t part) const noexcept {
    const std::lock_guard lock(mutex_);
    return slabs_[page.slab][part]->data() + page.index * part_layouts_[part].page_bytes();
}

std::vector<std::byte*> PageStore::places(std::span<const Page> pages, size_t part) const {
    std::vector<std::byte*> places;
    places.reserve(pages.size());
    const int64_t bytes = part_layouts_[part].page_bytes();
    const std::lock_guard lock(mutex_);
    for (const Page& page : pages) places.push_back(slabs_[page.slab][part]->data() + page.index * bytes);
    return places;
}

void PageStore::read(const Page& page, size_t part, std::byte* out) const {
    const int64_t bytes = part_layouts_[part].page_bytes();
    if (is_host(parts_[part])) {
        std::memcpy(out, place(page, part), bytes);
    } else {
        parts_[part].backend->read(out, place(page, part), bytes);
    }
}

void PageStore::write(const Page& page, size_t part, const std::byte* bytes) const {
    const int64_t count = part_layouts_[part].page_bytes();
    if (is_host(parts_[part])) {
        std::memcpy(place(page, part), bytes, count);
    } else {
        parts_[part].backend->write(place(page, part), bytes, count);
    }
}

std::vector<std::byte> PageStore::read_all(const Page& page) const {
    std::vector<std::byte> bytes(bytes_);
    std::byte* next = bytes.data();
    for (size_t part = 0; part < parts_.size(); next += part_layouts_[part++].page_bytes())
        read(page, part, next);
    return bytes;
}

void PageStore::write_all(const Page& page, std::span<const std::byte> bytes) const {
    if (std::ssize(bytes) != bytes_)
        fail_internal("{} bytes for a page whose parts here have {}", bytes.size(), bytes_);
    const std::byte* next = bytes.data();
    for (size_t part = 0; part < parts_.size(); next += part_layouts_[part++].page_bytes())
        write(page, part, next);
}

void PageStore::read_into(const Page& page, size_t part, std::byte* whole) const {
    if (is_contiguous(part)) return read(page, part, whole + layout_.layer_offset(parts_[part].first_layer));
    std::vector<std::byte> bytes(part_layouts_[part].page_bytes());
    read(page, part, bytes.data());
    put_part(layout_, parts_[part], bytes.data(), whole);
}

void PageStore::write_from(const Page& page, size_t part, const std::byte* whole) const {
    if (is_contiguous(part)) return write(page, part, whole + layout_.layer_offset(parts_[part].first_layer));
    std::vector<std::byte> bytes(part_layouts_[part].page_bytes());
    take_part(layout_, parts_[part], whole, bytes.data());
    write(page, part, bytes.data());
}

void PageStore::copy(const Page& from, const Page& to) const noexcept {
    for (size_t i = 0; i < parts_.size(); ++i) {
        const int64_t bytes = part_layouts_[i].page_bytes();
        if (is_host(parts_[i])) {
            std::memcpy(place(to, i), place(from, i), bytes);
        } else {
            parts_[i].backend->copy(place(to, i), place(from, i), bytes);
        }
    }
}

}  // namespace minim::kv
