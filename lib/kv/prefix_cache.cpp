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

PrefixCache::PrefixCache(std::shared_ptr<PagePool> pool, const HostLimit& host)
    : pool_(std::move(pool)), host_limit_(host) {}

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

// Returns the nodes from the first page of a text to this one.
std::vector<PrefixCache::Node*> PrefixCache::path_to(Node* node) {
    std::vector<Node*> path;
    for (; node != &root_; node = node->parent) path.push_back(node);
    std::ranges::reverse(path);
    return path;
}

// Moves a node and its parents to the end of their lists, children before their parents: so the oldest page never has children.
void PrefixCache::mark_used(Node* node) {
    for (; node != &root_; node = node->parent) {
        NodeList& list = list_of(*node);
        list.splice(list.end(), list, node->place);
        node->used = ++newest_use_;
    }
}

int64_t PrefixCache::find(std::span<const int32_t> tokens) {
    const Found found = look_up(tokens);
    mark_used(found.begun != nullptr ? found.begun : found.node);
    return found.n_whole + found.n_begun;
}

int64_t PrefixCache::extend(std::span<const int32_t> tokens, Sequence& sequence) {
    return restore(tokens, sequence, [] { return false; }).n_positions;
}

PrefixCache::Restored PrefixCache::restore(std::span<const int32_t> tokens, Sequence& sequence,
                                           const std::function<bool()>& may_copy) {
    const Found found = look_up(tokens);
    const std::vector<Node*> path = path_to(found.node);
    for (int64_t i = sequence.n_pages(); i < std::ssize(path); ++i) {
        Node& node = *path[i];
        if (!node.is_on_host()) {
            sequence.append_shared(node.page);
            continue;
        }
        if (!may_copy()) return {i * k_kv_page_tokens, false};
        if (!sequence.append_bytes(node.host.data())) return {i * k_kv_page_tokens, true};
        set_page(node, sequence.page(i));
        ++n_restored_;
    }
    const int64_t n_in_use = sequence.n_pages() * k_kv_page_tokens;
    if (n_in_use > found.n_whole || found.n_begun == 0) return {n_in_use, true};
    const Node& begun = *found.begun;
    if (begun.is_on_host() && !may_copy()) return {n_in_use, false};
    // A partly filled page in host memory stays there: the sequence has its own.
    const bool has_copy =
        begun.is_on_host() ? sequence.append_bytes(begun.host.data()) : sequence.append_copy(begun.page);
    if (has_copy && begun.is_on_host()) ++n_restored_;
    return {has_copy ? found.n_whole + found.n_begun : n_in_use, true};
}

PrefixCache::Node* PrefixCache::add(Node* parent, std::span<const int32_t> tokens,
                                    std::unique_ptr<Node> owned, Age age) {
    Node* node = owned.get();
    node->tokens.assign(tokens.begin(), tokens.end());
    node->parent = parent;
    node->used = age == Age::newest ? ++newest_use_ : --oldest_use_;
    NodeList& list = list_of(*node);
    node->place = list.insert(age == Age::newest ? list.end() : list.begin(), std::move(owned));
    try {
        parent->children.emplace(tokens[0], node);
    } catch (...) {
        list.erase(node->place);
        throw;
    }
    return node;
}

// Adds a node that owns a page besides the page's other owners.
PrefixCache::Node* PrefixCache::add_page(Node* parent, std::span<const int32_t> tokens, const Page& page,
                                         Age age) {
    auto owned = std::make_unique<Node>();
    owned->page = page;
    Node* node = add(parent, tokens, std::move(owned), age);
    pool_->share(page);
    return node;
}

// Makes the node own this page, which has the contents of the node, instead of its page or its bytes in host memory.
void PrefixCache::set_page(Node& node, const Page& page) noexcept {
    pool_->share(page);
    const Page before = std::exchange(node.page, page);
    if (!node.is_on_host()) {
        pool_->release(before, false);
        return;
    }
    nodes_.splice(nodes_.end(), host_nodes_, node.place);
    node.host = Buffer();
    mark_used(&node);
}

void PrefixCache::keep(std::span<const int32_t> tokens, const Sequence& sequence) noexcept {
    const Found found = look_up(tokens);
    int64_t n_path = found.n_whole / k_kv_page_tokens;
    for (Node* node = found.node; node->is_on_host(); node = node->parent)
        set_page(*node, sequence.page(--n_path));
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
            set_page(*found.begun, sequence.page(found.n_whole / k_kv_page_tokens));
            last = found.begun;
            rest = rest.subspan(of_page.size());
        }
        for (; !rest.empty(); rest = rest.subspan(last->tokens.size())) {
            const auto at = static_cast<int64_t>(tokens.size() - rest.size()) / k_kv_page_tokens;
            last = add_page(last, rest.first(std::min<size_t>(rest.size(), k_kv_page_tokens)),
                            sequence.page(at), Age::newest);
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

// Takes a node without children out of the tree.
std::unique_ptr<PrefixCache::Node> PrefixCache::take_out(Node& node) noexcept {
    const auto [first, last] = node.parent->children.equal_range(node.tokens[0]);
    node.parent->children.erase(
        std::find_if(first, last, [&](const auto& child) { return child.second == &node; }));
    std::unique_ptr<Node> owned = std::move(*node.place);
    list_of(node).erase(node.place);
    return owned;
}

// Drops a node and those below it, which are in host memory.
void PrefixCache::drop(Node& top) noexcept {
    for (Node* node = &top;;) {
        while (!node->children.empty()) node = node->children.begin()->second;
        Node* const parent = node->parent;
        const std::unique_ptr<Node> owned = take_out(*node);
        if (!owned->is_on_host()) pool_->release(owned->page, false);
        if (node == &top) return;
        node = parent;
    }
}

bool PrefixCache::drop_oldest() {
    const auto is_resident = [](const auto& child) { return !child.second->is_on_host(); };
    const auto oldest = std::ranges::find_if(nodes_, [&](const std::unique_ptr<Node>& node) {
        return !pool_->is_shared(node->page) && std::ranges::none_of(node->children, is_resident);
    });
    if (oldest == nodes_.end()) return false;
    if (!move_to_host(**oldest)) drop(**oldest);
    return true;
}

int64_t PrefixCache::erase(std::span<const int32_t> tokens) {
    const Found found = look_up(tokens);
    const bool ends_in_page = found.n_begun > 0 && found.n_begun == std::ssize(found.begun->tokens);
    Node* node = ends_in_page ? found.begun : found.node;
    int64_t n_erased = 0;
    while (node != &root_ && node->children.empty()) {
        Node* const parent = node->parent;
        n_erased += std::ssize(node->tokens);
        drop(*node);
        node = parent;
    }
    return n_erased;
}

}  // namespace minim::kv
