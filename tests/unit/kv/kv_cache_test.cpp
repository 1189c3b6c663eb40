#include "kv/kv_cache.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "support/helpers.h"

using namespace minim;
using namespace minim::kv;
using namespace minim::test;
using backend::k_kv_page_tokens;
using backend::KvLayout;

namespace {

constexpr KvLayout k_small = {2, 2, 16, Format::f16, Format::f32};

int64_t n_pages(const KvCache& cache) {
    return static_cast<int64_t>(cache.sequence().pages.size());
}

}  // namespace

TEST_CASE("a context takes whole pages") {
    const auto page = static_cast<uint64_t>(k_small.page_bytes());
    CHECK(KvCache::bytes_for(k_small, 1) == page);
    CHECK(KvCache::bytes_for(k_small, k_kv_page_tokens) == page);
    CHECK(KvCache::bytes_for(k_small, k_kv_page_tokens + 1) == 2 * page);
    CHECK(KvCache::bytes_for(k_small, 10 * k_kv_page_tokens) == 10 * page);
}

TEST_CASE("the cache of MiniMax-M2 has the sizes of its published figures") {
    const KvLayout layout = {62, 8, 128, Format::f16, Format::f16};
    CHECK(KvCache::bytes_for(layout, 65536) == uint64_t{15872} << 20);
    CHECK(KvCache::bytes_for(layout, 131072) == uint64_t{31744} << 20);
    CHECK(KvCache::bytes_for(layout, 196608) == uint64_t{47616} << 20);
    CHECK(KvCache::bytes_for({62, 8, 128, Format::f32, Format::f32}, 196608) == uint64_t{95232} << 20);
}

TEST_CASE("the pages of a cache are disjoint and fill it") {
    const KvCache cache(k_small, 3 * k_kv_page_tokens - 5);
    REQUIRE(n_pages(cache) == 3);
    CHECK(cache.size_bytes() == 3 * static_cast<uint64_t>(k_small.page_bytes()));
    std::vector<std::byte*> pages(cache.sequence().pages.begin(), cache.sequence().pages.end());
    std::ranges::sort(pages);
    for (size_t i = 1; i < pages.size(); ++i) CHECK(pages[i] - pages[i - 1] >= k_small.page_bytes());
    // Every byte is ours: writing all of them must not fault.
    for (std::byte* page : pages) std::fill_n(page, k_small.page_bytes(), std::byte{0xAB});
}

TEST_CASE("a cache's sequence points to the cache's own layout") {
    const KvCache cache(k_small, 1);
    CHECK(cache.sequence().layout == &cache.layout());
    CHECK(cache.layout().page_bytes() == k_small.page_bytes());
}

TEST_CASE("a context of no tokens or of absurdly many is invalid") {
    const KvLayout layout = {62, 8, 128, Format::f16, Format::f16};
    constexpr int64_t k_most = std::numeric_limits<int64_t>::max();
    for (const int64_t n_context :
         {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(), k_most, k_most / 2}) {
        expect_error(Status::invalid, std::to_string(n_context),
                     [&] { KvCache::bytes_for(layout, n_context); });
        expect_error(Status::invalid, std::to_string(n_context),
                     [&] { const KvCache cache(layout, n_context); });
    }
}

TEST_CASE("a context that cannot fit is out of memory and names one that would") {
    const KvLayout layout = {62, 8, 128, Format::f32, Format::f32};
    const int64_t n_context = int64_t{1} << 31;  // about 1 PB
    const auto error = error_of([&] { const KvCache cache(layout, n_context); });
    REQUIRE(error);
    CHECK(error->status() == Status::out_of_memory);
    CHECK(error->facts().requested == static_cast<int64_t>(KvCache::bytes_for(layout, n_context)));
    const std::string message = error->what();
    INFO(message);
    const std::string before = "a context of ";
    const size_t at = message.find(before);
    REQUIRE(at != std::string::npos);
    size_t n_digits = 0;
    const int64_t fitting = std::stoll(message.substr(at + before.size()), &n_digits);
    CHECK(message.substr(at + before.size() + n_digits).starts_with(" would fit"));
    CHECK(fitting % k_kv_page_tokens == 0);
    const auto available = static_cast<uint64_t>(error->facts().available);
    if (fitting > 0) CHECK(KvCache::bytes_for(layout, fitting) <= available);
    CHECK(KvCache::bytes_for(layout, fitting + 1) > available);
}
