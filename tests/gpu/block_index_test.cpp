// SPDX-License-Identifier: Apache-2.0
// The index of block-sparse attention, thread by thread: scores against sums in double, the choice and its pages against
// backend::choose_blocks().
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/choose_blocks.h"
#include "base/half.h"
#include "gpu/attend_support.h"

namespace minim::test {
namespace {

constexpr int64_t k_page_head_bytes = 256;  // in front of the index keys of a page

// The index keys of some sequences. Each is stored up to a position of its own, with NaN beyond; pages behind do not exist. Every fourth
// block repeats the keys of the one before it, so that scores are equal.
struct IndexCache {
    backend::SparseAttention shape;
    Format format;
    std::vector<std::unique_ptr<Chunk[]>> memory;
    std::vector<uint64_t> pages;
    std::vector<int64_t> first_page;  // of each sequence

    IndexCache(backend::SparseAttention shape_, Format format_, const std::vector<int64_t>& n_stored)
        : shape(shape_), format(format_) {
        Random random(3);
        for (const int64_t n : n_stored) {
            first_page.push_back(std::ssize(pages));
            for (int64_t page = 0; page <= (n - 1) / k_kv_page_tokens; ++page) {
                const auto n_bytes =
                    static_cast<size_t>(k_page_head_bytes + k_kv_page_tokens * token_bytes());
                memory.push_back(std::make_unique<Chunk[]>(n_bytes / sizeof(Chunk) + 1));
                std::memset(memory.back().get(), 0xFF, n_bytes);
                pages.push_back(reinterpret_cast<uint64_t>(memory.back().get()));
            }
            for (int64_t p = 0; p < n; ++p) {
                std::vector<float> key = random.normal(shape.dim);
                if (p / shape.block % 4 == 3) key = key_of(std::ssize(first_page) - 1, p - shape.block);
                exact::encode_kv_row(format, key.data(), shape.dim, place(std::ssize(first_page) - 1, p));
            }
        }
    }
    int64_t token_bytes() const { return shape.dim * (format == Format::f32 ? 4 : 2); }
    uint8_t* place(int64_t sequence, int64_t p) const {
        const int64_t page = first_page[static_cast<size_t>(sequence)] + p / k_kv_page_tokens;
        return reinterpret_cast<uint8_t*>(pages[static_cast<size_t>(page)]) + k_page_head_bytes +
               p % k_kv_page_tokens * token_bytes();
    }
    std::vector<float> key_of(int64_t sequence, int64_t p) const {
        std::vector<float> key;
        for (int64_t d = 0; d < shape.dim; ++d)
            key.push_back(exact::kv_element(format, place(sequence, p), d));
        return key;
    }
};

struct IndexRow {
    int64_t sequence;
    int64_t position;
};

// What choose_pages() has written.
struct Chosen {
    std::vector<float> q;       // prepared
    std::vector<float> scores;  // [n, n_head, n_blocks]
    std::vector<int32_t> tiles, position;
    std::vector<int64_t> first_page;
    std::vector<uint64_t> pages;
    int64_t n_blocks = 0;
    int64_t pages_a_head = 0;
};

// Chooses for some rows, whose index queries and keys depend on their sequence and position alone.
Chosen choose_once(const IndexCache& test, const std::vector<IndexRow>& rows) {
    const backend::SparseAttention& shape = test.shape;
    const auto n = std::ssize(rows);
    std::vector<int64_t> first_page;
    std::vector<int32_t> position;
    std::vector<float> q, k;
    int64_t longest = 0;
    for (const IndexRow& row : rows) {
        first_page.push_back(test.first_page[static_cast<size_t>(row.sequence)]);
        position.push_back(static_cast<int32_t>(row.position));
        longest = std::max(longest, row.position);
        Random random(static_cast<uint32_t>(100 * row.position + row.sequence));
        for (const float x : random.normal(shape.n_head * shape.dim, 2.0F)) q.push_back(x);
        for (const float x : random.normal(shape.dim)) k.push_back(x);
    }
    const std::vector<float> norm(static_cast<size_t>(shape.dim), 1.5F);
    const std::vector<float> turns = frequencies(shape.dim / 4);
    Chosen chosen;
    chosen.n_blocks = longest / shape.block + 3;
    chosen.pages_a_head = fast::chosen_pages_a_head(shape);
    chosen.scores.assign(static_cast<size_t>(n * shape.n_head * chosen.n_blocks), NAN);
    chosen.tiles.assign(static_cast<size_t>(2 * n), -1);
    chosen.position.assign(static_cast<size_t>(n), -1);
    chosen.first_page.assign(static_cast<size_t>(n), -1);
    chosen.pages.assign(static_cast<size_t>(n * shape.n_head * chosen.pages_a_head), 0);
    const exact::Cache cache = {.pages = test.pages.data(),
                                .first_page = first_page.data(),
                                .position = position.data(),
                                .k_format = Format::f16,
                                .v_format = Format::f16,
                                .k_at = 0,
                                .v_at = 0,
                                .k_head_bytes = 0,
                                .v_head_bytes = 0,
                                .k_token_bytes = 0,
                                .v_token_bytes = 0,
                                .n_head = shape.n_head,
                                .n_head_kv = shape.n_head,
                                .head_dim = shape.dim};
    const exact::Index index = {.shape = shape,
                                .format = test.format,
                                .at = k_page_head_bytes,
                                .token_bytes = test.token_bytes(),
                                .n_blocks = chosen.n_blocks,
                                .scores = chosen.scores.data(),
                                .chosen = nullptr};
    const exact::IndexRows index_rows = {.q = q.data(),
                                         .k = k.data(),
                                         .q_norm = norm.data(),
                                         .k_norm = norm.data(),
                                         .norm_eps = 1e-6F,
                                         .frequency = turns.data(),
                                         .n_frequency = std::ssize(turns)};
    fast::choose_pages(nullptr, {.cache = cache,
                                 .index = index,
                                 .rows = index_rows,
                                 .n = n,
                                 .n_context = longest + 1,
                                 .to = {.tiles = chosen.tiles.data(),
                                        .position = chosen.position.data(),
                                        .first_page = chosen.first_page.data(),
                                        .pages = chosen.pages.data(),
                                        .pages_a_head = chosen.pages_a_head}});
    finish_kernels();
    chosen.q = q;
    return chosen;
}

// Returns the queries and the key of a row as the formulas prepare them: [n_head + 1, dim].
std::vector<float> prepared_plainly(const backend::SparseAttention& shape, const IndexRow& row) {
    Random random(static_cast<uint32_t>(100 * row.position + row.sequence));
    std::vector<float> heads = random.normal(shape.n_head * shape.dim, 2.0F);
    for (const float x : random.normal(shape.dim)) heads.push_back(x);
    const std::vector<float> norm(static_cast<size_t>(shape.dim), 1.5F);
    const std::vector<float> turns = frequencies(shape.dim / 4);
    const std::vector<int32_t> positions(static_cast<size_t>(shape.n_head + 1),
                                         static_cast<int32_t>(row.position));
    for (int64_t i = 0; i <= shape.n_head; ++i) {
        exact::NormItem{heads.data(), norm.data(), shape.dim, 1e-6F, heads.data()}(i);
        exact::RotateItem{heads.data(),      1,    shape.dim, positions.data(), turns.data(),
                          std::ssize(turns), false}(i);
    }
    return heads;
}

double dot_of(const float* a, const std::vector<float>& b) {
    double sum = 0.0;
    for (size_t i = 0; i < b.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
}

// Compares the scores, and the choice by them, of an index head of row i.
void check_choice(const IndexCache& test, const IndexRow& row, const Chosen& chosen, int64_t i,
                  int64_t head) {
    const backend::SparseAttention& shape = test.shape;
    const int64_t item = i * shape.n_head + head;
    const int64_t n_seen = row.position / shape.block + 1;
    std::vector<int32_t> blocks(static_cast<size_t>(std::min(n_seen, shape.top)));
    if (n_seen <= shape.top) {
        for (int32_t b = 0; b < n_seen; ++b) blocks[static_cast<size_t>(b)] = b;
    } else {
        const float* scores = chosen.scores.data() + item * chosen.n_blocks;
        for (int64_t b = 0; b < n_seen; ++b) {
            double largest = -std::numeric_limits<double>::infinity();
            for (int64_t p = b * shape.block; p < (b + 1) * shape.block && p <= row.position; ++p)
                largest = std::max(largest,
                                   dot_of(chosen.q.data() + item * shape.dim, test.key_of(row.sequence, p)));
            INFO("block " << b);
            CHECK(std::abs(static_cast<double>(scores[b]) - largest) < 3e-4);
        }
        backend::choose_blocks(shape, scores, n_seen, blocks.data());
    }
    std::vector<uint64_t> expected;
    const int64_t first = test.first_page[static_cast<size_t>(row.sequence)];
    const int64_t pages_a_block = shape.block / k_kv_page_tokens;
    for (const int32_t b : blocks)
        for (int64_t j = b * pages_a_block;
             j <= std::min((b + 1) * pages_a_block - 1, row.position / k_kv_page_tokens); ++j)
            expected.push_back(test.pages[static_cast<size_t>(first + j)]);
    const auto from = chosen.pages.begin() + item * chosen.pages_a_head;
    CHECK(std::equal(expected.begin(), expected.end(), from));
    const auto row_at = static_cast<size_t>(i);
    CHECK(chosen.position[row_at] == (std::ssize(blocks) - 1) * shape.block + row.position % shape.block);
    CHECK(chosen.first_page[row_at] == i * shape.n_head * chosen.pages_a_head);
    CHECK(chosen.tiles[2 * row_at] == i);
    CHECK(chosen.tiles[2 * row_at + 1] == 1);
}

void check_rows(const IndexCache& test, const std::vector<IndexRow>& rows) {
    const backend::SparseAttention& shape = test.shape;
    const Chosen chosen = choose_once(test, rows);
    const double of_key = test.format == Format::bf16 ? 0.02 : 0.004;
    for (int64_t i = 0; i < std::ssize(rows); ++i) {
        const IndexRow& row = rows[static_cast<size_t>(i)];
        INFO("row " << i << ", position " << row.position);
        const std::vector<float> plain = prepared_plainly(shape, row);
        const std::vector<float> key = test.key_of(row.sequence, row.position);
        double worst = 0.0;
        for (int64_t d = 0; d < shape.n_head * shape.dim; ++d)
            worst =
                std::max(worst, std::abs(static_cast<double>(plain[static_cast<size_t>(d)]) -
                                         chosen.q[static_cast<size_t>(i * shape.n_head * shape.dim + d)]));
        CHECK(worst < 1e-5);
        worst = 0.0;
        for (size_t d = 0; d < key.size(); ++d)
            worst = std::max(worst, std::abs(static_cast<double>(
                                        key[d] - plain[static_cast<size_t>(shape.n_head * shape.dim) + d])));
        CHECK(worst < of_key);
        for (int64_t head = 0; head < shape.n_head; ++head) check_choice(test, row, chosen, i, head);
    }
    // Alone, in a tile of its own, a row has the same bits.
    for (size_t i = 0; i < rows.size(); i += 7) {
        const Chosen alone = choose_once(test, {rows[i]});
        const int64_t n_seen = rows[i].position / shape.block + 1;
        if (n_seen <= shape.top) continue;
        for (int64_t head = 0; head < shape.n_head; ++head) {
            const float* together =
                chosen.scores.data() + (static_cast<int64_t>(i) * shape.n_head + head) * chosen.n_blocks;
            CHECK(std::memcmp(alone.scores.data() + head * alone.n_blocks, together,
                              static_cast<size_t>(n_seen) * sizeof(float)) == 0);
        }
    }
}

// Rows of a prompt, of single tokens, and of both.
std::vector<IndexRow> rows_of(int64_t first, int64_t n, const std::vector<IndexRow>& others) {
    std::vector<IndexRow> rows = others;
    for (int64_t i = 0; i < n; ++i) rows.push_back({0, first + i});
    return rows;
}

}  // namespace

TEST_CASE("blocks are chosen by their scores, which are those of the formulas, in any batch") {
    struct Case {
        backend::SparseAttention shape;
        Format format;
    };
    // The model's shape; one and many heads; every number of elements; blocks of a page and of several; forced blocks; float keys.
    for (const Case& each :
         {Case{{.n_head = 4, .dim = 128, .block = 128, .top = 3}, Format::f16},
          Case{{.n_head = 1, .dim = 32, .block = 64, .top = 5, .local = 2, .init = 1}, Format::bf16},
          Case{{.n_head = 3, .dim = 64, .block = 64, .top = 2, .init = 1}, Format::f16},
          Case{{.n_head = 16, .dim = 96, .block = 64, .top = 4, .local = 3}, Format::f16},
          Case{{.n_head = 17, .dim = 32, .block = 64, .top = 3}, Format::f16},
          Case{{.n_head = 2, .dim = 48, .block = 64, .top = 3}, Format::f16},
          Case{{.n_head = 2, .dim = 32, .block = 64, .top = 3}, Format::f32}}) {
        INFO(each.shape.n_head << " heads of " << each.shape.dim << ", blocks of " << each.shape.block);
        const IndexCache test(each.shape, each.format, {720, 500, 40});
        check_rows(test, {{0, 719}});
        check_rows(test, {{0, 719}, {1, 499}, {2, 39}});
        check_rows(test, rows_of(690, 21, {{1, 400}, {1, 499}, {2, 39}}));
    }
}

// More blocks than a warp has lanes, and more chosen ones.
TEST_CASE("blocks are chosen as one after the other, whatever their number") {
    for (const int64_t top : {1, 16, 40, 70}) {
        const backend::SparseAttention shape = {
            .n_head = 1, .dim = 32, .block = 64, .top = top, .local = 1, .init = top > 3 ? 2 : 0};
        const IndexCache test(shape, Format::f16, {64 * 75 + 9});
        for (const int64_t position : {64 * 34, 64 * 75 + 8}) check_rows(test, {{0, position}});
    }
}

TEST_CASE("in all orders of threads the choice of blocks is the same") {
    const backend::SparseAttention shape = {.n_head = 4, .dim = 32, .block = 64, .top = 3};
    const IndexCache test(shape, Format::f16, {720});
    for (const int64_t n : {1, 20})
        in_both_orders([&] { return choose_once(test, rows_of(700, n, {})).pages; });
}

}  // namespace minim::test
