// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/new_file.h"
#include "kv/kv_file.h"
#include "kv/prefix_cache.h"

namespace minim::kv {

using backend::k_kv_page_tokens;
using backend::KvLayout;

// A node in a file of prefixes; the nodes' pages follow in the same order, each with the slots that its tokens use.
struct PrefixRecord {
    uint32_t parent;    // number of an earlier node plus 1, or 0: the root
    uint32_t n_tokens;  // 1 to 64
    uint64_t page_hash;
    int32_t tokens[k_kv_page_tokens];  // entries from n_tokens on are 0
};
static_assert(sizeof(PrefixRecord) == 272);

namespace {

constexpr std::string_view k_prefix_magic = "minim-px";
constexpr uint64_t k_max_nodes = uint64_t{1} << 31;

// Returns the offset of the pages in a file whose header has header_size bytes, behind the nodes and their hash.
uint64_t pages_at(uint64_t header_size, uint64_t n_nodes) {
    return header_size + n_nodes * sizeof(PrefixRecord) + sizeof(uint64_t);
}

// Returns false if a record is impossible on its own.
bool is_sensible(const PrefixRecord& record, size_t number) {
    return record.parent <= number && record.n_tokens >= 1 && record.n_tokens <= k_kv_page_tokens;
}

}  // namespace

// A file of prefixes whose header and records have been checked.
class PrefixFile {
  public:
    // Throws as PrefixCache::load.
    PrefixFile(const std::string& path, uint64_t model, const KvLayout& layout);

    const std::vector<PrefixRecord>& records() const noexcept { return records_; }
    const std::string& path() const noexcept { return file_.name(); }
    uint64_t pages_at() const noexcept { return kv::pages_at(header_size_, records_.size()); }
    // Reads the packed bytes of a record's page. Throws format if they were altered.
    void read_page(const PrefixRecord& record, uint64_t at, std::span<std::byte> out) const {
        file_.read_at(at, out);
        if (hash_bytes(out) != record.page_hash) fail_altered(path(), "KV cache pages");
    }
    // Returns the tokens of the file's one prefix. Throws format if it has several.
    std::vector<int32_t> tokens() const;

  private:
    KvBytes file_;
    uint64_t header_size_ = 0;
    std::vector<PrefixRecord> records_;
};

PrefixFile::PrefixFile(const std::string& path, uint64_t model, const KvLayout& layout) : file_(File(path)) {
    const KvFileHeader header = read_header(file_, k_prefix_magic);
    if (header.model != model) fail_file(Reason::value, "{}: these prefixes are of another model", path);
    if (layout_of(header, path) != layout)
        fail_file(Reason::value, "{}: the KV cache of these prefixes has another layout", path);
    header_size_ = header_bytes(header);
    const uint64_t n_nodes = header.counts[0];
    if (n_nodes > k_max_nodes || kv::pages_at(header_size_, n_nodes) > file_.size())
        fail_file(Reason::truncated, "{}: {} prefixes in a file of {} bytes", path, n_nodes, file_.size());

    records_.resize(n_nodes);
    file_.read_at(header_size_, std::as_writable_bytes(std::span(records_)));
    uint64_t hash = 0;
    file_.read_at(pages_at() - sizeof(hash), std::as_writable_bytes(std::span(&hash, 1)));
    if (hash != hash_bytes(std::as_bytes(std::span(records_)))) fail_altered(path, "prefixes");
    uint64_t bytes = pages_at();
    for (size_t i = 0; i < records_.size(); ++i) {
        if (!is_sensible(records_[i], i)) fail_file(Reason::value, "{}: prefix {} makes no sense", path, i);
        bytes += packed_bytes(layout, records_[i].n_tokens);  // at most 2^31 pages: no overflow
    }
    check_size(file_, header, bytes);
}

std::vector<int32_t> PrefixFile::tokens() const {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < records_.size(); ++i) {
        const PrefixRecord& record = records_[i];
        const bool is_last = i + 1 == records_.size();
        if (record.parent != i || (!is_last && record.n_tokens != k_kv_page_tokens))
            fail_file(Reason::value, "{}: the file has several prefixes; one is needed", path());
        tokens.insert(tokens.end(), record.tokens, record.tokens + record.n_tokens);
    }
    return tokens;
}

void PrefixCache::save(const std::string& path, uint64_t model, const CancelToken* cancel) const {
    std::vector<SavedPage> pages;
    for (const NodeList* list : {&nodes_, &host_nodes_})
        for (const auto& node : *list) pages.push_back({node.get(), std::ssize(node->tokens)});
    // The last used first: parents before their children.
    std::ranges::sort(pages, std::ranges::greater(), [](const SavedPage& page) { return page.node->used; });
    write(pages, path, model, cancel);
}

int64_t PrefixCache::save(std::span<const int32_t> tokens, const std::string& path, uint64_t model,
                          const CancelToken* cancel) {
    const Found found = look_up(tokens);
    std::vector<SavedPage> pages;
    for (const Node* node : path_to(found.node)) pages.push_back({node, k_kv_page_tokens});
    if (found.n_begun > 0) pages.push_back({found.begun, found.n_begun});
    write(pages, path, model, cancel);
    return found.n_whole + found.n_begun;
}

