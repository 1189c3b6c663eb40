// SPDX-License-Identifier: Apache-2.0
// One row, prepared, attended and joined by one kernel: the bits of the separate kernels, which other tests compare with the
// exact items.
#include <algorithm>
#include <cmath>

#include "gpu/attend_row_support.h"

namespace minim::test {
namespace {

// Checks one kernel in both orders of its threads, and twice with the same counters.
void check_row(RowOfText& row, int64_t n_splits) {
    INFO(n_splits << " parts");
    const RowResult expected = row.separately(n_splits);
    CHECK(std::ranges::none_of(expected.o, [](float x) { return std::isnan(x); }));
    CHECK(row.in_one(n_splits) == expected);
    const Emulating how({.backwards = true});
    CHECK(row.in_one(n_splits) == expected);
}

}  // namespace

TEST_CASE("attend row: in every format, at the borders of pages") {
    for (const Formats& formats : k_formats) {
        for (const int64_t n_context : {1, 2, 63, 64, 65, 127, 128, 129, 200}) {
            INFO(traits(formats.k).name << " " << traits(formats.v).name << ", " << n_context
                                        << " positions");
            RowOfText row({6, 2, 64}, formats, n_context - 1, 20);
            for (const int64_t n_splits : {1, 2, 4}) check_row(row, n_splits);
        }
    }
}

TEST_CASE("attend row: in the model's shape") {
    for (const Formats& formats : k_formats) {
        if (formats.k == Format::f32) continue;
        INFO(traits(formats.k).name << " " << traits(formats.v).name);
        RowOfText row({48, 8, 128}, formats, 150, 32);
        check_row(row, 3);
        RowOfText first({48, 8, 128}, formats, 0, 32);
        check_row(first, 1);
    }
}

TEST_CASE("attend row: heads of every size, groups of every size") {
    // The last two: more squares than the threads keep, of queries and of keys.
    for (const Heads& heads : {Heads{2, 2, 32}, Heads{6, 2, 96}, Heads{16, 1, 32}, Heads{11, 1, 96},
                               Heads{5, 1, 64}, Heads{64, 4, 128}, Heads{12, 12, 128}}) {
        for (const Formats& formats :
             {Formats{Format::f16, Format::q8_0}, Formats{Format::q8_0, Format::f16}}) {
            INFO(heads.n_head << " heads, " << heads.n_head_kv << " of keys, of " << heads.head_dim);
            RowOfText row(heads, formats, 130, 13);
            check_row(row, 1);
            check_row(row, 3);
        }
    }
}

TEST_CASE("attend row: several thousand positions, more parts than are joined at once") {
    for (const Formats& formats : {Formats{Format::f16, Format::f16}, Formats{Format::q4_0, Format::q8_0}}) {
        RowOfText row({6, 2, 32}, formats, 4101, 8);  // 65 pages
        for (const int64_t n_splits : {7, 49, 64, 65, 80}) check_row(row, n_splits);
    }
}

TEST_CASE("attend row: a row with NaN or infinity, of zeros") {
    for (const Formats& formats : {Formats{Format::f16, Format::f16}, Formats{Format::q8_0, Format::q8_0},
                                   Formats{Format::q4_0, Format::q4_0}}) {
        INFO(traits(formats.k).name << " " << traits(formats.v).name);
        const auto kinds = [](const RowResult& result) {
            std::vector<int> kind;
            for (const float x : result.o) kind.push_back(std::isnan(x) ? 1 : std::isinf(x) ? 2 : 0);
            return kind;
        };
        for (const int which : {0, 1, 2}) {
            for (const float bad : {NAN, INFINITY}) {
                RowOfText row({6, 2, 64}, formats, 100, 16);
                (which == 0 ? row.q : which == 1 ? row.k : row.v)[70] = bad;
                for (const int64_t n_splits : {1, 2})
                    CHECK(kinds(row.in_one(n_splits)) == kinds(row.separately(n_splits)));
            }
        }
        RowOfText row({6, 2, 64}, formats, 100, 16);
        std::ranges::fill(row.q, 0.0F);
        std::ranges::fill(row.k, 0.0F);
        std::ranges::fill(row.v, 0.0F);
        check_row(row, 2);
    }
    // A NaN in the newest key reaches the outputs of its head only.
    RowOfText row({6, 2, 64}, {Format::f16, Format::f16}, 64, 16);
    row.v[70] = NAN;
    const RowResult result = row.in_one(2);
    for (size_t i = 0; i < result.o.size(); ++i)
        CHECK(std::isnan(result.o[i]) == (i >= 3 * 64 && i % 64 == 6));
}

TEST_CASE("attend row: which rows there is a kernel for") {
    const auto runs = [](Heads heads, Formats formats) {
        return fast::attend_row_runs(RowOfText(heads, formats, 0, 32).prepare_args());
    };
    CHECK(runs({48, 8, 128}, {Format::f16, Format::f16}));
    CHECK(runs({48, 8, 128}, {Format::f32, Format::f16}));
    CHECK_FALSE(runs({48, 8, 128}, {Format::f32, Format::f32}));
    CHECK(runs({48, 8, 96}, {Format::f32, Format::f32}));
    CHECK(runs({64, 4, 128}, {Format::bf16, Format::bf16}));
}

}  // namespace minim::test
