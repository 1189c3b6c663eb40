// SPDX-License-Identifier: Apache-2.0
#include "kv/sequence.h"

#include <algorithm>
#include <cstring>
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

constexpr KvLayout k_layout = {2, 2, 16, Format::f16, Format::f32};

std::shared_ptr<PagePool> new_pool() {
    return std::make_shared<PagePool>(k_layout);
}

// Every byte of page i becomes `value`.
void fill(const Sequence& sequence, int64_t i, uint8_t value) {
    std::memset(sequence.view().pages[static_cast<size_t>(i)], value,
                static_cast<size_t>(k_layout.page_bytes()));
}

bool is_filled(const Sequence& sequence, int64_t i, uint8_t value) {
    const std::byte* page = sequence.view().pages[static_cast<size_t>(i)];
    return std::all_of(page, page + k_layout.page_bytes(),
                       [&](std::byte b) { return b == std::byte{value}; });
}

}  // namespace

TEST_CASE("a new sequence has its context reserved and owns no page") {
    const auto pool = new_pool();
    const Sequence sequence(pool, 3 * k_kv_page_tokens - 5);
    CHECK(sequence.n_pages() == 0);
    CHECK(*sequence.view().layout == pool->layout());
    CHECK(pool->state().n_reserved == 3);
}

TEST_CASE("a context that makes no sense is invalid, and takes nothing") {
    const auto pool = new_pool();
    for (const int64_t n_context : {int64_t{0}, int64_t{-7}, std::numeric_limits<int64_t>::max()})
        expect_error(Status::invalid, std::to_string(n_context), [&] { Sequence(pool, n_context); });
    CHECK(pool->state().n_pages == 0);
}

TEST_CASE("a sequence takes its pages as they are written to and gives all of them back") {
    const auto pool = new_pool();
    {
        Sequence sequence(pool, 4 * k_kv_page_tokens);
        sequence.hold(0, 1);
        CHECK(sequence.n_pages() == 1);
        sequence.hold(1, k_kv_page_tokens);
        CHECK(sequence.n_pages() == 1);
        sequence.hold(k_kv_page_tokens, 3 * k_kv_page_tokens + 1);
        CHECK(sequence.n_pages() == 4);
        CHECK(sequence.view().pages.size() == 4);
        CHECK(pool->state().n_reserved == 0);
        for (int64_t i = 0; i < 4; ++i) fill(sequence, i, static_cast<uint8_t>(i));
        sequence.truncate(k_kv_page_tokens + 1);
        CHECK(sequence.n_pages() == 2);
        CHECK(pool->state().n_in_use == 2);
        CHECK(pool->state().n_reserved == 2);
        CHECK(is_filled(sequence, 0, 0));
        CHECK(is_filled(sequence, 1, 1));
    }
    CHECK(pool->state().n_pages == 0);
}

TEST_CASE("a moved sequence keeps its pages") {
    Sequence first = Sequence::alone(k_layout, 2 * k_kv_page_tokens);
    fill(first, 1, 7);
    const Sequence second = std::move(first);
    CHECK(second.n_pages() == 2);
    CHECK(is_filled(second, 1, 7));
}

TEST_CASE("a fork shares whole pages and copies the begun one") {
    const auto pool = new_pool();
    Sequence parent(pool, 4 * k_kv_page_tokens);
    parent.hold(0, 2 * k_kv_page_tokens + 10);
    for (int64_t i = 0; i < 3; ++i) fill(parent, i, static_cast<uint8_t>(i + 1));
    Sequence fork = parent.fork(2 * k_kv_page_tokens + 10, 4 * k_kv_page_tokens);
    CHECK(fork.view().pages[0] == parent.view().pages[0]);
    CHECK(fork.view().pages[1] == parent.view().pages[1]);
    CHECK(fork.view().pages[2] != parent.view().pages[2]);
    CHECK(is_filled(fork, 2, 3));
    CHECK(pool->state().n_in_use == 4);
    CHECK(pool->state().n_reserved == 2);  // one page each

    fork.hold(2 * k_kv_page_tokens + 10, 4 * k_kv_page_tokens);
    fill(fork, 2, 30);
    CHECK(is_filled(parent, 2, 3));
    CHECK(pool->state().n_pages == 6);
}

TEST_CASE("a fork outlives what it was forked from") {
    const auto pool = new_pool();
    std::optional<Sequence> parent;
    parent.emplace(pool, 2 * k_kv_page_tokens);
    parent->hold(0, 2 * k_kv_page_tokens);
    fill(*parent, 0, 5);
    const Sequence fork = parent->fork(k_kv_page_tokens, 2 * k_kv_page_tokens);
    parent.reset();
    CHECK(is_filled(fork, 0, 5));
    CHECK(pool->state().n_in_use == 1);
}

TEST_CASE("a shared page that is written again becomes the writer's own") {
    const auto pool = new_pool();
    Sequence parent(pool, 3 * k_kv_page_tokens);
    parent.hold(0, 3 * k_kv_page_tokens);
    for (int64_t i = 0; i < 3; ++i) fill(parent, i, static_cast<uint8_t>(i + 1));
    Sequence fork = parent.fork(3 * k_kv_page_tokens, 3 * k_kv_page_tokens);

    SECTION("from its middle on, with what stands before") {
        fork.truncate(k_kv_page_tokens + 5);
        fork.hold(k_kv_page_tokens + 5, 3 * k_kv_page_tokens);
        CHECK(fork.view().pages[0] == parent.view().pages[0]);
        CHECK(is_filled(fork, 1, 2));
        fill(fork, 1, 20);
    }
    SECTION("from its beginning on") {
        // One position of the last page stays owned, to be evaluated again.
        fork.truncate(2 * k_kv_page_tokens + 1);
        fork.hold(2 * k_kv_page_tokens, 2 * k_kv_page_tokens + 1);
        fill(fork, 2, 30);
    }
    SECTION("by the first of the two") {
        parent.truncate(k_kv_page_tokens + 5);
        parent.hold(k_kv_page_tokens + 5, 2 * k_kv_page_tokens);
        fill(parent, 1, 9);
        CHECK(is_filled(fork, 1, 2));
        CHECK(is_filled(fork, 2, 3));
        return;
    }
    for (int64_t i = 0; i < 3; ++i) CHECK(is_filled(parent, i, static_cast<uint8_t>(i + 1)));
}

TEST_CASE("a page that is shared no more is written without a copy") {
    const auto pool = new_pool();
    Sequence parent(pool, k_kv_page_tokens);
    parent.hold(0, k_kv_page_tokens);
    const std::byte* place = parent.view().pages[0];
    { const Sequence fork = parent.fork(k_kv_page_tokens, k_kv_page_tokens); }
    parent.truncate(5);
    parent.hold(5, 6);
    CHECK(parent.view().pages[0] == place);
    CHECK(pool->state().n_pages == 1);
}
