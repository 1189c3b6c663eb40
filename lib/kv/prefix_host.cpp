// SPDX-License-Identifier: Apache-2.0
// The pages of the prefix cache that are in host memory.
#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/memory_info.h"
#include "kv/prefix_cache.h"

namespace minim::kv {

PrefixCache::Node* PrefixCache::add_on_host(Node* parent, std::span<const int32_t> tokens, Buffer bytes,
                                            Age age) {
    auto owned = std::make_unique<Node>();
    owned->host = std::move(bytes);
    return add(parent, tokens, std::move(owned), age);
}

// Returns whether the machine has memory for one more page besides what stays free; false if no page goes there.
bool PrefixCache::has_host_memory() const noexcept {
    if (host_limit_.bytes == 0) return false;
    const uint64_t available = available_memory_bytes();
    return available >= page_bytes() && available - page_bytes() >= host_limit_.least_free;
}

// Returns memory for one more page; empty if there is none within the limit.
Buffer PrefixCache::new_room_on_host() const noexcept {
    const uint64_t bytes = page_bytes();
    if (host_limit_.bytes < bytes || host_bytes() > host_limit_.bytes - bytes) return {};
    try {
        return Buffer(bytes, "a prompt state in host memory");
    } catch (const Error&) {
        return {};
    }
}

// Returns memory for the page of a node: new memory, or that of the page there that was least recently used, which is dropped; empty
// if those pages were all used later than the node. If the machine is short of memory, the oldest page is freed instead.
Buffer PrefixCache::room_on_host_for(const Node& node) noexcept {
    if (host_limit_.bytes == 0) return {};
    const bool has_memory = has_host_memory();
    if (has_memory)
        if (Buffer room = new_room_on_host(); room.size() > 0) return room;
    if (host_nodes_.empty() || host_nodes_.front()->used > node.used) return {};
    const std::unique_ptr<Node> oldest = take_out(*host_nodes_.front());
    return has_memory ? std::move(oldest->host) : Buffer();
}

// Returns false if host memory has no room for the page, or the device cannot be read: then its next step says so.
bool PrefixCache::move_to_host(Node& node) noexcept {
    Buffer room = room_on_host_for(node);
    if (room.size() == 0) return false;
    try {
        pool_->read(node.page, room.data());
    } catch (const std::exception&) {
        return false;
    }
    pool_->release(node.page, false);
    node.host = std::move(room);
    // Pages that were used later may be there already: a text was looked up, but not read.
    const auto later = std::find_if(host_nodes_.rbegin(), host_nodes_.rend(),
                                    [&](const auto& other) { return other->used < node.used; });
    host_nodes_.splice(later.base(), nodes_, node.place);
    ++n_stored_;
    return true;
}

}  // namespace minim::kv
