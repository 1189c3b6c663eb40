// SPDX-License-Identifier: Apache-2.0
// Pools whose pages are divided among devices and processes by layers and heads: a page is the same whole wherever its parts are.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kv/page_pool.h"
#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;
using kv::Page;
using kv::PagePart;

namespace {

constexpr backend::KvLayout k_whole = {
    .n_layer = 3, .n_head_kv = 4, .head_dim = 32, .k_format = Format::f16, .v_format = Format::q8_0};
// The last two layers have index keys, which are in each part of the layer.
constexpr backend::KvLayout k_with_index = {.n_layer = 3,
                                            .n_head_kv = 4,
                                            .head_dim = 32,
                                            .k_format = Format::f16,
                                            .v_format = Format::q8_0,
                                            .index_dim = 16,
                                            .first_index_layer = 1};

// Other processes, in this one: each has a store of its parts.
class FakeProcesses final : public kv::RemotePages {
  public:
    explicit FakeProcesses(std::vector<std::vector<PagePart>> parts) : parts_(std::move(parts)) {}

    uint32_t make_pool(const backend::KvLayout& whole) override {
        for (const std::vector<PagePart>& parts : parts_)
            stores_.push_back(std::make_unique<kv::PageStore>(whole, parts));
        return 7;
    }
    void end_pool(uint32_t pool) noexcept override { n_ended_ += pool == 7 ? 1 : 0; }
    void add_slab(uint32_t, int32_t slab, int64_t n_pages) override {
        if (refuses) fail(Status::out_of_memory, "rank 1: no memory");
        for (auto& store : stores_) store->add(slab, store->allocate(n_pages));
        slabs.push_back(slab);
    }
    void drop_slab(uint32_t, int32_t slab) noexcept override { std::erase(slabs, slab); }
    void copy(uint32_t, Page from, Page to) noexcept override {
        for (auto& store : stores_) store->copy(from, to);
    }
    std::vector<std::byte> read(uint32_t, Page page, int32_t process) override {
        ++n_reads;
        return stores_[process - 1]->read_all(page);
    }
    void write(uint32_t, Page page, int32_t process, std::span<const std::byte> bytes) override {
        REQUIRE(std::ssize(bytes) == stores_[process - 1]->bytes());
        stores_[process - 1]->write_all(page, bytes);
    }

    int n_ended_ = 0;
    int n_reads = 0;
    bool refuses = false;
    std::vector<int32_t> slabs;

  private:
    const std::vector<std::vector<PagePart>> parts_;
    std::vector<std::unique_ptr<kv::PageStore>> stores_;
};

std::vector<std::byte> page_bytes(const backend::KvLayout& layout, uint32_t seed) {
    std::vector<std::byte> bytes(layout.page_bytes());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>((seed = seed * 1664525 + 1013904223) >> 24);
    return bytes;
}

std::vector<std::byte> read_page(const kv::PagePool& pool, const Page& page) {
    std::vector<std::byte> bytes(pool.layout().page_bytes());
    pool.read(page, bytes.data());
    return bytes;
}

PagePart part_with(int64_t first_layer, int64_t n_layer, int64_t first_head, int64_t n_head) {
    return {.first_layer = first_layer, .n_layer = n_layer, .first_head = first_head, .n_head = n_head};
}

}  // namespace

