// SPDX-License-Identifier: Apache-2.0
// Pages of the prefix cache in host memory.
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kv/prefix_cache.h"
#include "support/files.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::kv;
using namespace minim::test;
using backend::k_kv_page_tokens;
using backend::KvLayout;

namespace {

constexpr KvLayout k_layout = {2, 2, 16, Format::f16, Format::f16};
constexpr int64_t k_context = 2000;
constexpr uint64_t k_model = 77;
constexpr uint64_t k_no_limit = UINT64_MAX;

using Ids = std::vector<int32_t>;

Ids ids(int64_t count, int32_t first = 0) {
    Ids result(static_cast<size_t>(count));
    std::iota(result.begin(), result.end(), first);
    return result;
}

uint64_t bytes_of_pages(int64_t n) {
    return static_cast<uint64_t>(n * k_layout.page_bytes());
}

bool always() {
    return true;
}

// The value of every byte that a page has for a position: it depends on all tokens up to it, as a KV cache does.
uint8_t mark_of(const Ids& tokens, int64_t position) {
    uint32_t hash = 2166136261U;
    for (int64_t i = 0; i <= position; ++i) hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 16777619U;
    return static_cast<uint8_t>(hash >> 13U);
}

// A pool of a few pages with a prefix cache, and texts that are evaluated by writing marks.
struct Texts {
    std::shared_ptr<PagePool> pool = std::make_shared<PagePool>(k_layout);
    PrefixCache cache;

    explicit Texts(int64_t n_pages, const HostLimit& host = {.bytes = k_no_limit}) : cache(pool, host) {
        pool->keep_pages(n_pages);
    }

    static void write(const Sequence& sequence, const Ids& tokens, int64_t position) {
        std::byte* page = sequence.view().pages[static_cast<size_t>(position / k_kv_page_tokens)];
        const int64_t slot = position % k_kv_page_tokens;
        for (int64_t layer = 0; layer < k_layout.n_layer; ++layer)
            for (int64_t head = 0; head < k_layout.n_head_kv; ++head)
                for (const int64_t at : {k_layout.k_offset(layer, head) + slot * k_layout.k_token_bytes(),
                                         k_layout.v_offset(layer, head) + slot * k_layout.v_token_bytes()})
                    std::memset(page + at, mark_of(tokens, position),
                                static_cast<size_t>(k_layout.k_token_bytes()));
    }

    // Returns a sequence with the cached positions of a text, and checks their contents.
    Sequence begin(const Ids& tokens, int64_t& n_known, const std::function<bool()>& may_copy = always) {
        Sequence sequence = Sequence::unreserved(pool, k_context);
        cache.find(tokens);
        cache.extend(tokens, sequence);
        const int64_t n_wanted = page_count(std::ssize(tokens)) - sequence.n_pages();
        while (!sequence.try_reserve(n_wanted)) REQUIRE(cache.drop_oldest());
        n_known = cache.restore(tokens, sequence, may_copy).n_positions;
        for (int64_t i = 0; i < n_known; ++i) {
            const std::byte* page = sequence.view().pages[static_cast<size_t>(i / k_kv_page_tokens)];
            const int64_t slot = i % k_kv_page_tokens;
            CHECK(page[k_layout.k_offset(0, 0) + slot * k_layout.k_token_bytes()] ==
                  std::byte(mark_of(tokens, i)));
            CHECK(page[k_layout.v_offset(1, 1) + (slot + 1) * k_layout.v_token_bytes() - 1] ==
                  std::byte(mark_of(tokens, i)));
        }
        return sequence;
    }

