#include "kv/page_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

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
        fail(Status::unsupported, "keys in {} want heads whose dimension is a power of two, not {}",
             traits(layout.k_format).name, layout.head_dim);
    }
}

Buffer take_memory(const KvLayout& layout, int64_t n_pages) {
    const int64_t n_context = n_pages * k_kv_page_tokens;
    const uint64_t bytes = bytes_for(layout, n_context);
    const uint64_t available = available_memory_bytes();
    if (bytes > available) {
        const int64_t fitting = static_cast<int64_t>(available) / layout.page_bytes() * k_kv_page_tokens;
        ErrorFacts facts;
        facts.requested = static_cast<int64_t>(bytes);
        facts.available = static_cast<int64_t>(available);
        throw Error(
            Status::out_of_memory, Reason::none,
            format_text(
                "KV cache of {} tokens: {} bytes needed, {} bytes available; a context of {} would fit",
                n_context, bytes, available, fitting),
            facts);
    }
    return Buffer(bytes, "KV cache");
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

PagePool::PagePool(const KvLayout& layout) : layout_(layout) {
    check_formats(layout);
}

PoolState PagePool::state() const {
    const std::lock_guard lock(mutex_);
    return state_;
}

PagePool::Slab PagePool::make_slab(int64_t n, bool stays) const {
    Slab slab;
    slab.memory = take_memory(layout_, n);
    slab.n_holders.resize(static_cast<size_t>(n));
    slab.free.resize(static_cast<size_t>(n));
    // The stack's top is the first page, so that pages are taken in the order of their addresses.
    for (int64_t i = 0; i < n; ++i) slab.free[static_cast<size_t>(i)] = static_cast<int32_t>(n - 1 - i);
    slab.stays = stays;
    return slab;
}

void PagePool::add_slab(Slab slab, int64_t n_to_promise) {
    const auto n = static_cast<int64_t>(slab.n_holders.size());
    const std::lock_guard lock(mutex_);
    const auto empty = std::ranges::find_if(slabs_, [](const Slab& s) { return s.n_holders.empty(); });
    if (empty != slabs_.end()) {
        *empty = std::move(slab);
    } else {
        slabs_.push_back(std::move(slab));
    }
    state_.n_pages += n;
    state_.n_promised += n_to_promise;
}

void PagePool::keep_pages(int64_t n) {
    add_slab(make_slab(n, true), 0);
}

// Promises up to n of the pages at hand and returns how many.
int64_t PagePool::promise_free(int64_t n, bool all_or_nothing) {
    const std::lock_guard lock(mutex_);
    if (all_or_nothing && state_.n_unclaimed() < n) return 0;
    const int64_t given = std::min(n, state_.n_unclaimed());
    state_.n_promised += given;
    return given;
}

bool PagePool::try_promise(int64_t n) {
    return n == 0 || promise_free(n, true) == n;
}

void PagePool::promise(int64_t n) {
    const int64_t given = promise_free(n, false);
    if (given == n) return;
    try {
        // Outside the lock: making the memory present takes its time.
        add_slab(make_slab(n - given, false), n - given);
    } catch (...) {
        withdraw_promise(given);
        throw;
    }
}

void PagePool::withdraw_promise(int64_t n) noexcept {
    const std::lock_guard lock(mutex_);
    assert(n <= state_.n_promised);
    state_.n_promised -= n;
    drop_spare_slabs();
}

Page PagePool::take() noexcept {
    const std::lock_guard lock(mutex_);
    assert(state_.n_promised > 0);
    const auto slab = std::ranges::find_if(slabs_, [](const Slab& s) { return !s.free.empty(); });
    assert(slab != slabs_.end());
    Page page;
    page.slab_ = static_cast<int32_t>(slab - slabs_.begin());
    page.index_ = slab->free.back();
    page.data_ = slab->memory.data() + page.index_ * layout_.page_bytes();
    slab->free.pop_back();
    slab->n_holders[static_cast<size_t>(page.index_)] = 1;
    --state_.n_promised;
    ++state_.n_held;
    return page;
}

void PagePool::share(const Page& page) noexcept {
    const std::lock_guard lock(mutex_);
    ++slabs_[static_cast<size_t>(page.slab_)].n_holders[static_cast<size_t>(page.index_)];
}

bool PagePool::is_shared(const Page& page) const noexcept {
    const std::lock_guard lock(mutex_);
    return slabs_[static_cast<size_t>(page.slab_)].n_holders[static_cast<size_t>(page.index_)] > 1;
}

bool PagePool::release(const Page& page, bool keep_promise) noexcept {
    const std::lock_guard lock(mutex_);
    Slab& slab = slabs_[static_cast<size_t>(page.slab_)];
    int32_t& n_holders = slab.n_holders[static_cast<size_t>(page.index_)];
    assert(n_holders > 0);
    if (--n_holders > 0) return false;
    slab.free.push_back(page.index_);  // has room: it once held every page
    --state_.n_held;
    if (keep_promise) ++state_.n_promised;
    drop_spare_slabs();
    return keep_promise;
}

// Gives back memory that no page or promise needs.
void PagePool::drop_spare_slabs() noexcept {
    for (Slab& slab : slabs_) {
        const auto n = static_cast<int64_t>(slab.n_holders.size());
        if (n == 0 || slab.stays || slab.free.size() < slab.n_holders.size()) continue;
        if (state_.n_pages - n < state_.n_held + state_.n_promised) continue;
        slab = Slab();
        state_.n_pages -= n;
    }
}

}  // namespace minim::kv
