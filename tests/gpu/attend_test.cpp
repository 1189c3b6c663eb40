// SPDX-License-Identifier: Apache-2.0
// Attention, thread by thread, against sums in double over the stored KV cache.
#include <algorithm>
#include <cmath>

#include "gpu/attend_support.h"

namespace minim::test {
namespace {

std::vector<uint16_t> scaled_queries(const std::vector<float>& q, int64_t head_dim) {
    std::vector<uint16_t> query;
    for (const float x : q) query.push_back(float_to_f16(x * fast::query_scale(head_dim)));
    return query;
}

std::vector<double> reference(const TestCache& test, const std::vector<KvRow>& rows,
                              const std::vector<float>& q) {
    const Heads heads = test.heads();
    std::vector<double> o(q.size());
    for (size_t item = 0; item < q.size() / static_cast<size_t>(heads.head_dim); ++item) {
        const KvRow& row = rows[item / static_cast<size_t>(heads.n_head)];
        const int64_t head = static_cast<int64_t>(item) % heads.n_head / (heads.n_head / heads.n_head_kv);
        const float* x = q.data() + item * static_cast<size_t>(heads.head_dim);
        double* out = o.data() + item * static_cast<size_t>(heads.head_dim);
        std::vector<double> weight;
        double sum = 0.0;
        for (int64_t p = 0; p <= row.position; ++p) {
            double score = 0.0;
            const uint8_t* key = test.key(test.sequence_of(row), head, p);
            for (int64_t d = 0; d < heads.head_dim; ++d)
                score += static_cast<double>(exact::kv_element(test.layout().k_format, key, d)) *
                         static_cast<double>(x[d]);
            weight.push_back(std::exp(score / std::sqrt(static_cast<double>(heads.head_dim))));
            sum += weight.back();
        }
        for (int64_t p = 0; p <= row.position; ++p) {
            const uint8_t* value = test.value(test.sequence_of(row), head, p);
            for (int64_t d = 0; d < heads.head_dim; ++d)
                out[d] += weight[static_cast<size_t>(p)] / sum *
                          static_cast<double>(exact::kv_element(test.layout().v_format, value, d));
        }
    }
    return o;
}

// Attends and compares.
std::vector<float> check_attend(const TestCache& test, const std::vector<KvRow>& rows, Splits splits = {},
                                int64_t n_empty = 0) {
    const Heads heads = test.heads();
    const std::vector<float> q = Random(9).normal(std::ssize(rows) * heads.n_head * heads.head_dim, 1.5F);
    std::vector<float> o = run_attend(test, rows, scaled_queries(q, heads.head_dim), splits, n_empty);
    CHECK(distance(o, reference(test, rows, q)) < k_tolerance);
    return o;
}

}  // namespace

TEST_CASE("attend: which heads there are kernels for") {
    CHECK(fast::attend_runs(128, 48, 8));
    CHECK(fast::attend_runs(32, 16, 1));
    CHECK(fast::attend_runs(96, 4, 4));
    CHECK_FALSE(fast::attend_runs(128, 17, 1));
    CHECK_FALSE(fast::attend_runs(128, 10, 4));
    CHECK_FALSE(fast::attend_runs(160, 8, 8));
    CHECK_FALSE(fast::attend_runs(16, 8, 8));
}

TEST_CASE("attend: a batch is cut into tiles by sequence, position and length") {
    const KvSequence a, b;
    std::vector<KvRow> rows;
    rows.push_back({&a, 7});
    for (int64_t p = 0; p < 43; ++p) rows.push_back({&b, 100 + p});
    rows.push_back({&a, 8});
    rows.push_back({&a, 9});
    rows.push_back({&a, 10});
    rows.push_back({&a, 20});
    std::vector<int32_t> tiles(2 * rows.size(), -1);
    // Six heads: 2 tokens a narrow tile, 21 a wide one.
    const fast::TileCounts counts = fast::make_tiles(rows, 12, 2, tiles);
    CHECK(counts.n_wide == 3);
    CHECK(counts.n_narrow == 4);
    const std::vector<int32_t> expected = {1, 14, 15, 14, 29, 15, 0, 1, 44, 1, 45, 2, 47, 1};
    CHECK(std::equal(expected.begin(), expected.end(), tiles.begin()));
    CHECK(std::all_of(tiles.begin() + std::ssize(expected), tiles.end(), [](int32_t x) { return x == 0; }));
}

TEST_CASE("attend: contexts are split as far as there are processors and pages for it") {
    const auto splits = [](fast::TileShape shape, int64_t n_tiles, int64_t n_context) {
        return fast::attend_splits(shape, n_tiles, 8, n_context, 132);
    };
    using enum fast::TileShape;
    CHECK(splits(wide, 1, 100000) == 33);
    CHECK(splits(wide, 8, 100000) == 4);
    CHECK(splits(wide, 100, 100000) == 1);
    CHECK(splits(narrow, 1, 100000) == 49);
    CHECK(splits(narrow, 1, 200) == 4);
    CHECK(splits(narrow, 17, 2000) == 2);
    CHECK(splits(narrow, 17, 100000) == 7);  // one of the tiles may be the only one with a long context
    CHECK(splits(narrow, 200, 100000) == 1);
    CHECK(splits(narrow, 0, 100000) == 1);
    CHECK(splits(narrow, 1, 64) == 1);
    CHECK(fast::partial_bytes(8, 48, 8, 128, 132) >= 33 * 8 * 128 * 130 * 4);
    CHECK(fast::partial_bytes(4, 48, 8, 128, 132) >= 7 * 17 * 8 * 16 * 130 * 4);
    CHECK(fast::partial_bytes(4, 48, 8, 128, 132) < fast::partial_bytes(5, 48, 8, 128, 132));
}

TEST_CASE("attend: one token a sequence, at the borders of pages, in every format") {
    const std::vector<int64_t> positions = {0, 1, 62, 63, 64, 130};
    for (const Formats& formats : k_formats) {
        INFO(traits(formats.k).name << " " << traits(formats.v).name);
        std::vector<int64_t> n_stored;
        for (const int64_t p : positions) n_stored.push_back(p + 1);
        const TestCache test({6, 1, 128}, formats.k, formats.v, n_stored);
        std::vector<KvRow> rows;
        for (size_t s = 0; s < positions.size(); ++s) rows.push_back(test.row(s, positions[s]));
        check_attend(test, rows, {.narrow = formats.k == Format::f16 ? 1 : 2});
    }
}

TEST_CASE("attend: runs of tokens from a position on, in every format") {
    for (const Formats& formats : k_formats) {
        INFO(traits(formats.k).name << " " << traits(formats.v).name);
        const TestCache test({12, 2, 64}, formats.k, formats.v, {70});
        check_attend(test, run_of(test, 0, 61, 9));
    }
}

TEST_CASE("attend: heads of every size, groups of every size") {
    for (const Heads& heads : {Heads{2, 2, 32}, Heads{6, 2, 96}, Heads{16, 1, 32}, Heads{5, 1, 64}}) {
        INFO(heads.n_head << " heads, " << heads.n_head_kv << " of keys, of " << heads.head_dim);
        const TestCache test(heads, Format::f16, Format::q8_0, {70, 66});
        check_attend(test, run_of(test, 0, 67, 3), {.narrow = 3});
        check_attend(test, run_of(test, 1, 26, 40));
    }
}

TEST_CASE("attend: a token of a tile may see none of a warp's keys, or of a page's") {
    const TestCache test({6, 2, 32}, Format::f16, Format::f16, {66});
    for (const int64_t first : {15, 47, 63}) check_attend(test, run_of(test, 0, first, 2));
}

TEST_CASE("attend: tiles of many tokens, in the model's shape") {
    const TestCache test({6, 1, 128}, Format::f16, Format::f16, {150});
    check_attend(test, run_of(test, 0, 0, 21));
    const std::vector<KvRow> rows = run_of(test, 0, 120, 30);
    check_attend(test, rows);
    check_attend(test, rows, {.wide = 2});
    check_attend(test, rows, {.wide = 4});  // one part has no page
}

TEST_CASE("attend: single tokens, drafts and a prompt in one batch; a row's bits are its own") {
    const TestCache test({6, 2, 32}, Format::f16, Format::q8_0, {300, 140, 2, 129});
    std::vector<KvRow> rows = {test.row(0, 299), test.row(2, 1)};
    for (const KvRow& row : run_of(test, 1, 123, 17)) rows.push_back(row);
    for (const KvRow& row : run_of(test, 3, 126, 3)) rows.push_back(row);
    rows.push_back(test.row(1, 20));
    const Splits splits = {.wide = 2, .narrow = 4};
    const std::vector<float> together = check_attend(test, rows, splits, 3);

    // check_attend() takes its queries from the same random numbers for every batch.
    const auto row_of = [&](const std::vector<float>& o, size_t row) {
        return std::vector<float>(o.begin() + static_cast<std::ptrdiff_t>(row * 6 * 32),
                                  o.begin() + static_cast<std::ptrdiff_t>((row + 1) * 6 * 32));
    };
    const std::vector<float> alone = check_attend(test, {rows[0]}, splits);
    CHECK(same_bits(row_of(together, 0), alone));
    // A token alone and in a draft that crosses the border of a page.
    const std::vector<float> draft = check_attend(test, run_of(test, 3, 127, 2), splits);
    CHECK(same_bits(row_of(draft, 0), check_attend(test, {test.row(3, 127)}, splits)));
}

TEST_CASE("attend: with fixed tiles and parts a row has the same bits in a prompt, in a draft and alone") {
    const Heads heads = {6, 2, 32};
    const TestCache test(heads, Format::f16, Format::q8_0, {1100, 140, 70, 66});
    // The batch has more tiles than are computed at a time: two prompts, and single tokens.
    std::vector<KvRow> rows = run_of(test, 0, 1060, 40);
    for (const KvRow& row : run_of(test, 1, 120, 20)) rows.push_back(row);
    for (int64_t p = 50; p < 66; p += 3) {
        rows.push_back(test.row(2, p));
        rows.push_back(test.row(3, p));
    }
    const int64_t width = heads.n_head * heads.head_dim;
    const std::vector<float> q = Random(9).normal(std::ssize(rows) * width, 1.5F);
    const std::vector<uint16_t> query = scaled_queries(q, heads.head_dim);
    const std::vector<float> together = run_fixed_attend(test, rows, query);
    CHECK(distance(together, reference(test, rows, q)) < k_tolerance);
    const auto check_part = [&](size_t first, size_t count) {
        INFO("rows " << first << " to " << first + count);
        const auto w = static_cast<size_t>(width);
        const auto part = [&](const auto& all) {
            return std::vector(all.begin() + static_cast<std::ptrdiff_t>(first * w),
                               all.begin() + static_cast<std::ptrdiff_t>((first + count) * w));
        };
        const std::vector<KvRow> some(rows.begin() + static_cast<std::ptrdiff_t>(first),
                                      rows.begin() + static_cast<std::ptrdiff_t>(first + count));
        CHECK(same_bits(run_fixed_attend(test, some, part(query)), part(together)));
    };
    for (const size_t row : {0, 39, 40, 47, 59, 61, 71}) check_part(row, 1);
    check_part(3, 30);  // over the border of a page, cut at another place
    check_part(44, 3);
    check_part(60, 12);
}

}  // namespace minim::test
