// SPDX-License-Identifier: Apache-2.0
#include "kv/page_pool.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/helpers.h"

using namespace minim;
using namespace minim::kv;
using namespace minim::test;
using backend::k_kv_page_tokens;
using backend::KvLayout;

namespace {

constexpr KvLayout k_small = {2, 2, 16, Format::f16, Format::f32};

}  // namespace

TEST_CASE("a context takes whole pages") {
    const auto page = static_cast<uint64_t>(k_small.page_bytes());
    CHECK(page_count(0) == 0);
    CHECK(page_count(1) == 1);
    CHECK(bytes_for(k_small, 1) == page);
    CHECK(bytes_for(k_small, k_kv_page_tokens) == page);
    CHECK(bytes_for(k_small, k_kv_page_tokens + 1) == 2 * page);
    CHECK(bytes_for(k_small, 10 * k_kv_page_tokens) == 10 * page);
}

TEST_CASE("the cache of MiniMax-M2 has the sizes of its published figures") {
    const KvLayout layout = {62, 8, 128, Format::f16, Format::f16};
    CHECK(bytes_for(layout, 65536) == uint64_t{15872} << 20);
    CHECK(bytes_for(layout, 131072) == uint64_t{31744} << 20);
    CHECK(bytes_for(layout, 196608) == uint64_t{47616} << 20);
    CHECK(bytes_for({62, 8, 128, Format::f32, Format::f32}, 196608) == uint64_t{95232} << 20);
    // Q8_0 stores blocks of 32 numbers in 34 bytes: 0.53 of F16.
    CHECK(bytes_for({62, 8, 128, Format::q8_0, Format::q8_0}, 65536) == (uint64_t{15872} << 20) / 64 * 34);
    // Q4_0 stores them in 18 bytes: 0.28.
    CHECK(bytes_for({62, 8, 128, Format::q4_0, Format::q4_0}, 65536) == (uint64_t{15872} << 20) / 64 * 18);
}

TEST_CASE("a context of no tokens or of absurdly many is invalid") {
    const KvLayout layout = {62, 8, 128, Format::f16, Format::f16};
    constexpr int64_t k_max = std::numeric_limits<int64_t>::max();
    for (const int64_t n_context :
         {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(), k_max, k_max / 2})
        expect_error(Status::invalid, std::to_string(n_context), [&] { bytes_for(layout, n_context); });
}

TEST_CASE("formats that a KV cache cannot have are refused") {
    expect_error(Status::unsupported, "Q4_K", [] { PagePool({1, 1, 256, Format::q4_k, Format::f16}); });
    expect_error(Status::unsupported, "blocks of 32", [] {
        PagePool({1, 1, 16, Format::f16, Format::q8_0});
    });
    expect_error(Status::unsupported, "a power of two, not 96", [] {
        PagePool({1, 1, 96, Format::q4_0, Format::f16});
    });
    const PagePool values_only({1, 1, 96, Format::f16, Format::q4_0});
}

TEST_CASE("pages are disjoint, all ours, and counted") {
    PagePool pool(k_small);
    pool.reserve(5);
    CHECK(pool.state() == PoolState{5, 0, 5});
    std::vector<Page> pages;
    for (int i = 0; i < 5; ++i) pages.push_back(pool.take());
    CHECK(pool.state() == PoolState{5, 5, 0});
    std::set<std::byte*> places;
    for (const Page& page : pages) {
        std::fill_n(pool.place(page, 0), k_small.page_bytes(), std::byte{0xAB});
        places.insert(pool.place(page, 0));
    }
    REQUIRE(places.size() == 5);
    for (auto place = std::next(places.begin()); place != places.end(); ++place)
        CHECK(*place - *std::prev(place) >= k_small.page_bytes());
    for (const Page& page : pages) CHECK_FALSE(pool.release(page, false));
    CHECK(pool.state() == PoolState{0, 0, 0});  // the memory is given back
}

TEST_CASE("a shared page is free when its last owner releases it") {
    PagePool pool(k_small);
    pool.reserve(1);
    const Page page = pool.take();
    CHECK_FALSE(pool.is_shared(page));
    pool.share(page);
    CHECK(pool.is_shared(page));
    CHECK_FALSE(pool.release(page, true));  // the page still has another owner: nothing is reserved
    CHECK_FALSE(pool.is_shared(page));
    CHECK(pool.state() == PoolState{1, 1, 0});
    CHECK(pool.release(page, true));
    CHECK(pool.state() == PoolState{1, 0, 1});
    pool.release_reservation(1);
    CHECK(pool.state() == PoolState{0, 0, 0});
}

TEST_CASE("kept pages stay, and limit what can be reserved without more memory") {
    PagePool pool(k_small);
    pool.keep_pages(4);
    CHECK(pool.try_reserve(3));
    CHECK_FALSE(pool.try_reserve(2));
    CHECK(pool.state() == PoolState{4, 0, 3});
    CHECK(pool.try_reserve(1));
    CHECK(pool.try_reserve(0));
    pool.release_reservation(4);
    CHECK(pool.state() == PoolState{4, 0, 0});
}

TEST_CASE("a reservation takes memory only for missing pages, and it is freed when it is not needed") {
    PagePool pool(k_small);
    pool.keep_pages(2);
    pool.reserve(3);
    CHECK(pool.state() == PoolState{3, 0, 3});
    pool.reserve(2);
    CHECK(pool.state() == PoolState{5, 0, 5});
    pool.release_reservation(4);
    CHECK(pool.state() == PoolState{2, 0, 1});
    pool.release_reservation(1);
    CHECK(pool.state() == PoolState{2, 0, 0});
}

TEST_CASE("memory that cannot be had is an error that names what would fit, and reserves nothing") {
    const KvLayout layout = {62, 8, 128, Format::f32, Format::f32};
    PagePool pool(layout);
    const int64_t n = int64_t{1} << 25;  // about 1 PB
    const auto error = error_of([&] { pool.reserve(n); });
    REQUIRE(error);
    CHECK(error->status() == Status::out_of_memory);
    CHECK(error->facts().requested == static_cast<int64_t>(bytes_for(layout, n * k_kv_page_tokens)));
    CHECK(pool.state() == PoolState{0, 0, 0});
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
    if (fitting > 0) CHECK(bytes_for(layout, fitting) <= available);
    CHECK(bytes_for(layout, fitting + 1) > available);
}

TEST_CASE("many threads take and release pages of one pool") {
    PagePool pool(k_small);
    pool.keep_pages(8);
    const Page shared = [&] {
        REQUIRE(pool.try_reserve(1));
        return pool.take();
    }();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&pool, &shared, t] {
            for (int i = 0; i < 300; ++i) {
                pool.reserve(3);
                const Page page = pool.take();
                std::fill_n(pool.place(page, 0), 64, static_cast<std::byte>(t));
                pool.share(shared);
                pool.release_reservation(2);
                pool.release(page, false);
                pool.release(shared, false);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK_FALSE(pool.is_shared(shared));
    CHECK(pool.state() == PoolState{8, 1, 0});
}
