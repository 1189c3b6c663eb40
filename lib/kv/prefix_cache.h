// Pages of texts that were evaluated before, found by their tokens: a text that begins like one of them takes
// over its keys and values. A tree whose nodes are pages; the way from the root to a node spells the tokens.
// Pages that nobody used for the longest time go first.
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

// Tokens that two texts begin with alike.
int64_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) noexcept;

// One thread at a time.
class PrefixCache {
  public:
    explicit PrefixCache(std::shared_ptr<PagePool> pool);
    ~PrefixCache();
    PrefixCache(const PrefixCache&) = delete;
    PrefixCache& operator=(const PrefixCache&) = delete;

    // How many of the first positions are known, at most tokens.size(). Marks them as used.
    int64_t find(std::span<const int32_t> tokens);

    // Gives a sequence of whole pages, or none, the further positions that are known of its tokens, and
    // returns how many positions it has then. Whole pages are shared; the begun one is copied, where the
    // sequence has a page promised.
    int64_t extend(std::span<const int32_t> tokens, Sequence& sequence);

    // Keeps what a sequence holds for its first tokens.size() positions. Where memory for the tree itself is
    // short, less.
    void keep(std::span<const int32_t> tokens, const Sequence& sequence) noexcept;

    // Lets go of the page that was not used for the longest time among those that nobody else holds. False
    // where there is none.
    bool drop_oldest();

    // How many pages drop_oldest() can let go of, one after another.
    int64_t n_droppable() const noexcept;

    // Writes everything that is kept to a file, which gets its name when it is whole. Throws as write_state.
    void save(const std::string& path, uint64_t model, const CancelToken* cancel) const;

    // Adds what save() wrote, the last used first, as long as the pool has pages, and returns how many pages
    // were read. Throws as StateFile, and format where the file is another model's or of another layout; what
    // was read before an altered page stays.
    int64_t load(const std::string& path, uint64_t model, const CancelToken* cancel);

    int64_t n_pages() const noexcept { return static_cast<int64_t>(nodes_.size()); }

  private:
    struct Node {
        Page page;
        std::vector<int32_t> tokens;  // of the page: 64, or fewer in a leaf
        Node* parent = nullptr;
        std::multimap<int32_t, Node*> children;  // by their first token
        std::list<std::unique_ptr<Node>>::iterator place;
    };
    struct Found {
        Node* node = nullptr;   // the last whole page; the root where there is none
        int64_t n_whole = 0;    // positions in whole pages
        Node* begun = nullptr;  // a page of which some positions fit
        int64_t n_begun = 0;
    };

    Found look_up(std::span<const int32_t> tokens);
    void mark_used(Node* node);
    enum class Age { newest, oldest };
    Node* add(Node* parent, std::span<const int32_t> tokens, const Page& page, Age age);
    static Node* child_of(const Node& parent, std::span<const int32_t> tokens);

    std::shared_ptr<PagePool> pool_;
    Node root_;
    std::list<std::unique_ptr<Node>> nodes_;  // the longest unused first; a child before its parent
};

}  // namespace minim::kv
