// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/new_file.h"
#include "kv/kv_file.h"
#include "kv/prefix_cache.h"

namespace minim::kv {
namespace {

using backend::k_kv_page_tokens;
using backend::KvLayout;

constexpr std::string_view k_prefix_magic = "minim-px";
constexpr uint64_t k_max_nodes = uint64_t{1} << 31;

// A node in the file; the nodes' pages follow in the same order, each with the slots that its tokens use.
struct NodeRecord {
    uint32_t parent;    // number of an earlier node plus 1, or 0: the root
    uint32_t n_tokens;  // 1 to 64
    uint64_t page_hash;
    int32_t tokens[k_kv_page_tokens];  // entries from n_tokens on are 0
};
static_assert(sizeof(NodeRecord) == 272);

// Offsets of the parts of the file: nodes, hash of the nodes, pages.
constexpr uint64_t k_nodes_at = sizeof(KvFileHeader);

uint64_t pages_at(uint64_t n_nodes) {
    return k_nodes_at + n_nodes * sizeof(NodeRecord) + sizeof(uint64_t);
}

// Returns false if a record is impossible on its own.
bool is_sensible(const NodeRecord& record, size_t number) {
    return record.parent <= number && record.n_tokens >= 1 && record.n_tokens <= k_kv_page_tokens;
}

}  // namespace

void PrefixCache::save(const std::string& path, uint64_t model, const CancelToken* cancel) const {
    const KvLayout& layout = pool_->layout();
    std::vector<const Node*> nodes;  // the last used first: parents before their children
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) nodes.push_back(node->get());
    std::unordered_map<const Node*, uint32_t> numbers = {{&root_, 0}};
    std::vector<NodeRecord> records;
    std::vector<std::byte> packed(packed_bytes(layout, k_kv_page_tokens));
    const HostPage host_page(*pool_);
    uint64_t bytes = pages_at(nodes.size());
    for (const Node* node : nodes) {
        throw_if_cancelled(cancel, "saving");
        const auto n_slots = std::ssize(node->tokens);
        NodeRecord record = {};
        record.parent = numbers.at(node->parent);
        record.n_tokens = static_cast<uint32_t>(n_slots);
        std::ranges::copy(node->tokens, record.tokens);
        pack_page(layout, host_page.read(node->page), n_slots, packed.data());
        record.page_hash = hash_bytes(std::span(packed).first(packed_bytes(layout, n_slots)));
        records.push_back(record);
        numbers[node] = static_cast<uint32_t>(records.size());
        bytes += packed_bytes(layout, n_slots);
    }
    KvFileHeader header = new_header(k_prefix_magic, model, layout);
    header.counts[0] = records.size();
    seal_header(header, bytes);

    NewFile file(path, bytes, Readers::owner);
    file.write(bytes_of(header));
    file.write(std::as_bytes(std::span(records)));
    file.write(bytes_of(hash_bytes(std::as_bytes(std::span(records)))));
    for (const Node* node : nodes) {
        throw_if_cancelled(cancel, "saving");
        const auto n_slots = std::ssize(node->tokens);
        pack_page(layout, host_page.read(node->page), n_slots, packed.data());
        file.write(std::span(packed).first(packed_bytes(layout, n_slots)));
    }
    file.commit();
}

PrefixCache::Node* PrefixCache::child_of(const Node& parent, std::span<const int32_t> tokens) {
    const auto [first, last] = parent.children.equal_range(tokens[0]);
    const auto same = std::find_if(
        first, last, [&](const auto& child) { return std::ranges::equal(child.second->tokens, tokens); });
    return same == last ? nullptr : same->second;
}

int64_t PrefixCache::load(const std::string& path, uint64_t model, const CancelToken* cancel) {
    const KvBytes file{File(path)};
    const KvFileHeader header = read_header(file, k_prefix_magic);
    const KvLayout& layout = pool_->layout();
    if (header.model != model) fail_file(Reason::value, "{}: these prefixes are of another model", path);
    if (layout_of(header, path) != layout)
        fail_file(Reason::value, "{}: the KV cache of these prefixes has another layout", path);
    const uint64_t n_nodes = header.counts[0];
    if (n_nodes > k_max_nodes || pages_at(n_nodes) > file.size())
        fail_file(Reason::truncated, "{}: {} prefixes in a file of {} bytes", path, n_nodes, file.size());

    std::vector<NodeRecord> records(n_nodes);
    file.read_at(k_nodes_at, std::as_writable_bytes(std::span(records)));
    uint64_t hash = 0;
    file.read_at(pages_at(n_nodes) - sizeof(hash), std::as_writable_bytes(std::span(&hash, 1)));
    if (hash != hash_bytes(std::as_bytes(std::span(records)))) fail_altered(path, "prefixes");
    uint64_t bytes = pages_at(n_nodes);
    for (size_t i = 0; i < records.size(); ++i) {
        if (!is_sensible(records[i], i)) fail_file(Reason::value, "{}: prefix {} makes no sense", path, i);
        bytes += packed_bytes(layout, records[i].n_tokens);  // at most 2^31 pages: no overflow
    }
    check_size(file, header, bytes);

    std::vector<Node*> nodes = {&root_};  // by number; null if the node could not be added
    std::vector<std::byte> packed(packed_bytes(layout, k_kv_page_tokens));
    const HostPage host_page(*pool_);
    uint64_t at = pages_at(n_nodes);
    int64_t n_read = 0;
    for (const NodeRecord& record : records) {
        throw_if_cancelled(cancel, "loading prefixes");
        const std::span<const int32_t> tokens(record.tokens, record.n_tokens);
        const std::span<std::byte> data = std::span(packed).first(packed_bytes(layout, record.n_tokens));
        Node* parent = nodes[record.parent];
        // Only a whole page can have children.
        const bool has_parent =
            parent == &root_ || (parent != nullptr && std::ssize(parent->tokens) == k_kv_page_tokens);
        Node* node = has_parent ? child_of(*parent, tokens) : nullptr;
        if (has_parent && node == nullptr && pool_->try_reserve(1)) {
            const Page page = pool_->take();
            try {
                file.read_at(at, data);
                if (hash_bytes(data) != record.page_hash) fail_altered(path, "KV cache pages");
                unpack_page(layout, data.data(), record.n_tokens, host_page.place(page));
                host_page.write_back(page);
                node = add(parent, tokens, page, Age::oldest);
            } catch (...) {
                pool_->release(page, false);
                throw;
            }
            pool_->release(page, false);  // the node that add() made owns the page now
            ++n_read;
        }
        nodes.push_back(node);
        at += data.size();
    }
    return n_read;
}

}  // namespace minim::kv
