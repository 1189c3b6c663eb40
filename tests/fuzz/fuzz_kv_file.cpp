// SPDX-License-Identifier: Apache-2.0
// Any bytes as a session's state and as saved prefixes, first unchanged, then with every hash corrected, as in a file altered on
// purpose. The file is refused, or what was read from it is the same after it is written and read again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "kv/kv_file.h"
#include "kv/prefix_cache.h"
#include "kv/sequence.h"
#include "kv/state_file.h"
#include "require.h"
#include "support/files.h"
#include "support/temporary_folder.h"

namespace {

using namespace minim;
using namespace minim::kv;
using backend::k_kv_page_tokens;
using backend::KvLayout;
using minim::fuzz::require;
using minim::test::TemporaryFolder;

using Bytes = std::vector<std::byte>;

constexpr std::string_view k_state_magic = "minim-kv";
constexpr std::string_view k_prefix_magic = "minim-px";

// No supported model has larger pages, and a larger page would take all the time of a run.
constexpr int64_t k_max_page_bytes = int64_t{1} << 20;
constexpr int64_t k_max_pages = 64;

// Reading a file may fail because of its format, or because a size in it exceeds the memory.
template <typename Read>
void check_refusal(const Read& read) {
    fuzz::require_refusal({Status::format, Status::out_of_memory}, "a file is read, refused, or too large",
                          read);
}

bool same(const State& a, const State& b) {
    return a.model == b.model && a.n_context == b.n_context && a.n_evaluated == b.n_evaluated &&
           std::ranges::equal(a.tokens, b.tokens) &&
           std::ranges::equal(std::as_bytes(a.logits), std::as_bytes(b.logits));
}

// Returns the bytes of the slots that the sequence uses.
Bytes contents(const Sequence& kv, int64_t n_evaluated) {
    Bytes all;
    Bytes packed(packed_bytes(kv.layout(), k_kv_page_tokens));
    for (int64_t page = 0; page * k_kv_page_tokens < n_evaluated; ++page) {
        const int64_t n_slots = std::min(n_evaluated - page * k_kv_page_tokens, k_kv_page_tokens);
        pack_page(kv.layout(), kv.view().pages[static_cast<size_t>(page)], n_slots, packed.data());
        all.insert(all.end(), packed.begin(),
                   packed.begin() + static_cast<int64_t>(packed_bytes(kv.layout(), n_slots)));
    }
    return all;
}

void read_state(const TemporaryFolder& folder, const std::string& path) {
    const StateFile file(path);
    const State state = file.state();
    require(state.n_evaluated <= std::ssize(state.tokens) && std::ssize(state.tokens) <= state.n_context,
            "a state's tokens fit into its context");
    if (file.layout().page_bytes() > k_max_page_bytes || state.n_evaluated > k_max_pages * k_kv_page_tokens)
        return;
    const int64_t n_context = std::max<int64_t>(state.n_evaluated, 1);
    Sequence kv(std::make_shared<PagePool>(file.layout()), n_context);
    file.read_pages(kv, nullptr);

    const std::string copy = folder / "copy";
    write_state(copy, state, kv, nullptr);
    const StateFile again(copy);
    require(same(again.state(), state) && again.layout() == file.layout(),
            "a state is read as it was written");
    Sequence kv_again(std::make_shared<PagePool>(again.layout()), n_context);
    again.read_pages(kv_again, nullptr);
    require(contents(kv_again, state.n_evaluated) == contents(kv, state.n_evaluated),
            "the KV cache is read as it was written");
}

void read_prefixes(const TemporaryFolder& folder, const std::string& path, const KvFileHeader& header) {
    const KvLayout layout = layout_of(header, path);
    if (layout.page_bytes() > k_max_page_bytes) return;
    const auto load = [&](const std::string& from, PrefixCache& cache) {
        return cache.load(from, header.model, nullptr);
    };
    const auto pool_of = [&] {
        auto pool = std::make_shared<PagePool>(layout);
        pool->keep_pages(k_max_pages);
        return pool;
    };
    const auto pool = pool_of();
    PrefixCache cache(pool);
    const int64_t n_read = load(path, cache);
    require(n_read == cache.n_pages() && n_read <= k_max_pages, "what was read is kept");

    const std::string copy = folder / "copy";
    cache.save(copy, header.model, nullptr);
    const auto other_pool = pool_of();
    PrefixCache again(other_pool);
    require(load(copy, again) == n_read, "prefixes are read as they were written");
    try {
        const std::vector<int32_t> tokens = again.load_one(path, header.model, nullptr);
        require(again.find(tokens) == std::ssize(tokens), "the tokens of one prefix are cached");
    } catch (const Error& error) {
        require(error.status() == Status::format, "a file of several prefixes is not read as one");
    }
}

uint64_t hash_of(const Bytes& bytes, size_t first, size_t count, uint64_t seed = 0) {
    return hash_bytes(std::span(bytes).subspan(first, count), seed);
}

// Sets the header's constant fields, the size of the file and the hash, so that the header is accepted.
KvFileHeader sign(Bytes& bytes, std::string_view magic, uint64_t file_bytes) {
    KvFileHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    std::memcpy(header.magic, magic.data(), sizeof(header.magic));
    if (header.version != 2) {  // version 1 has neither of these
        header.version = 1;
        header.index_format = header.first_index_layer = 0;
    }
    header.page_tokens = static_cast<uint32_t>(k_kv_page_tokens);
    seal_header(header, file_bytes);
    std::ranges::copy(encoded(header), bytes.begin());
    return header;
}

void put(Bytes& bytes, size_t at, uint64_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
}

// Sets `layout` to the header's layout. Returns false if it is invalid or its pages are too large.
bool small_layout(const KvFileHeader& header, KvLayout& layout) {
    try {
        layout = layout_of(header, "input");
    } catch (const Error&) {
        return false;
    }
    return layout.page_bytes() <= k_max_page_bytes;
}

// Makes the bytes a state: corrects the header and, if its counts are small enough, the hashes of pages and tables. Resizes the
// bytes to the size that the counts require: zeros are added, or the rest is cut off.
void sign_state(Bytes& bytes) {
    KvFileHeader header = sign(bytes, k_state_magic, bytes.size());
    KvLayout layout;
    if (!small_layout(header, layout)) return;
    const auto [n_context, n_tokens, n_evaluated, n_logits] = header.counts;
    constexpr uint64_t k_max = k_max_pages * k_kv_page_tokens;
    if (n_tokens > k_max || n_evaluated > k_max || n_logits > k_max) return;
    const size_t n_tables = 4 * (n_tokens + n_logits);
    const size_t n_pages = (n_evaluated + k_kv_page_tokens - 1) / k_kv_page_tokens;
    const size_t tables_at = header_bytes(header);
    const size_t pages_at = tables_at + n_tables;
    const size_t hashes_at = pages_at + packed_bytes(layout, static_cast<int64_t>(n_evaluated));
    bytes.resize(hashes_at + 8 * (n_pages + 1));
    sign(bytes, k_state_magic, bytes.size());
    const auto page_bytes = static_cast<size_t>(layout.page_bytes());
    for (size_t i = 0; i < n_pages; ++i) {
        const size_t at = pages_at + i * page_bytes;
        put(bytes, hashes_at + 8 * i, hash_of(bytes, at, std::min(page_bytes, hashes_at - at)));
    }
    const uint64_t of_tokens = hash_of(bytes, tables_at, 4 * n_tokens);
    const uint64_t of_logits = hash_of(bytes, tables_at + 4 * n_tokens, 4 * n_logits, of_tokens);
    put(bytes, hashes_at + 8 * n_pages, hash_of(bytes, hashes_at, 8 * n_pages, of_logits));
}

// Makes the bytes saved prefixes, in the same way.
void sign_prefixes(Bytes& bytes) {
    struct Record {  // kv/prefix_file.cpp
        uint32_t parent;
        uint32_t n_tokens;
        uint64_t page_hash;
        int32_t tokens[k_kv_page_tokens];
    };
    KvFileHeader header = sign(bytes, k_prefix_magic, bytes.size());
    KvLayout layout;
    const uint64_t n = header.counts[0];
    if (!small_layout(header, layout) || n == 0 || n > k_max_pages) return;
    const size_t records_at = header_bytes(header);
    const size_t hash_at = records_at + n * sizeof(Record);
    size_t at = hash_at + 8;
    if (bytes.size() < at) bytes.resize(at);
    std::vector<Record> records(n);
    std::memcpy(records.data(), bytes.data() + records_at, n * sizeof(Record));
    for (Record& record : records) {
        if (record.n_tokens > k_kv_page_tokens) continue;
        const size_t count = packed_bytes(layout, record.n_tokens);
        bytes.resize(std::max(bytes.size(), at + count));
        record.page_hash = hash_of(bytes, at, count);
        at += count;
    }
    bytes.resize(at);
    std::memcpy(bytes.data() + records_at, records.data(), n * sizeof(Record));
    put(bytes, hash_at, hash_of(bytes, records_at, n * sizeof(Record)));
    sign(bytes, k_prefix_magic, bytes.size());
}

void read(const TemporaryFolder& folder, const Bytes& bytes) {
    const std::string path = folder / "input";
    test::write_bytes(path, bytes);
    check_refusal([&] { read_state(folder, path); });
    check_refusal([&] { read_prefixes(folder, path, read_header(KvBytes(File(path)), k_prefix_magic)); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const TemporaryFolder folder;
    const auto input = std::as_bytes(std::span(data, size));
    Bytes bytes(input.begin(), input.end());
    read(folder, bytes);
    if (bytes.size() < sizeof(KvFileHeader)) return 0;
    sign_state(bytes);
    read(folder, bytes);
    bytes.assign(input.begin(), input.end());
    sign_prefixes(bytes);
    read(folder, bytes);
    return 0;
}
