// SPDX-License-Identifier: Apache-2.0
// Pages of the KV cache in shared memory, thread by thread, beside their elements one by one.
#include "cuda/fast/attend_page.h"

#include "gpu/attend_support.h"

namespace minim::test {
namespace {

// Copies and converts n_tokens of a page by a block of n_threads, and returns the tile's rows without their padding.
template <int head_dim, int n_threads>
std::vector<uint16_t> tile_of(Format format, const std::vector<uint8_t>& page, int n_tokens) {
    using Tiles = fast::KvTiles<head_dim, n_threads>;
    const int token_bytes = static_cast<int>(page.size()) / fast::k_page_tokens;
    std::vector<uint16_t> halves;
    emulate({.n_blocks = 1, .shared_bytes = Tiles::bytes(format, token_bytes)}, n_threads, {},
            [&](EmulatedThread& t) {
                const Tiles tiles = {format, token_bytes, t.shared()};
                tiles.start(t, reinterpret_cast<const std::byte*>(page.data()), n_tokens, 0);
                t.copies_end_group();
                t.copies_wait<0>();
                t.sync();
                if (tiles.converts()) tiles.convert(t, n_tokens);
                t.sync();
                if (t.index() != 0) return;
                for (int token = 0; token < fast::k_page_tokens; ++token) {
                    const auto* row =
                        reinterpret_cast<const uint16_t*>(tiles.tile(0) + token * Tiles::k_row_bytes);
                    halves.insert(halves.end(), row, row + head_dim);
                }
            });
    return halves;
}

template <int head_dim, int n_threads>
void check_tiles(Format format) {
    INFO(traits(format).name << ", heads of " << head_dim << ", " << n_threads << " threads");
    const int64_t token_bytes = traits(format).block_bytes * head_dim / traits(format).block_elems;
    std::vector<uint8_t> page;
    Random random(3);
    for (int token = 0; token < fast::k_page_tokens; ++token) {
        // Large and small ones: their halves are infinite or subnormal.
        std::vector<float> x = random.normal(head_dim, token % 8 == 5 ? 1e6F : token % 8 == 6 ? 1e-6F : 1.0F);
        x[3] = -0.0F;
        page.resize(page.size() + static_cast<size_t>(token_bytes));
        exact::encode_kv_row(format, x.data(), head_dim, page.data() + token * token_bytes);
    }
    for (const int n_tokens : {1, 37, fast::k_page_tokens}) {
        std::vector<uint16_t> expected(static_cast<size_t>(fast::k_page_tokens) * head_dim, 0);
        for (int token = 0; token < n_tokens; ++token)
            for (int i = 0; i < head_dim; ++i)
                expected[static_cast<size_t>(token * head_dim + i)] =
                    float_to_f16(exact::kv_element(format, page.data() + token * token_bytes, i));
        CHECK(tile_of<head_dim, n_threads>(format, page, n_tokens) == expected);
    }
}

}  // namespace

TEST_CASE("attend: pages of every format become halves, each rounded once") {
    for (const Format format : {Format::f16, Format::bf16, Format::f32, Format::q8_0, Format::q4_0}) {
        check_tiles<32, 128>(format);
        check_tiles<64, 256>(format);
        check_tiles<96, 128>(format);
        check_tiles<96, 256>(format);
        check_tiles<128, 128>(format);
        check_tiles<128, 256>(format);
    }
}

}  // namespace minim::test
