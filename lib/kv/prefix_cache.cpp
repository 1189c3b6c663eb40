// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_cache.h"

#include <algorithm>
#include <new>
#include <utility>

namespace minim::kv {

using backend::k_kv_page_tokens;

int64_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) noexcept {
    return std::ranges::mismatch(a, b).in1 - a.begin();
}

PrefixCache::PrefixCache(std::shared_ptr<PagePool> pool) : pool_(std::move(pool)) {}

PrefixCache::~PrefixCache() {
    for (const auto& node : nodes_) pool_->release(node->page, false);
}

PrefixCache::Found PrefixCache::look_up(std::span<const int32_t> tokens) {
    Found found;
    found.node = &root_;
    while (found.n_whole < static_cast<int64_t>(tokens.size())) {
        const auto rest = tokens.subspan(found.n_whole);
        const auto [first, last] = found.node->children.equal_range(rest[0]);
        Node* best = nullptr;
        int64_t n_best = 0;
        for (auto child = first; child != last; ++child) {
            const int64_t n = common_length(rest, child->second->tokens);
            if (n <= n_best) continue;
            best = child->second;
            n_best = n;
        }
        if (n_best < k_kv_page_tokens) {
            found.begun = best;
            found.n_begun = n_best;
            break;
        }
        found.node = best;
        found.n_whole += n_best;
    }
    return found;
}

// Moves a node and its parents to the end of the list, children before their parents: so the oldest page never has children.
void PrefixCache::mark_used(Node* node) {
    for (; node != &root_; node = node->parent) nodes_.splice(nodes_.end(), nodes_, node->place);
}

int64_t PrefixCache::find(std::span<const int32_t> tokens) {
    const Found found = look_up(tokens);
    mark_used(found.begun != nullptr ? found.begun : found.node);
    return found.n_whole + found.n_begun;
}

int64_t PrefixCache::extend(std::span<const int32_t> tokens, Sequence& sequence) {
    const Found found = look_up(tokens);
    std::vector<const Page*> pages;  // the last one first
    for (const Node* node = found.node; node != &root_; node = node->parent) pages.push_back(&node->page);
    const int64_t n_whole = found.n_whole / k_kv_page_tokens;
    for (int64_t i = sequence.n_pages(); i < n_whole; ++i) sequence.append_shared(*pages[n_whole - 1 - i]);
    const int64_t n_in_use = sequence.n_pages() * k_kv_page_tokens;
    if (n_in_use > found.n_whole || found.n_begun == 0 || !sequence.append_copy(found.begun->page))
        return n_in_use;
    return found.n_whole + found.n_begun;
}

PrefixCache::Node* PrefixCache::add(Node* parent, std::span<const int32_t> tokens, const Page& page,
                                    Age age) {
    auto owned = std::make_unique<Node>();
    Node* node = owned.get();
    node->tokens.assign(tokens.begin(), tokens.end());
    node->parent = parent;
    node->page = page;
    node->place = nodes_.insert(age == Age::newest ? nodes_.end() : nodes_.begin(), std::move(owned));
    try {
        parent->children.emplace(tokens[0], node);
    } catch (...) {
        nodes_.erase(node->place);
        throw;
    }
    pool_->share(page);
    return node;
}

void PrefixCache::keep(std::span<const int32_t> tokens, const Sequence& sequence) noexcept {
    const Found found = look_up(tokens);
    Node* last = found.node;
    auto rest = tokens.subspan(found.n_whole);
    if (found.n_begun > 0 && found.n_begun == static_cast<int64_t>(rest.size())) {
        last = found.begun;  // the cached page has as many positions, or more
        rest = {};
    }
    try {
        // Replaces the page that was kept for this text when it had fewer positions.
        const bool grew = found.n_begun > 0 && found.n_begun == std::ssize(found.begun->tokens);
        if (grew && !rest.empty()) {
            const auto of_page = rest.first(std::min<size_t>(rest.size(), k_kv_page_tokens));
            found.begun->tokens.assign(of_page.begin(), of_page.end());
            const Page page = sequence.page(found.n_whole / k_kv_page_tokens);
            pool_->share(page);
            pool_->release(std::exchange(found.begun->page, page), false);
            last = found.begun;
            rest = rest.subspan(of_page.size());
        }
        for (; !rest.empty(); rest = rest.subspan(last->tokens.size())) {
            const auto at = static_cast<int64_t>(tokens.size() - rest.size()) / k_kv_page_tokens;
            last = add(last, rest.first(std::min<size_t>(rest.size(), k_kv_page_tokens)), sequence.page(at),
                       Age::newest);
        }
    } catch (const std::bad_alloc&) {
        // Positions that are not kept will be evaluated again.
    }
    mark_used(last);
}

int64_t PrefixCache::n_droppable() const noexcept {
    // An owner of a page also owns the pages before it. So no shared page is below an unshared one.
    return std::ranges::count_if(nodes_, [&](const auto& node) { return !pool_->is_shared(node->page); });
}

bool PrefixCache::drop_oldest() {
    const auto oldest = std::ranges::find_if(nodes_, [&](const std::unique_ptr<Node>& node) {
        return node->children.empty() && !pool_->is_shared(node->page);
    });
    if (oldest == nodes_.end()) return false;
    Node* node = oldest->get();
    const auto [first, last] = node->parent->children.equal_range(node->tokens[0]);
    node->parent->children.erase(
        std::find_if(first, last, [&](const auto& child) { return child.second == node; }));
    pool_->release(node->page, false);
    nodes_.erase(oldest);
    return true;
}

}  // namespace minim::kv
