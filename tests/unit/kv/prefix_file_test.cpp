// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "base/hash.h"
#include "kv/prefix_cache.h"
#include "support/files.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::kv;
using namespace minim::test;
using backend::KvLayout;

namespace {

constexpr KvLayout k_layout = {2, 1, 16, Format::f16, Format::f32};
constexpr uint64_t k_model = 77;
constexpr size_t k_header_bytes = 96;
constexpr size_t k_record_bytes = 272;

using Bytes = std::string;

std::vector<int32_t> ids(size_t count, int32_t first = 0) {
    std::vector<int32_t> result(count);
    std::iota(result.begin(), result.end(), first);
    return result;
}

std::shared_ptr<PagePool> pool_of(int64_t n_pages, const KvLayout& layout = k_layout) {
    auto pool = std::make_shared<PagePool>(layout);
    pool->keep_pages(n_pages);
    return pool;
}

// Keeps a text in the cache, with `mark` in every slot.
void keep(PrefixCache& cache, const std::shared_ptr<PagePool>& pool, const std::vector<int32_t>& tokens,
          uint8_t mark) {
    Sequence sequence = Sequence::unreserved(pool, 1000);
    REQUIRE(sequence.try_hold(0, std::ssize(tokens)));
    for (std::byte* page : sequence.view().pages)
        std::memset(page, mark, static_cast<size_t>(k_layout.page_bytes()));
    cache.keep(tokens, sequence);
}

// Returns the mark that the last layer's K has at each known position.
std::vector<int> marks(PrefixCache& cache, const std::shared_ptr<PagePool>& pool,
                       const std::vector<int32_t>& tokens) {
    Sequence sequence = Sequence::unreserved(pool, 1000);
    REQUIRE(sequence.try_reserve(1));
    const int64_t n = cache.extend(tokens, sequence);
    std::vector<int> result;
    for (int64_t i = 0; i < n; ++i) {
        const std::byte* page = sequence.view().pages[static_cast<size_t>(i / 64)];
        result.push_back(static_cast<int>(page[k_layout.k_offset(1, 0) + i % 64 * k_layout.k_token_bytes()]));
    }
    return result;
}

// Three texts: two begin alike, the last ends in the middle of a page.
struct Saved {
    TemporaryFolder folder;
    std::string path = folder / "prefixes";
    std::shared_ptr<PagePool> pool = pool_of(50);
    PrefixCache cache{pool};

    Saved() {
        keep(cache, pool, ids(128), 1);
        keep(cache, pool, ids(200), 2);
        keep(cache, pool, ids(70, 5000), 3);
        cache.save(path, k_model, nullptr);
    }
    Bytes bytes() const { return text_of(path); }
    void load(const Bytes& data) const {
        const std::string other = folder / "other";
        write_text(other, data);
        const auto fresh = pool_of(50);
        PrefixCache loaded(fresh);
        loaded.load(other, k_model, nullptr);
    }
};

template <typename T>
void put(Bytes& bytes, size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
}

// Corrects the hashes after a change of the header or of the records.
void sign(Bytes& bytes, size_t n_records) {
    const auto all = std::as_bytes(std::span(bytes));
    put(bytes, k_header_bytes + n_records * k_record_bytes,
        hash_bytes(all.subspan(k_header_bytes, n_records * k_record_bytes)));
    put(bytes, k_header_bytes - 8, hash_bytes(all.first(k_header_bytes - 8)));
}

}  // namespace

TEST_CASE("prefixes are known again when they are loaded") {
    const Saved saved;
    const auto pool = pool_of(50);
    PrefixCache cache(pool);
    CHECK(cache.load(saved.path, k_model, nullptr) == 6);
    CHECK(cache.n_pages() == 6);
    std::vector<int> expected(128, 1);
    expected.insert(expected.end(), 72, 2);
    CHECK(marks(cache, pool, ids(200)) == expected);
    CHECK(marks(cache, pool, ids(100, 5000)) == std::vector<int>(70, 3));
    CHECK(pool->state().n_in_use == 6);
    CHECK(pool->state().n_reserved == 0);
}

