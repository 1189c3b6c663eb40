// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_cache.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/helpers.h"

using namespace minim;
using namespace minim::kv;
using namespace minim::test;
using backend::KvLayout;

namespace {

constexpr KvLayout k_layout = {1, 1, 16, Format::f16, Format::f16};
constexpr int64_t k_context = 1000;

std::vector<int32_t> ids(size_t count, int32_t first = 0) {
    std::vector<int32_t> result(count);
    std::iota(result.begin(), result.end(), first);
    return result;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A pool with a cache, and sequences that write the number of their text into their pages.
struct Texts {
    std::shared_ptr<PagePool> pool = std::make_shared<PagePool>(k_layout);
    PrefixCache cache{pool};

    explicit Texts(int64_t n_pages = 100) { pool->keep_pages(n_pages); }

    // Writes `mark` for tokens from position `known` on, in place of evaluating them.
    static void write(Sequence& sequence, int64_t known, size_t n_tokens, uint8_t mark) {
        REQUIRE(sequence.try_hold(known, static_cast<int64_t>(n_tokens)));
        for (int64_t i = known; i < static_cast<int64_t>(n_tokens); ++i)
            std::memset(place(sequence, i), mark, static_cast<size_t>(k_layout.k_token_bytes()));
    }
    static std::byte* place(const Sequence& sequence, int64_t position) {
        return sequence.view().pages[static_cast<size_t>(position / 64)] +
               position % 64 * k_layout.k_token_bytes();
    }
    void keep(const std::vector<int32_t>& tokens, uint8_t mark) {
        Sequence sequence = Sequence::unreserved(pool, k_context);
        REQUIRE(sequence.try_reserve(1));
        write(sequence, cache.extend(tokens, sequence), tokens.size(), mark);
        cache.keep(tokens, sequence);
    }
    // Returns the marks of those positions of the tokens that the cache knows.
    std::vector<int> known(const std::vector<int32_t>& tokens) {
        Sequence sequence = Sequence::unreserved(pool, k_context);
        REQUIRE(sequence.try_reserve(1));
        const int64_t n = cache.extend(tokens, sequence);
        CHECK(n == cache.find(tokens));
        std::vector<int> marks;
        for (int64_t i = 0; i < n; ++i) marks.push_back(static_cast<int>(*place(sequence, i)));
        return marks;
    }
};

std::vector<int> marks(size_t n_first, int first, size_t n_second = 0, int second = 0) {
    std::vector<int> result(n_first, first);
    result.insert(result.end(), n_second, second);
    return result;
}

}  // namespace

TEST_CASE("a text that was kept is known, and as far as another begins like it") {
    Texts texts;
    CHECK(texts.known(ids(100)).empty());
    texts.keep(ids(200), 1);
    CHECK(texts.cache.n_pages() == 4);
    CHECK(texts.known(ids(200)) == marks(200, 1));
    CHECK(texts.known(ids(300)) == marks(200, 1));
    for (const size_t n : {1, 63, 64, 65, 128, 199}) {
        INFO(n);
        CHECK(texts.known(ids(n)) == marks(n, 1));
        CHECK(texts.known(joined(ids(n), ids(80, 5000))) == marks(n, 1));
    }
    CHECK(texts.known(ids(100, 1)).empty());
}

TEST_CASE("texts with a common beginning share its pages and go on apart") {
    Texts texts;
    texts.keep(joined(ids(128), ids(100, 1000)), 1);
    texts.keep(joined(ids(128), ids(100, 2000)), 2);
    texts.keep(joined(ids(150), ids(100, 3000)), 3);
    CHECK(texts.cache.n_pages() == 2 + 2 + 2 + 2);
    CHECK(texts.known(joined(ids(128), ids(100, 1000))) == marks(228, 1));
    CHECK(texts.known(joined(ids(128), ids(100, 2000))) == marks(128, 1, 100, 2));
    CHECK(texts.known(joined(ids(150), ids(100, 3000))) == marks(128, 1, 122, 3));
    CHECK(texts.known(joined(ids(140), ids(100, 3000))) == marks(128, 1, 12, 3));
}

TEST_CASE("a text that grew replaces its begun page") {
    Texts texts;
    texts.keep(ids(80), 1);
    texts.keep(ids(100), 2);  // takes over 80 positions
    CHECK(texts.cache.n_pages() == 2);
    CHECK(texts.known(ids(100)) == marks(80, 1, 20, 2));
    texts.keep(ids(90), 3);  // known already
    CHECK(texts.cache.n_pages() == 2);
    texts.keep(ids(260), 4);
    CHECK(texts.cache.n_pages() == 5);
    CHECK(texts.known(ids(260)).size() == 260);
}

TEST_CASE("what nobody used for the longest time goes first, the ends of texts before their beginnings") {
    Texts texts;
    texts.keep(ids(128), 1);
    texts.keep(ids(128, 1000), 2);
    texts.cache.find(ids(128));
    REQUIRE(texts.cache.drop_oldest());
    CHECK(texts.known(ids(128, 1000)).size() == 64);
    texts.cache.find(ids(128));
    REQUIRE(texts.cache.drop_oldest());
    CHECK(texts.known(ids(128, 1000)).empty());
    CHECK(texts.known(ids(128)).size() == 128);
    REQUIRE(texts.cache.drop_oldest());
    REQUIRE(texts.cache.drop_oldest());
    CHECK_FALSE(texts.cache.drop_oldest());
    CHECK(texts.pool->state().n_in_use == 0);
}

TEST_CASE("pages that a sequence uses are not dropped") {
    Texts texts;
    texts.keep(ids(200), 1);
    Sequence user = Sequence::unreserved(texts.pool, k_context);
    CHECK(texts.cache.extend(ids(130), user) == 128);  // no reservation: nothing is copied
    while (texts.cache.drop_oldest()) {
    }
    CHECK(texts.cache.n_pages() == 2);
    CHECK(texts.known(ids(200)).size() == 128);
}

TEST_CASE("a sequence that has begun goes on from its whole pages") {
    Texts texts;
    texts.keep(ids(64), 1);
    Sequence user = Sequence::unreserved(texts.pool, k_context);
    REQUIRE(texts.cache.extend(ids(300), user) == 64);
    texts.keep(ids(250), 2);
    REQUIRE(user.try_reserve(1));
    CHECK(texts.cache.extend(ids(300), user) == 250);
    CHECK(texts.cache.extend(ids(50), user) == 256);  // it holds more than is asked for
}

TEST_CASE("a sequence that writes behind a shared beginning leaves the cache alone") {
    Texts texts;
    texts.keep(ids(100), 1);
    Sequence user = Sequence::unreserved(texts.pool, k_context);
    REQUIRE(user.try_reserve(1));
    REQUIRE(texts.cache.extend(joined(ids(90), ids(50, 7000)), user) == 90);
    Texts::write(user, 90, 140, 9);
    CHECK(texts.known(ids(100)) == marks(100, 1));
}

TEST_CASE("a cache gives its pages back when it ends") {
    const auto pool = std::make_shared<PagePool>(k_layout);
    {
        PrefixCache cache(pool);
        Sequence sequence(pool, 200);
        sequence.hold(0, 200);
        cache.keep(ids(200), sequence);
    }
    CHECK(pool->state().n_pages == 0);
}