    // Evaluates a text from what is cached on, and keeps it. Returns the number of positions that were cached.
    int64_t evaluate(const Ids& tokens) {
        int64_t n_known = 0;
        Sequence sequence = begin(tokens, n_known);
        REQUIRE(sequence.try_hold(n_known, std::ssize(tokens)));
        for (int64_t i = n_known; i < std::ssize(tokens); ++i) write(sequence, tokens, i);
        cache.keep(tokens, sequence);
        return n_known;
    }
};

Ids joined(Ids a, const Ids& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

}  // namespace

TEST_CASE("pages that leave the pool come back from host memory as they were") {
    Texts texts(5);
    CHECK(texts.evaluate(ids(300)) == 0);
    CHECK(texts.evaluate(ids(300, 1000)) == 0);  // takes all pages of the first
    CHECK(texts.cache.n_pages() == 5);
    CHECK(texts.cache.n_host_pages() == 5);
    CHECK(texts.cache.host_bytes() == bytes_of_pages(5));
    CHECK(texts.evaluate(ids(300)) == 300);
    CHECK(texts.cache.n_restored() == 5);
    CHECK(texts.evaluate(joined(ids(300, 1000), ids(20, 3000))) == 300);
    CHECK(texts.pool->state().n_reserved == 0);
}

TEST_CASE("without host memory pages that leave the pool are dropped") {
    Texts texts(5, {});
    texts.evaluate(ids(300));
    texts.evaluate(ids(300, 1000));
    CHECK(texts.cache.n_host_pages() == 0);
    CHECK(texts.cache.n_stored() == 0);
    CHECK(texts.evaluate(ids(300)) == 0);
}

TEST_CASE("only pages of the same tokens come back, even if all hashes of tokens were equal") {
    Texts texts(4);
    texts.evaluate(ids(200));
    texts.evaluate(ids(200, 5000));
    REQUIRE(texts.cache.n_host_pages() == 4);
    for (const int64_t changed : {0, 1, 63, 64, 100, 127, 128, 199}) {
        INFO("token " << changed);
        Ids other = ids(200);
        other[static_cast<size_t>(changed)] += 100000;
        int64_t n_known = 0;
        texts.begin(other, n_known);  // checks that these positions are of the same tokens
        CHECK(n_known == changed);
    }
    // The second page of one text behind the first page of another.
    int64_t n_known = 0;
    texts.begin(joined(ids(64, 5000), ids(64, 64)), n_known);
    CHECK(n_known == 64);
}

TEST_CASE("host memory is bounded, and the least recently used pages there go first") {
    Texts texts(2, {.bytes = bytes_of_pages(4) + 100});
    for (const int32_t first : {1000, 2000, 3000}) texts.evaluate(ids(128, first));
    CHECK(texts.cache.n_host_pages() == 4);
    CHECK(texts.evaluate(ids(128, 1000)) == 128);  // the pages of 2000 are the oldest now
    texts.evaluate(ids(128, 4000));
    texts.evaluate(ids(128, 5000));
    CHECK(texts.cache.n_host_pages() == 4);
    CHECK(texts.cache.find(ids(128, 2000)) == 0);
    CHECK(texts.cache.find(ids(128, 3000)) == 0);
    CHECK(texts.cache.find(ids(128, 1000)) == 128);
    CHECK(texts.cache.find(ids(128, 4000)) == 128);
}

TEST_CASE("pages in host memory that were used later stay, and the page that leaves the pool is dropped") {
    Texts texts(2, {.bytes = bytes_of_pages(1)});
    texts.evaluate(ids(64, 1000));
    texts.evaluate(ids(64, 2000));
    texts.evaluate(ids(64, 3000));
    REQUIRE(texts.cache.n_host_pages() == 1);
    texts.cache.find(ids(64, 1000));
    REQUIRE(texts.cache.drop_oldest());
    CHECK(texts.cache.find(ids(64, 1000)) == 64);
    CHECK(texts.cache.find(ids(64, 2000)) == 0);
    CHECK(texts.cache.n_stored() == 1);
}

TEST_CASE("the beginning of a text stays longer than its end") {
    Texts texts(5, {.bytes = bytes_of_pages(3)});
    texts.evaluate(ids(300));
    texts.evaluate(ids(300, 1000));
    CHECK(texts.cache.n_host_pages() == 3);
    CHECK(texts.evaluate(ids(300)) == 3 * 64);
}

TEST_CASE("pages are dropped if the machine is short of memory, and those in host memory become fewer") {
    Texts texts(3, {.bytes = k_no_limit, .least_free = UINT64_MAX / 2});
    texts.evaluate(ids(192));
    texts.evaluate(ids(192, 1000));
    CHECK(texts.cache.n_host_pages() == 0);
    CHECK(texts.evaluate(ids(192)) == 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need memory of their own
TEST_CASE("pages are dropped if the process gets no memory for them") {
    Texts texts(3);
    texts.evaluate(ids(192));
    texts.evaluate(ids(192, 1000));
    REQUIRE(texts.cache.n_host_pages() == 3);
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    rlimit none = before;
    none.rlim_cur = 1;
    REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    const bool has_dropped = texts.cache.drop_oldest();
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(has_dropped);
    CHECK(texts.cache.n_pages() == 2);
    CHECK(texts.cache.n_host_pages() == 2);  // the oldest has gone, too
    CHECK(texts.cache.find(ids(192)) == 128);
    CHECK(texts.evaluate(ids(192, 1000)) == 128);
}
#endif

TEST_CASE("a node whose page is dropped takes those below it along") {
    Texts texts(3, {.bytes = k_no_limit});
    texts.evaluate(ids(192));
    REQUIRE(texts.cache.drop_oldest());
    REQUIRE(texts.cache.drop_oldest());
    REQUIRE(texts.cache.n_host_pages() == 2);
    CHECK(texts.cache.erase(ids(192)) == 192);
    CHECK(texts.cache.n_host_pages() == 0);
    CHECK(texts.cache.n_pages() == 0);
    CHECK(texts.pool->state().n_in_use == 0);
}

TEST_CASE("copies stop when there is no more time, and go on from there") {
    Texts texts(5);
    texts.evaluate(ids(300));
    texts.evaluate(ids(300, 1000));
    Sequence sequence = Sequence::unreserved(texts.pool, k_context);
    const Ids tokens = ids(300);
    while (!sequence.try_reserve(5)) REQUIRE(texts.cache.drop_oldest());
    int64_t n_copies = 0;
    const auto two = [&] { return n_copies++ < 2; };
    PrefixCache::Restored restored = texts.cache.restore(tokens, sequence, two);
    CHECK(restored.n_positions == 128);
    CHECK_FALSE(restored.is_complete);
    n_copies = 0;
    restored = texts.cache.restore(tokens, sequence, two);
    CHECK(restored.n_positions == 256);
    n_copies = 1;
    restored = texts.cache.restore(tokens, sequence, two);
    CHECK(restored.n_positions == 300);
    CHECK(restored.is_complete);
}

TEST_CASE("a sequence without reserved pages gets none from host memory") {
    Texts texts(3);
    texts.evaluate(ids(192));
    texts.evaluate(ids(192, 1000));
    Sequence sequence = Sequence::unreserved(texts.pool, k_context);
    const PrefixCache::Restored restored = texts.cache.restore(ids(192), sequence, always);
    CHECK(restored.n_positions == 0);
    CHECK(restored.is_complete);
}

TEST_CASE("a text that was evaluated again needs its copy in host memory no longer") {
    Texts texts(8);
    const Ids tokens = ids(300);
    texts.evaluate(tokens);
    while (texts.cache.n_pages() > 0) REQUIRE(texts.cache.drop_oldest());
    REQUIRE(texts.cache.n_host_pages() == 5);
    {
        Sequence sequence = Sequence::unreserved(texts.pool, k_context);
        REQUIRE(sequence.try_hold(0, 300));
        for (int64_t i = 0; i < 300; ++i) Texts::write(sequence, tokens, i);
        texts.cache.keep(tokens, sequence);
    }
    CHECK(texts.cache.n_pages() == 4);
    CHECK(texts.cache.n_host_pages() == 1);  // the last page, which was not whole
    CHECK(texts.evaluate(joined(tokens, ids(50, 9000))) == 300);
    CHECK(texts.cache.n_host_pages() == 0);
}

TEST_CASE("texts in turn, chosen by chance, never have a position of another text") {
    for (const uint64_t limit : {bytes_of_pages(0), bytes_of_pages(7), bytes_of_pages(40), k_no_limit}) {
        std::mt19937 random(5);
        Texts texts(12, {.bytes = limit});
        std::vector<Ids> all;
        for (int32_t i = 0; i < 6; ++i) all.push_back(joined(ids(70 * (i % 3)), ids(100, 1000 * (i + 1))));
        int64_t n_computed = 0;
        for (int32_t turn = 0; turn < 120; ++turn) {
            Ids& text = all[random() % all.size()];
            if (random() % 8 == 0) text.resize(text.size() / 2 + 1);
            if (text.size() < 600) text = joined(text, ids(1 + random() % 90, 100000 + turn * 100));
            n_computed += std::ssize(text) - texts.evaluate(text);
            CHECK(texts.cache.host_bytes() <= limit);
            CHECK(texts.cache.n_pages() == texts.pool->state().n_in_use);
            CHECK(texts.pool->state().n_reserved == 0);
        }
        if (limit == k_no_limit) CHECK(n_computed < 120 * 46 + 6 * 240);
        while (texts.cache.drop_oldest()) {
        }
        CHECK(texts.pool->state().n_in_use == 0);
    }
}

TEST_CASE("a prefix file has the pages in host memory, and is loaded to host memory if the pool is full") {
    const TemporaryFolder folder;
    const std::string path = folder / "prefixes";
    {
        Texts texts(5);
        texts.evaluate(ids(300));
        texts.evaluate(joined(ids(128), ids(150, 1000)));
        texts.evaluate(ids(300, 2000));
        REQUIRE(texts.cache.n_host_pages() > 0);
        texts.cache.save(path, k_model, nullptr);
    }
    Texts texts(6);
    CHECK(texts.cache.load(path, k_model, nullptr) == 5 + 3 + 5);
    CHECK(texts.cache.n_pages() == 6);
    CHECK(texts.cache.n_host_pages() == 7);
    CHECK(texts.evaluate(ids(300)) == 300);
    CHECK(texts.evaluate(joined(ids(128), ids(150, 1000))) == 278);
    CHECK(texts.evaluate(ids(300, 2000)) == 300);
}

TEST_CASE("one prefix is saved, erased and loaded, and others make room for it") {
    const TemporaryFolder folder;
    const std::string path = folder / "prefix";
    for (const uint64_t limit : {uint64_t{0}, k_no_limit}) {
        Texts texts(6, {.bytes = limit});
        texts.evaluate(ids(280));
        CHECK(texts.cache.save(ids(290), path, k_model, nullptr) == 280);
        texts.evaluate(joined(ids(128), ids(40, 1000)));
        CHECK(texts.cache.erase(ids(280)) == 280 - 128);  // the rest belongs to the other text, too
        CHECK(texts.cache.find(ids(280)) == 128);
        CHECK(texts.cache.erase(ids(280)) == 0);
        texts.evaluate(ids(380, 5000));
        CHECK(texts.cache.load_one(path, k_model, nullptr) == ids(280));
        CHECK(texts.evaluate(ids(280)) == 280);
        CHECK(texts.cache.save(ids(200), path, k_model, nullptr) == 200);
        CHECK(texts.cache.load_one(path, k_model, nullptr) == ids(200));
    }
}

TEST_CASE("a file of several prefixes is no file of one, and a pool in use gets what fits") {
    const TemporaryFolder folder;
    const std::string path = folder / "prefix";
    Texts texts(6);
    texts.evaluate(ids(128));
    texts.cache.save(ids(128), path, k_model, nullptr);
    texts.evaluate(ids(128, 1000));
    texts.cache.save(folder / "all", k_model, nullptr);
    CHECK(reason_of([&] { texts.cache.load_one(folder / "all", k_model, nullptr); }) == "value");
    CHECK(reason_of([&] { texts.cache.load_one(path, k_model + 1, nullptr); }) == "value");

    Texts busy(2, {});
    Sequence sequence = Sequence::unreserved(busy.pool, k_context);
    REQUIRE(sequence.try_hold(0, 64));
    CHECK(busy.cache.load_one(path, k_model, nullptr) == ids(64));
    REQUIRE(sequence.try_hold(0, 64));
    std::string altered = text_of(path);
    altered.back() = static_cast<char>(altered.back() ^ 1);
    write_text(path, altered);
    Texts fresh(6);
    CHECK(reason_of([&] { fresh.cache.load_one(path, k_model, nullptr); }) == "value");
    CHECK(fresh.cache.n_pages() == fresh.pool->state().n_in_use);
    CHECK(fresh.evaluate(ids(128)) == 64);
}