TEST_CASE("a page in parts is read and copied as it was written") {
    struct Division {
        std::vector<PagePart> here;
        std::vector<std::vector<PagePart>> remote_parts;
        int n_reads;  // of other processes, for one page
    };
    const PagePart all = part_with(0, 3, 0, 4);
    const Division division =
        GENERATE_COPY(Division{{all}, {}, 0}, Division{{part_with(0, 3, 0, 2), part_with(0, 3, 2, 2)}, {}, 0},
                      Division{{part_with(0, 3, 0, 1)},
                               {{part_with(0, 3, 1, 1)}, {part_with(0, 3, 2, 1)}, {part_with(0, 3, 3, 1)}},
                               3},
                      Division{{part_with(1, 2, 0, 4)}, {{part_with(0, 1, 0, 4)}}, 1},
                      Division{{part_with(0, 3, 0, 1), part_with(0, 3, 1, 1)},
                               {{part_with(0, 3, 2, 1), part_with(0, 3, 3, 1)}},
                               1},
                      Division{{all}, {{all}, {all}}, 0});
    const backend::KvLayout layout = GENERATE(k_whole, k_with_index);
    FakeProcesses others(division.remote_parts);
    kv::PageParts parts = {.here = division.here, .remote_parts = division.remote_parts};
    if (!division.remote_parts.empty()) parts.remote = &others;
    {
        kv::PagePool pool(layout, parts);
        pool.reserve(2);
        const Page one = pool.take();
        const Page two = pool.take();
        const std::vector<std::byte> first = page_bytes(layout, 1);
        const std::vector<std::byte> second = page_bytes(layout, 2);
        pool.write(one, first.data());
        pool.write(two, second.data());
        CHECK(read_page(pool, one) == first);
        CHECK(others.n_reads == division.n_reads);
        CHECK(read_page(pool, two) == second);
        pool.copy(one, two);
        CHECK(read_page(pool, two) == first);
        pool.release(one, false);
        pool.release(two, false);
        CHECK(others.slabs.empty());
    }
    CHECK(others.n_ended_ == (division.remote_parts.empty() ? 0 : 1));
}

TEST_CASE("a part has the index keys of its own layers, whole") {
    const backend::KvLayout part = kv::layout_of(part_with(1, 2, 2, 1), k_with_index);
    CHECK(part.n_layer == 2);
    CHECK(part.n_head_kv == 1);
    CHECK(part.first_index_layer == 0);
    CHECK(part.page_bytes() == 2 * 64 * (64 + 34 + 32));
    const backend::KvLayout last = kv::layout_of(part_with(2, 1, 0, 4), k_with_index);
    CHECK(last.has_index(0));
    const backend::KvLayout first = kv::layout_of(part_with(0, 1, 0, 4), k_with_index);
    CHECK_FALSE(first.has_index(0));
    CHECK(first.page_bytes() == 64 * 4 * (64 + 34));
    // The index keys of layer 1 in a page, and in the part with its second half of heads.
    std::vector<std::byte> page = page_bytes(k_with_index, 5);
    const PagePart half = part_with(1, 2, 2, 2);
    const backend::KvLayout of_half = kv::layout_of(half, k_with_index);
    std::vector<std::byte> bytes(of_half.page_bytes());
    kv::take_part(k_with_index, half, page.data(), bytes.data());
    CHECK(std::equal(bytes.begin() + of_half.index_offset(0),
                     bytes.begin() + of_half.index_offset(0) + 64 * 32,
                     page.begin() + k_with_index.index_offset(1)));
    CHECK(std::equal(bytes.begin() + of_half.v_offset(1, 0), bytes.begin() + of_half.v_offset(1, 2),
                     page.begin() + k_with_index.v_offset(2, 2)));
}

TEST_CASE("slabs have the same numbers in all processes, and a refusal leaves none behind") {
    const PagePart all = part_with(0, 3, 0, 4);
    FakeProcesses others({{all}});
    kv::PagePool pool(k_whole, {.here = {all}, .remote = &others, .remote_parts = {{all}}});
    pool.keep_pages(1);
    pool.reserve(3);
    CHECK(others.slabs == std::vector<int32_t>{0, 1});
    others.refuses = true;
    expect_error(Status::out_of_memory, "rank 1", [&] { pool.reserve(5); });
    CHECK(pool.state() == kv::PoolState{.n_pages = 3, .n_in_use = 0, .n_reserved = 3});
    others.refuses = false;
    pool.reserve(5);
    CHECK(others.slabs == std::vector<int32_t>{0, 1, 2});
    pool.release_reservation(8);
    CHECK(others.slabs == std::vector<int32_t>{0});
    pool.reserve(2);
    CHECK(others.slabs == std::vector<int32_t>{0, 1});
    pool.release_reservation(2);
}
