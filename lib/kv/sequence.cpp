#include "kv/sequence.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace minim::kv {

using backend::k_kv_page_tokens;

namespace {

int64_t checked_page_count(const PagePool& pool, int64_t n_context) {
    bytes_for(pool.layout(), n_context);  // throws where that is no sensible size
    return page_count(n_context);
}

}  // namespace

Sequence::Sequence(std::shared_ptr<PagePool> pool, int64_t n_context, int64_t n_to_promise)
    : pool_(std::move(pool)) {
    const auto n = static_cast<size_t>(page_count(n_context));
    pages_.reserve(n);
    places_.reserve(n);
    pool_->promise(n_to_promise);
    n_promised_ = n_to_promise;
    show_pages();
}

Sequence::Sequence(const std::shared_ptr<PagePool>& pool, int64_t n_context)
    : Sequence(pool, n_context, checked_page_count(*pool, n_context)) {}

Sequence Sequence::alone(const backend::KvLayout& layout, int64_t n_context) {
    Sequence sequence(std::make_shared<PagePool>(layout), n_context);
    sequence.hold(0, n_context);
    return sequence;
}

Sequence::~Sequence() {
    if (!pool_) return;  // moved from
    truncate(0);
    pool_->withdraw_promise(n_promised_);
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(std::move(other.pool_)),
      pages_(std::move(other.pages_)),
      places_(std::move(other.places_)),
      n_promised_(std::exchange(other.n_promised_, 0)) {
    show_pages();
}

Sequence Sequence::fork(int64_t n_shared, int64_t n_context) const {
    const int64_t n_whole = n_shared / k_kv_page_tokens;
    Sequence copy(pool_, n_context, page_count(n_context) - n_whole);
    for (int64_t i = 0; i < n_whole; ++i) {
        const Page& page = pages_[static_cast<size_t>(i)];
        pool_->share(page);
        copy.append(page);
    }
    if (n_whole * k_kv_page_tokens < n_shared) {
        const Page page = copy.take();
        std::memcpy(page.data(), places_[static_cast<size_t>(n_whole)],
                    static_cast<size_t>(layout().page_bytes()));
        copy.append(page);
    }
    return copy;
}

void Sequence::hold(int64_t begin, int64_t end) {
    const int64_t first = begin / k_kv_page_tokens;
    const int64_t n_kept = std::min(n_pages(), page_count(end));
    int64_t n_new = page_count(end) - n_kept;
    for (int64_t i = first; i < n_kept; ++i)
        if (pool_->is_shared(pages_[static_cast<size_t>(i)])) ++n_new;
    if (n_new > n_promised_) {
        pool_->promise(n_new - n_promised_);
        n_promised_ = n_new;
    }
    for (int64_t i = first; i < n_kept; ++i) {
        Page& page = pages_[static_cast<size_t>(i)];
        if (!pool_->is_shared(page)) continue;
        const Page own = take();
        // Positions before `begin` may lie in the first of these pages only.
        if (i == first && begin % k_kv_page_tokens > 0)
            std::memcpy(own.data(), page.data(), static_cast<size_t>(layout().page_bytes()));
        if (pool_->release(page, true)) ++n_promised_;
        page = own;
        places_[static_cast<size_t>(i)] = own.data();
    }
    while (n_pages() < page_count(end)) append(take());
    show_pages();
}

void Sequence::truncate(int64_t count) noexcept {
    for (; n_pages() > page_count(count); pages_.pop_back(), places_.pop_back())
        if (pool_->release(pages_.back(), true)) ++n_promised_;
    show_pages();
}

Page Sequence::take() noexcept {
    assert(n_promised_ > 0);
    --n_promised_;
    return pool_->take();
}

void Sequence::append(const Page& page) noexcept {
    assert(pages_.size() < pages_.capacity());
    pages_.push_back(page);
    places_.push_back(page.data());
    show_pages();
}

void Sequence::show_pages() noexcept {
    view_ = {pool_ ? &pool_->layout() : nullptr, places_};
}

}  // namespace minim::kv
