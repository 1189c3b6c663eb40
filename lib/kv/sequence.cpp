// SPDX-License-Identifier: Apache-2.0
#include "kv/sequence.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace minim::kv {

using backend::k_kv_page_tokens;

namespace {

int64_t checked_page_count(const PagePool& pool, int64_t n_context) {
    bytes_for(pool.layout(), n_context);  // throws if n_context is out of range
    return page_count(n_context);
}

}  // namespace

Sequence::Sequence(std::shared_ptr<PagePool> pool, int64_t n_context, int64_t n_to_reserve)
    : pool_(std::move(pool)) {
    const int64_t n = page_count(n_context);
    pages_.reserve(n);
    places_.resize(pool_->n_parts());
    for (std::vector<std::byte*>& places : places_) places.resize(n);
    views_.resize(pool_->n_parts());
    pool_->reserve(n_to_reserve);
    n_reserved_ = n_to_reserve;
    show_pages();
}

Sequence::Sequence(const std::shared_ptr<PagePool>& pool, int64_t n_context)
    : Sequence(pool, n_context, checked_page_count(*pool, n_context)) {}

Sequence Sequence::unreserved(std::shared_ptr<PagePool> pool, int64_t n_context) {
    checked_page_count(*pool, n_context);
    return Sequence(std::move(pool), n_context, 0);
}

Sequence Sequence::alone(const backend::KvLayout& layout, int64_t n_context) {
    Sequence sequence(std::make_shared<PagePool>(layout), n_context);
    sequence.hold(0, n_context);
    return sequence;
}

Sequence::~Sequence() {
    if (!pool_) return;  // moved from
    truncate(0);
    limit_reservation(0);
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(std::move(other.pool_)),
      pages_(std::move(other.pages_)),
      places_(std::move(other.places_)),
      views_(std::move(other.views_)),
      n_reserved_(std::exchange(other.n_reserved_, 0)) {
    show_pages();
}

Sequence Sequence::fork(int64_t n_shared, int64_t n_context) const {
    const int64_t n_whole = n_shared / k_kv_page_tokens;
    Sequence copy(pool_, n_context, page_count(n_context) - n_whole);
    for (int64_t i = 0; i < n_whole; ++i) copy.append_shared(page(i));
    if (n_whole * k_kv_page_tokens < n_shared) copy.append_copy(page(n_whole));
    return copy;
}

// Returns the number of pages to take: missing ones, and copies of shared ones that are written to from `begin` on.
int64_t Sequence::pages_to_take(int64_t begin, int64_t end) const noexcept {
    const int64_t n_kept = std::min(n_pages(), page_count(end));
    int64_t n = page_count(end) - n_kept;
    for (int64_t i = begin / k_kv_page_tokens; i < n_kept; ++i)
        if (pool_->is_shared(page(i))) ++n;
    return n;
}

void Sequence::hold(int64_t begin, int64_t end) {
    const int64_t n = pages_to_take(begin, end);
    if (n > n_reserved_) {
        pool_->reserve(n - n_reserved_);
        n_reserved_ = n;
    }
    take_pages(begin, end);
}

bool Sequence::try_hold(int64_t begin, int64_t end) {
    const int64_t n = pages_to_take(begin, end);
    if (n > n_reserved_ && !try_reserve(n - n_reserved_)) return false;
    take_pages(begin, end);
    return true;
}

void Sequence::take_pages(int64_t begin, int64_t end) noexcept {
    const int64_t first = begin / k_kv_page_tokens;
    const int64_t n_kept = std::min(n_pages(), page_count(end));
    for (int64_t i = first; i < n_kept; ++i) {
        Page& page = pages_[i];
        if (!pool_->is_shared(page)) continue;
        const Page own = take();
        // Positions before `begin` may lie in the first of these pages only.
        if (i == first && begin % k_kv_page_tokens > 0) pool_->copy(page, own);
        if (pool_->release(page, true)) ++n_reserved_;
        page = own;
        set_place(i);
    }
    while (n_pages() < page_count(end)) append(take());
    show_pages();
}

void Sequence::append_shared(const Page& page) noexcept {
    pool_->share(page);
    append(page);
}

bool Sequence::append_copy(const Page& page) noexcept {
    if (n_reserved_ == 0) return false;
    const Page own = take();
    pool_->copy(page, own);
    append(own);
    return true;
}

bool Sequence::append_bytes(const std::byte* bytes) {
    if (n_reserved_ == 0) return false;
    const Page own = take();
    try {
        pool_->write(own, bytes);
    } catch (...) {
        if (pool_->release(own, true)) ++n_reserved_;
        throw;
    }
    append(own);
    return true;
}

bool Sequence::try_reserve(int64_t n) {
    if (!pool_->try_reserve(n)) return false;
    n_reserved_ += n;
    return true;
}

void Sequence::limit_reservation(int64_t n) noexcept {
    if (n_reserved_ <= n) return;
    pool_->release_reservation(n_reserved_ - n);
    n_reserved_ = n;
}

void Sequence::truncate(int64_t count) noexcept {
    for (; n_pages() > page_count(count); pages_.pop_back())
        if (pool_->release(pages_.back(), true)) ++n_reserved_;
    show_pages();
}

Page Sequence::take() noexcept {
    assert(n_reserved_ > 0);
    --n_reserved_;
    return pool_->take();
}

void Sequence::append(const Page& page) noexcept {
    assert(pages_.size() < pages_.capacity());
    pages_.push_back(page);
    set_place(pages_.size() - 1);
    show_pages();
}

void Sequence::set_place(size_t i) noexcept {
    for (size_t part = 0; part < places_.size(); ++part) places_[part][i] = pool_->place(pages_[i], part);
}

void Sequence::show_pages() noexcept {
    for (size_t part = 0; part < views_.size(); ++part) {
        views_[part] = {.layout = &pool_->part_layout(part),
                        .pages = std::span(places_[part]).first(pages_.size()),
                        .numbers = pages_,
                        .pool = pool_->number()};
    }
}

}  // namespace minim::kv
