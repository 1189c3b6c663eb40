// SPDX-License-Identifier: Apache-2.0
// Prefix cache: pages of evaluated texts, found by their tokens, so that a text with the same beginning shares them.
// A tree whose nodes are pages; the path from the root to a node spells the tokens. The least recently used page is
// dropped first.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "kv/page_pool.h"
#include "kv/sequence.h"

namespace minim::kv {

// Returns the length of the common prefix of two texts, in tokens.
int64_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) noexcept;

// One thread at a time.
class PrefixCache {
  public:
    explicit PrefixCache(std::shared_ptr<PagePool> pool);
    ~PrefixCache();
    PrefixCache(const PrefixCache&) = delete;
    PrefixCache& operator=(const PrefixCache&) = delete;

    // Returns the number of leading tokens that are cached, at most tokens.size(). Marks their pages as used.
    int64_t find(std::span<const int32_t> tokens);

    // Appends cached pages of `tokens` to a sequence, which must consist of whole pages or be empty. Returns the number of
    // positions that it has then. Whole pages are shared; a partly filled one is copied if the sequence has a page reserved.
    int64_t extend(std::span<const int32_t> tokens, Sequence& sequence);

    // Keeps the pages of a sequence for its first tokens.size() positions; fewer if memory for the tree itself runs out.
    void keep(std::span<const int32_t> tokens, const Sequence& sequence) noexcept;

    // Drops the least recently used page that has no other owner. Returns false if there is none.
    bool drop_oldest();

    // Returns how many pages drop_oldest() can drop, one after another.
    int64_t n_droppable() const noexcept;

    // Writes all cached pages to a file, which gets its name once it is complete. Throws as write_state.
    void save(const std::string& path, uint64_t model, const CancelToken* cancel) const;

    // Adds the pages of a file that save() wrote, the most recently used first, as long as the pool has free pages. Returns the
    // number of pages read. Throws as StateFile, and format if the file is of another model or layout. Pages that were read
    // before an altered page stay.
    int64_t load(const std::string& path, uint64_t model, const CancelToken* cancel);

    int64_t n_pages() const noexcept { return static_cast<int64_t>(nodes_.size()); }

  private:
    struct Node {
        Page page;
        std::vector<int32_t> tokens;  // tokens of the page: 64, or fewer in a leaf
        Node* parent = nullptr;
        std::multimap<int32_t, Node*> children;  // by their first token
        std::list<std::unique_ptr<Node>>::iterator place;
    };
    struct Found {
        Node* node = nullptr;   // the last whole page; the root if there is none
        int64_t n_whole = 0;    // positions in whole pages
        Node* begun = nullptr;  // the next page, if only its first n_begun positions match
        int64_t n_begun = 0;
    };

    Found look_up(std::span<const int32_t> tokens);
    void mark_used(Node* node);
    enum class Age { newest, oldest };
    Node* add(Node* parent, std::span<const int32_t> tokens, const Page& page, Age age);
    static Node* child_of(const Node& parent, std::span<const int32_t> tokens);

    std::shared_ptr<PagePool> pool_;
    Node root_;
    std::list<std::unique_ptr<Node>> nodes_;  // the least recently used first; a child before its parent
};

}  // namespace minim::kv