void PrefixCache::write(const std::vector<SavedPage>& pages, const std::string& path, uint64_t model,
                        const CancelToken* cancel) const {
    const KvLayout& layout = pool_->layout();
    std::unordered_map<const Node*, uint32_t> numbers = {{&root_, 0}};
    std::vector<PrefixRecord> records;
    std::vector<std::byte> packed(packed_bytes(layout, k_kv_page_tokens));
    const HostPage host_page(*pool_);
    const auto packed_page = [&](const SavedPage& page) {
        throw_if_cancelled(cancel, "saving");
        const Node& node = *page.node;
        pack_page(layout, node.is_on_host() ? node.host.data() : host_page.read(node.page), page.n_tokens,
                  packed.data());
        return std::span(packed).first(packed_bytes(layout, page.n_tokens));
    };
    uint64_t bytes = pages_at(header_bytes(layout), pages.size());
    for (const SavedPage& page : pages) {
        PrefixRecord record = {};
        record.parent = numbers.at(page.node->parent);
        record.n_tokens = static_cast<uint32_t>(page.n_tokens);
        std::copy_n(page.node->tokens.begin(), page.n_tokens, record.tokens);
        record.page_hash = hash_bytes(packed_page(page));
        records.push_back(record);
        numbers[page.node] = static_cast<uint32_t>(records.size());
        bytes += packed_bytes(layout, page.n_tokens);
    }
    KvFileHeader header = new_header(k_prefix_magic, model, layout);
    header.counts[0] = records.size();
    seal_header(header, bytes);

    NewFile file(path, bytes, Readers::owner);
    file.write(encoded(header));
    file.write(std::as_bytes(std::span(records)));
    file.write(bytes_of(hash_bytes(std::as_bytes(std::span(records)))));
    for (const SavedPage& page : pages) file.write(packed_page(page));
    file.commit();
}

PrefixCache::Node* PrefixCache::child_of(const Node& parent, std::span<const int32_t> tokens) {
    const auto [first, last] = parent.children.equal_range(tokens[0]);
    const auto same = std::find_if(
        first, last, [&](const auto& child) { return std::ranges::equal(child.second->tokens, tokens); });
    return same == last ? nullptr : same->second;
}

int64_t PrefixCache::load(const std::string& path, uint64_t model, const CancelToken* cancel) {
    return add_pages(PrefixFile(path, model, pool_->layout()), Age::oldest, cancel);
}

std::vector<int32_t> PrefixCache::load_one(const std::string& path, uint64_t model,
                                           const CancelToken* cancel) {
    const PrefixFile file(path, model, pool_->layout());
    std::vector<int32_t> tokens = file.tokens();
    const int64_t n_missing = page_count(std::ssize(tokens)) - find(tokens) / k_kv_page_tokens;
    while (pool_->state().n_unclaimed() < n_missing && drop_oldest()) {
    }
    try {
        add_pages(file, Age::newest, cancel);
    } catch (...) {
        find(tokens);  // puts children before their parents
        throw;
    }
    tokens.resize(find(tokens));
    return tokens;
}

// Adds the pages of a file that are not cached. Returns their number.
int64_t PrefixCache::add_pages(const PrefixFile& file, Age age, const CancelToken* cancel) {
    const KvLayout& layout = pool_->layout();
    std::vector<Node*> nodes = {&root_};  // by number; null if the node could not be added
    std::vector<std::byte> packed(packed_bytes(layout, k_kv_page_tokens));
    const HostPage host_page(*pool_);
    uint64_t at = file.pages_at();
    int64_t n_read = 0;
    for (const PrefixRecord& record : file.records()) {
        throw_if_cancelled(cancel, "loading prefixes");
        const std::span<const int32_t> tokens(record.tokens, record.n_tokens);
        const std::span<std::byte> data = std::span(packed).first(packed_bytes(layout, record.n_tokens));
        Node* parent = nodes[record.parent];
        // Only a whole page can have children.
        const bool has_parent = parent == &root_ || (parent != nullptr && parent->is_whole());
        Node* node = has_parent ? child_of(*parent, tokens) : nullptr;
        const bool is_missing = has_parent && node == nullptr;
        if (is_missing && !parent->is_on_host() && pool_->try_reserve(1)) {
            const Page page = pool_->take();
            try {
                file.read_page(record, at, data);
                unpack_page(layout, data.data(), record.n_tokens, host_page.place(page));
                host_page.write_back(page);
                node = add_page(parent, tokens, page, age);
            } catch (...) {
                pool_->release(page, false);
                throw;
            }
            pool_->release(page, false);  // the node that add_page() made owns the page now
            ++n_read;
        } else if (is_missing && has_host_memory()) {
            if (Buffer room = new_room_on_host(); room.size() > 0) {
                file.read_page(record, at, data);
                unpack_page(layout, data.data(), record.n_tokens, room.data());
                node = add_on_host(parent, tokens, std::move(room), age);
                ++n_read;
            }
        }
        nodes.push_back(node);
        at += data.size();
    }
    return n_read;
}

}  // namespace minim::kv
