// SPDX-License-Identifier: Apache-2.0
#include "kv/page_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
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

bool is_host(const DeviceLayers& part) {
    return part.backend == nullptr || part.backend->uses_host_memory();
}

std::unique_ptr<backend::Memory> take_memory(const DeviceLayers& part, const KvLayout& layout,
                                             int64_t n_pages) {
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

std::vector<DeviceLayers> with_host(std::vector<DeviceLayers> parts, const KvLayout& layout) {
    if (parts.empty()) parts.push_back({nullptr, layout.n_layer});
    return parts;
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

PagePool::PagePool(const KvLayout& layout, std::vector<DeviceLayers> parts)
    : layout_(layout), parts_(with_host(std::move(parts), layout)) {
    check_formats(layout);
    int64_t n_layer = 0;
    for (const DeviceLayers& part : parts_) {
        n_layer += part.n_layer;
        part_layouts_.push_back(layout);
        part_layouts_.back().n_layer = part.n_layer;
    }
    if (n_layer != layout.n_layer) fail_internal("{} layers in the parts of {}", n_layer, layout.n_layer);
}

bool PagePool::is_on_host() const noexcept {
    return parts_.size() == 1 && is_host(parts_[0]);
}

PoolState PagePool::state() const {
    const std::lock_guard lock(mutex_);
    return state_;
}

PagePool::Slab PagePool::make_slab(int64_t n, bool stays) const {
    Slab slab;
    for (size_t i = 0; i < parts_.size(); ++i)
        slab.memory.push_back(take_memory(parts_[i], part_layouts_[i], n));
    slab.n_holders.resize(n);
    slab.free.resize(n);
    // The stack's top is the first page, so that pages are taken in the order of their addresses.
    for (int64_t i = 0; i < n; ++i) slab.free[i] = static_cast<int32_t>(n - 1 - i);
    slab.stays = stays;
    return slab;
}

void PagePool::add_slab(Slab slab, int64_t n_to_reserve) {
    const auto n = static_cast<int64_t>(slab.n_holders.size());
    const std::lock_guard lock(mutex_);
    const auto empty = std::ranges::find_if(slabs_, [](const Slab& s) { return s.n_holders.empty(); });
    if (empty != slabs_.end()) {
        *empty = std::move(slab);
    } else {
        slabs_.push_back(std::move(slab));
    }
    state_.n_pages += n;
    state_.n_reserved += n_to_reserve;
}

void PagePool::keep_pages(int64_t n) {
    add_slab(make_slab(n, true), 0);
}

// Reserves up to n of the free pages and returns how many.
int64_t PagePool::reserve_free(int64_t n, bool all_or_nothing) {
    const std::lock_guard lock(mutex_);
    if (all_or_nothing && state_.n_unclaimed() < n) return 0;
    const int64_t given = std::min(n, state_.n_unclaimed());
    state_.n_reserved += given;
    return given;
}

bool PagePool::try_reserve(int64_t n) {
    return n == 0 || reserve_free(n, true) == n;
}

void PagePool::reserve(int64_t n) {
    const int64_t given = reserve_free(n, false);
    if (given == n) return;
    try {
        // Outside the lock: prefaulting takes time.
        add_slab(make_slab(n - given, false), n - given);
    } catch (...) {
        release_reservation(given);
        throw;
    }
}

void PagePool::release_reservation(int64_t n) noexcept {
    const std::lock_guard lock(mutex_);
    assert(n <= state_.n_reserved);
    state_.n_reserved -= n;
    drop_spare_slabs();
}

Page PagePool::take() noexcept {
    const std::lock_guard lock(mutex_);
    assert(state_.n_reserved > 0);
    const auto slab = std::ranges::find_if(slabs_, [](const Slab& s) { return !s.free.empty(); });
    assert(slab != slabs_.end());
    Page page;
    page.slab = static_cast<int32_t>(slab - slabs_.begin());
    page.index = slab->free.back();
    slab->free.pop_back();
    slab->n_holders[page.index] = 1;
    --state_.n_reserved;
    ++state_.n_in_use;
    return page;
}

std::byte* PagePool::place(const Page& page, size_t part) const noexcept {
    const std::lock_guard lock(mutex_);
    const Slab& slab = slabs_[page.slab];
    return slab.memory[part]->data() + page.index * part_layouts_[part].page_bytes();
}

// The parts of a page follow each other on the host, as the layers of the whole layout do.
void PagePool::read(const Page& page, std::byte* out) const {
    for (size_t i = 0; i < parts_.size(); ++i) {
        const int64_t bytes = part_layouts_[i].page_bytes();
        if (is_host(parts_[i])) {
            std::memcpy(out, place(page, i), bytes);
        } else {
            parts_[i].backend->read(out, place(page, i), bytes);
        }
        out += bytes;
    }
}

void PagePool::write(const Page& page, const std::byte* bytes) const {
    for (size_t i = 0; i < parts_.size(); ++i) {
        const int64_t count = part_layouts_[i].page_bytes();
        if (is_host(parts_[i])) {
            std::memcpy(place(page, i), bytes, count);
        } else {
            parts_[i].backend->write(place(page, i), bytes, count);
        }
        bytes += count;
    }
}

void PagePool::copy(const Page& from, const Page& to) const noexcept {
    for (size_t i = 0; i < parts_.size(); ++i) {
        const int64_t bytes = part_layouts_[i].page_bytes();
        if (is_host(parts_[i])) {
            std::memcpy(place(to, i), place(from, i), bytes);
        } else {
            parts_[i].backend->copy(place(to, i), place(from, i), bytes);
        }
    }
}

void PagePool::share(const Page& page) noexcept {
    const std::lock_guard lock(mutex_);
    ++slabs_[page.slab].n_holders[page.index];
}

bool PagePool::is_shared(const Page& page) const noexcept {
    const std::lock_guard lock(mutex_);
    return slabs_[page.slab].n_holders[page.index] > 1;
}

bool PagePool::release(const Page& page, bool keep_reserved) noexcept {
    const std::lock_guard lock(mutex_);
    Slab& slab = slabs_[page.slab];
    int32_t& n_holders = slab.n_holders[page.index];
    assert(n_holders > 0);
    if (--n_holders > 0) return false;
    slab.free.push_back(page.index);  // does not allocate: every page of the slab was once in `free`
    --state_.n_in_use;
    if (keep_reserved) ++state_.n_reserved;
    drop_spare_slabs();
    return keep_reserved;
}

// Frees slabs that no page or reservation needs.
void PagePool::drop_spare_slabs() noexcept {
    for (Slab& slab : slabs_) {
        const auto n = static_cast<int64_t>(slab.n_holders.size());
        if (n == 0 || slab.stays || slab.free.size() < slab.n_holders.size()) continue;
        if (state_.n_pages - n < state_.n_in_use + state_.n_reserved) continue;
        slab = Slab();
        state_.n_pages -= n;
    }
}

HostPage::HostPage(const PagePool& pool)
    : pool_(pool),
      copy_(pool.is_on_host() ? 0 : static_cast<uint64_t>(pool.layout().page_bytes()),
            "a page of the KV cache") {}

const std::byte* HostPage::read(const Page& page) const {
    if (pool_.is_on_host()) return pool_.place(page, 0);
    pool_.read(page, copy_.data());
    return copy_.data();
}

std::byte* HostPage::place(const Page& page) const noexcept {
    return pool_.is_on_host() ? pool_.place(page, 0) : copy_.data();
}

void HostPage::write_back(const Page& page) const {
    if (!pool_.is_on_host()) pool_.write(page, copy_.data());
}

}  // namespace minim::kv
