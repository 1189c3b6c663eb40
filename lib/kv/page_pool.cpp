// SPDX-License-Identifier: Apache-2.0
#include "kv/page_pool.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"

namespace minim::kv {
namespace {

using backend::KvLayout;

// Returns the parts of devices that follow each other in the layers, each with all heads.
PageParts parts_with(std::vector<DeviceLayers> devices, const KvLayout& layout) {
    PageParts parts;
    int64_t first = 0;
    for (DeviceLayers& device : devices)
        parts.here.push_back({.backend = std::move(device.backend),
                              .first_layer = std::exchange(first, first + device.n_layer),
                              .n_layer = device.n_layer,
                              .n_head = layout.n_head_kv});
    if (parts.here.empty()) {
        first = layout.n_layer;
        parts.here.push_back({.n_layer = layout.n_layer, .n_head = layout.n_head_kv});
    }
    if (first != layout.n_layer) fail_internal("{} layers in the parts of {}", first, layout.n_layer);
    return parts;
}

}  // namespace

PagePool::PagePool(const KvLayout& layout, std::vector<DeviceLayers> parts)
    : PagePool(layout, parts_with(std::move(parts), layout)) {}

PagePool::PagePool(const KvLayout& layout, PageParts parts)
    : store_(layout, std::move(parts.here)),
      remote_(parts.remote),
      remote_parts_(std::move(parts.remote_parts)) {
    if (remote_ != nullptr) number_ = remote_->make_pool(layout);
}

PagePool::~PagePool() {
    if (remote_ != nullptr) remote_->end_pool(number_);
}

bool PagePool::is_on_host() const noexcept {
    if (remote_ != nullptr || n_parts() != 1) return false;
    const PagePart& part = store_.parts().front();
    return part.backend == nullptr || part.backend->uses_host_memory();
}

PoolState PagePool::state() const {
    const std::lock_guard lock(mutex_);
    return state_;
}

// Takes the number of a slab that is to be made.
int32_t PagePool::name_slab() {
    const std::lock_guard lock(mutex_);
    auto free = std::ranges::find_if(slabs_, [](const Slab& slab) { return !slab.is_named; });
    if (free == slabs_.end()) free = slabs_.insert(free, Slab());
    free->is_named = true;
    return static_cast<int32_t>(free - slabs_.begin());
}

void PagePool::make_slab(int64_t n, bool stays, int64_t n_to_reserve) {
    // First, since it checks whether there is room for so many pages; outside the lock, since prefaulting takes time.
    PageStore::Slab memory = store_.allocate(n);
    Slab slab;
    slab.stays = stays;
    slab.is_named = true;
    slab.n_holders.resize(n);
    slab.free.resize(n);
    // The stack's top is the first page, so that pages are taken in the order of their addresses.
    for (int64_t i = 0; i < n; ++i) slab.free[i] = static_cast<int32_t>(n - 1 - i);
    const int32_t number = name_slab();
    try {
        store_.add(number, std::move(memory));
        if (remote_ != nullptr) remote_->add_slab(number_, number, n);
    } catch (...) {
        store_.drop(number);
        const std::lock_guard lock(mutex_);
        slabs_[number].is_named = false;
        throw;
    }
    const std::lock_guard lock(mutex_);
    slabs_[number] = std::move(slab);
    state_.n_pages += n;
    state_.n_reserved += n_to_reserve;
}

void PagePool::keep_pages(int64_t n) {
    make_slab(n, true, 0);
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
        make_slab(n - given, false, n - given);
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

void PagePool::read(const Page& page, std::byte* out) const {
    for (size_t i = 0; i < n_parts(); ++i) store_.read_into(page, i, out);
    std::vector<const PagePart*> known;  // parts that are read already: others may have copies of them
    for (const PagePart& part : store_.parts()) known.push_back(&part);
    for (int32_t process = 1; process <= std::ssize(remote_parts_); ++process) {
        const std::vector<PagePart>& parts = remote_parts_[process - 1];
        const auto is_new = [&](const PagePart& part) {
            return std::ranges::none_of(known,
                                        [&](const PagePart* k) { return k->has_same_positions(part); });
        };
        if (std::ranges::none_of(parts, is_new)) continue;
        const std::vector<std::byte> bytes = remote_->read(number_, page, process);
        const std::byte* next = bytes.data();
        for (const PagePart& part : parts) {
            put_part(layout(), part, next, out);
            next += layout_of(part, layout()).page_bytes();
            known.push_back(&part);
        }
    }
}

void PagePool::write(const Page& page, const std::byte* bytes) const {
    for (size_t i = 0; i < n_parts(); ++i) store_.write_from(page, i, bytes);
    for (int32_t process = 1; process <= std::ssize(remote_parts_); ++process) {
        std::vector<std::byte> taken;
        for (const PagePart& part : remote_parts_[process - 1]) {
            const size_t at = taken.size();
            taken.resize(at + layout_of(part, layout()).page_bytes());
            take_part(layout(), part, bytes, taken.data() + at);
        }
        remote_->write(number_, page, process, taken);
    }
}

void PagePool::copy(const Page& from, const Page& to) const noexcept {
    store_.copy(from, to);
    if (remote_ != nullptr) remote_->copy(number_, from, to);
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
    for (size_t i = 0; i < slabs_.size(); ++i) {
        Slab& slab = slabs_[i];
        const auto n = static_cast<int64_t>(slab.n_holders.size());
        if (n == 0 || slab.stays || slab.free.size() < slab.n_holders.size()) continue;
        if (state_.n_pages - n < state_.n_in_use + state_.n_reserved) continue;
        slab = Slab();
        store_.drop(static_cast<int32_t>(i));
        if (remote_ != nullptr) remote_->drop_slab(number_, static_cast<int32_t>(i));
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