TEST_CASE("prefixes with index keys are known again when they are loaded") {
    KvLayout layout = {.n_layer = 2, .n_head_kv = 1, .head_dim = 16};
    layout.index_dim = 8;
    layout.first_index_layer = 1;
    const TemporaryFolder folder;
    const auto pool = pool_of(5, layout);
    PrefixCache cache(pool);
    Sequence sequence = Sequence::unreserved(pool, 200);
    REQUIRE(sequence.try_hold(0, 100));
    const auto index_key = [&](std::byte* const page, int64_t slot) {
        return page + layout.index_offset(1) + slot * layout.index_token_bytes();
    };
    for (int64_t p = 0; p < 100; ++p)
        std::memset(index_key(sequence.view().pages[p / 64], p % 64), static_cast<int>(p + 1),
                    static_cast<size_t>(layout.index_token_bytes()));
    cache.keep(ids(100), sequence);
    cache.save(folder / "prefixes", k_model, nullptr);

    const auto other_pool = pool_of(5, layout);
    PrefixCache loaded(other_pool);
    CHECK(loaded.load(folder / "prefixes", k_model, nullptr) == 2);
    Sequence again = Sequence::unreserved(other_pool, 200);
    REQUIRE(again.try_reserve(1));
    REQUIRE(loaded.extend(ids(100), again) == 100);
    for (int64_t p = 0; p < 100; ++p) {
        const std::byte* key = index_key(again.view().pages[p / 64], p % 64);
        CHECK(key[0] == std::byte(p + 1));
        CHECK(key[layout.index_token_bytes() - 1] == std::byte(p + 1));
    }
    PrefixCache without(pool_of(5, {.n_layer = 2, .n_head_kv = 1, .head_dim = 16}));
    expect_error(Status::format, "another layout",
                 [&] { without.load(folder / "prefixes", k_model, nullptr); });
}

TEST_CASE("loading adds to what is known, and twice is once") {
    const Saved saved;
    const auto pool = pool_of(50);
    PrefixCache cache(pool);
    keep(cache, pool, ids(64), 9);
    CHECK(cache.load(saved.path, k_model, nullptr) == 5);
    CHECK(cache.load(saved.path, k_model, nullptr) == 0);
    CHECK(marks(cache, pool, ids(64)) == std::vector<int>(64, 9));
    CHECK(cache.n_pages() == 6);
}

TEST_CASE("where there is little room the last used are loaded") {
    const Saved saved;
    const auto pool = pool_of(3);
    PrefixCache cache(pool);
    CHECK(cache.load(saved.path, k_model, nullptr) == 3);
    CHECK(cache.find(ids(70, 5000)) == 70);
    CHECK(cache.find(ids(200)) == 64);
    // The oldest goes first.
    REQUIRE(cache.drop_oldest());
    CHECK(pool->state().n_in_use == 2);
}

TEST_CASE("an empty cache can be saved and loaded") {
    const TemporaryFolder folder;
    PrefixCache cache(pool_of(1));
    cache.save(folder / "none", k_model, nullptr);
    CHECK(cache.load(folder / "none", k_model, nullptr) == 0);
}

TEST_CASE("prefixes of another model or layout are refused") {
    const Saved saved;
    PrefixCache cache(pool_of(10));
    expect_error(Status::format, "another model", [&] { cache.load(saved.path, k_model + 1, nullptr); });
    PrefixCache other(pool_of(10, {2, 1, 16, Format::f16, Format::f16}));
    expect_error(Status::format, "another layout", [&] { other.load(saved.path, k_model, nullptr); });
    CHECK(cache.n_pages() == 0);
}

TEST_CASE("a prefix file cut or altered anywhere is refused, and loses no page") {
    const Saved saved;
    const Bytes whole = saved.bytes();
    for (size_t size = 0; size < whole.size(); size += 499) {
        INFO("the first " << size << " bytes");
        const std::string reason = reason_of([&] {
            saved.load({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
        });
        CHECK((reason == "truncated" || (size < 8 && reason == "format")));
    }
    for (size_t at = 0; at < whole.size(); at += at < 600 ? 3 : 397) {
        Bytes altered = whole;
        altered[at] = static_cast<char>(altered[at] ^ 0x08);
        INFO("byte " << at);
        const std::string reason = reason_of([&] { saved.load(altered); });
        CHECK((reason == "value" || (at < 16 && reason == "format")));
    }
    const auto pool = pool_of(50);
    PrefixCache cache(pool);
    Bytes altered = whole;
    altered.back() = static_cast<char>(altered.back() ^ 1);
    write_text(saved.path, altered);
    CHECK(reason_of([&] { cache.load(saved.path, k_model, nullptr); }) == "value");
    CHECK(pool->state().n_in_use == cache.n_pages());
    CHECK(pool->state().n_reserved == 0);
}

TEST_CASE("prefix records that make no sense are refused") {
    const Saved saved;
    const Bytes whole = saved.bytes();
    const auto change = [&](size_t record, size_t field, uint32_t value) {
        Bytes altered = whole;
        put(altered, k_header_bytes + record * k_record_bytes + field, value);
        sign(altered, 6);
        return reason_of([&] { saved.load(altered); });
    };
    CHECK(change(0, 0, 1) == "value");  // a record that is its own parent
    CHECK(change(2, 0, 4) == "value");  // a record whose parent comes later
    CHECK(change(1, 0, 0xFFFF'FFFF) == "value");
    CHECK(change(1, 4, 0) == "value");
    CHECK(change(1, 4, 65) == "value");
    CHECK(change(1, 4, 0xFFFF'FFFF) == "value");
    for (const uint64_t n_nodes : {uint64_t{7}, uint64_t{1} << 31, ~uint64_t{0}}) {
        Bytes altered = whole;
        put(altered, 48, n_nodes);
        sign(altered, 0);
        CHECK(reason_of([&] { saved.load(altered); }) != "no error");
    }
}
