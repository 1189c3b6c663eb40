// SPDX-License-Identifier: Apache-2.0
// Prefix cache: pages of evaluated texts, found by their tokens, so that a text with the same beginning shares them.
// A tree whose nodes are pages; the path from the root to a node spells the tokens. The least recently used page leaves the
// pool first. Its bytes move to host memory if that has room, and come back when a text needs them; else they are dropped.
//
// A node is resident (it owns a page of the pool) or in host memory. The parent of a resident node is resident.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/cancel.h"
#include "kv/page_pool.h"
#include "kv/sequence.h"

namespace minim::kv {

// Returns the length of the common prefix of two texts, in tokens.
int64_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) noexcept;

// The host memory for pages that leave the pool.
struct HostLimit {
    uint64_t bytes = 0;       // of all such pages; 0: none, UINT64_MAX: no limit
    uint64_t least_free = 0;  // bytes of available memory that such pages leave to others
};

class PrefixFile;

// One thread at a time.
class PrefixCache {
  public:
    explicit PrefixCache(std::shared_ptr<PagePool> pool, const HostLimit& host = {});
    ~PrefixCache();
    PrefixCache(const PrefixCache&) = delete;
    PrefixCache& operator=(const PrefixCache&) = delete;

    // Returns the number of leading tokens that are cached, at most tokens.size(), also in host memory. Marks their pages as used.
    int64_t find(std::span<const int32_t> tokens);

    // Appends resident pages of `tokens` to a sequence, which must consist of whole pages or be empty. Returns the number of
    // positions that it has then. Whole pages are shared; a partly filled one is copied if the sequence has a page reserved.
    int64_t extend(std::span<const int32_t> tokens, Sequence& sequence);

    // Does the same with pages in host memory too, which are copied to reserved pages of the sequence: whole ones are resident
    // then. Stops before a copy if may_copy() returns false. Throws device_lost and peer_lost.
    struct Restored {
        int64_t n_positions = 0;  // that the sequence has then
        bool is_complete = true;  // false: may_copy() has stopped it
    };
    Restored restore(std::span<const int32_t> tokens, Sequence& sequence,
                     const std::function<bool()>& may_copy);

    // Keeps the pages of a sequence for its first tokens.size() positions; fewer if memory for the tree itself runs out.
    void keep(std::span<const int32_t> tokens, const Sequence& sequence) noexcept;

    // Releases the least recently used resident page that has no other owner: moves it to host memory, or drops it if that has no
    // room. Older pages there make room. Returns false if there is no such page.
    bool drop_oldest();

    // Returns how many pages drop_oldest() can release, one after another.
    int64_t n_droppable() const noexcept;

    // Drops the pages of `tokens` that no other cached text has. Returns the number of their tokens.
    int64_t erase(std::span<const int32_t> tokens);

    // Writes all cached pages to a file, which gets its name once it is complete. Throws as write_state.
    void save(const std::string& path, uint64_t model, const CancelToken* cancel) const;
    // Writes the longest cached prefix of `tokens` alone. Returns the number of its tokens.
    int64_t save(std::span<const int32_t> tokens, const std::string& path, uint64_t model,
                 const CancelToken* cancel);

    // Adds the pages of a file that save() wrote, the most recently used first, as long as the pool has free pages or host memory
    // has room. Returns the number of pages read. Throws as StateFile, and format if the file is of another model or layout. Pages
    // that were read before an altered page stay.
    int64_t load(const std::string& path, uint64_t model, const CancelToken* cancel);
    // Does the same with the file of one prefix, for which it releases other pages first. Returns the prefix as far as it is cached
    // then. Throws format if the file has several prefixes.
    std::vector<int32_t> load_one(const std::string& path, uint64_t model, const CancelToken* cancel);

    const HostLimit& host_limit() const noexcept { return host_limit_; }
    int64_t n_pages() const noexcept { return std::ssize(nodes_); }  // resident ones
    int64_t n_host_pages() const noexcept { return std::ssize(host_nodes_); }
    uint64_t host_bytes() const noexcept { return host_nodes_.size() * page_bytes(); }
    int64_t n_stored() const noexcept { return n_stored_; }      // pages moved to host memory so far
    int64_t n_restored() const noexcept { return n_restored_; }  // pages that came back so far

  private:
    struct Node {
        Page page;                    // of a resident node
        Buffer host;                  // the bytes of the page in host memory; empty: the node is resident
        std::vector<int32_t> tokens;  // tokens of the page: 64, or fewer in a leaf
        Node* parent = nullptr;
        std::multimap<int32_t, Node*> children;  // by their first token
        std::list<std::unique_ptr<Node>>::iterator place;
        int64_t used = 0;  // larger than that of every node used before

        bool is_on_host() const noexcept { return host.size() > 0; }
        bool is_whole() const noexcept { return std::ssize(tokens) == backend::k_kv_page_tokens; }
    };
    using NodeList = std::list<std::unique_ptr<Node>>;
    struct Found {
        Node* node = nullptr;   // the last whole page; the root if there is none
        int64_t n_whole = 0;    // positions in whole pages
        Node* begun = nullptr;  // the next page, if only its first n_begun positions match
        int64_t n_begun = 0;
    };

    // A page that is written to a file, with its first tokens.
    struct SavedPage {
        const Node* node = nullptr;
        int64_t n_tokens = 0;
    };

    uint64_t page_bytes() const noexcept { return static_cast<uint64_t>(pool_->layout().page_bytes()); }
    NodeList& list_of(const Node& node) noexcept { return node.is_on_host() ? host_nodes_ : nodes_; }
    Found look_up(std::span<const int32_t> tokens);
    std::vector<Node*> path_to(Node* node);
    void mark_used(Node* node);
    enum class Age { newest, oldest };
    Node* add(Node* parent, std::span<const int32_t> tokens, std::unique_ptr<Node> owned, Age age);
    Node* add_page(Node* parent, std::span<const int32_t> tokens, const Page& page, Age age);
    Node* add_on_host(Node* parent, std::span<const int32_t> tokens, Buffer bytes, Age age);
    void set_page(Node& node, const Page& page) noexcept;
    std::unique_ptr<Node> take_out(Node& node) noexcept;
    void drop(Node& top) noexcept;
    bool has_host_memory() const noexcept;
    Buffer new_room_on_host() const noexcept;
    Buffer room_on_host_for(const Node& node) noexcept;
    bool move_to_host(Node& node) noexcept;
    static Node* child_of(const Node& parent, std::span<const int32_t> tokens);
    void write(const std::vector<SavedPage>& pages, const std::string& path, uint64_t model,
               const CancelToken* cancel) const;
    int64_t add_pages(const PrefixFile& file, Age age, const CancelToken* cancel);

    std::shared_ptr<PagePool> pool_;
    const HostLimit host_limit_;
    Node root_;
    // The least recently used first; a child before its parent.
    NodeList nodes_;
    NodeList host_nodes_;
    int64_t newest_use_ = 0;
    int64_t oldest_use_ = 0;
    int64_t n_stored_ = 0;
    int64_t n_restored_ = 0;
};

}  // namespace minim::kv
