// SPDX-License-Identifier: Apache-2.0
#include "backend/kv_view.h"

#include <vector>

#include "backend/device.h"
#include "support/catch.h"

using namespace minim;
using namespace minim::backend;

namespace {

constexpr int64_t k_mib = int64_t{1} << 20;

// The released models: 62 layers, 8 KV heads of 128.
KvLayout minimax_m2(Format k, Format v) {
    return {62, 8, 128, k, v};
}

int64_t token_bytes(const KvLayout& layout) {
    return layout.n_layer * layout.n_head_kv * (layout.k_token_bytes() + layout.v_token_bytes());
}

}  // namespace

TEST_CASE("a token of MiniMax-M2 takes 248 KiB in F16 and twice that in F32") {
    CHECK(token_bytes(minimax_m2(Format::f16, Format::f16)) == 253952);
    CHECK(token_bytes(minimax_m2(Format::f32, Format::f32)) == 507904);
    CHECK(token_bytes(minimax_m2(Format::f16, Format::f32)) == (253952 + 507904) / 2);
}

TEST_CASE("65536 tokens of MiniMax-M2 take 15872 MiB in F16 and 31744 MiB in F32") {
    const int64_t pages = 65536 / k_kv_page_tokens;
    CHECK(pages * minimax_m2(Format::f16, Format::f16).page_bytes() == 15872 * k_mib);
    CHECK(pages * minimax_m2(Format::f32, Format::f32).page_bytes() == 31744 * k_mib);
}

TEST_CASE("a token of MiniMax-M3 takes its index keys besides") {
    const StepLimits m3 = {.n_head_kv = 4,
                           .head_dim = 128,
                           .index = {.n_head = 4, .dim = 128, .block = 128, .top = 16},
                           .first_sparse_layer = 3};
    const auto bytes = [&](Format format) {
        return kv_layout_of(m3, 60, format, format).page_bytes() / k_kv_page_tokens;
    };
    CHECK(bytes(Format::f16) == 137472);
    CHECK(bytes(Format::bf16) == 137472);
    CHECK(bytes(Format::q8_0) == 79872);
    CHECK(bytes(Format::f32) == 274944);
    CHECK(kv_layout_of(m3, 60, Format::bf16, Format::f16).index_format == Format::bf16);
    CHECK(kv_layout_of(m3, 60, Format::f32, Format::f16).index_format == Format::f32);
    CHECK(kv_layout_of(m3, 60, Format::q4_0, Format::f32).index_format == Format::f16);
    // Without sparse layers there are no index keys, and the layout is that of a model that never has any.
    StepLimits dense = m3;
    dense.first_sparse_layer = 60;
    CHECK(kv_layout_of(dense, 60, Format::f16, Format::f16) ==
          KvLayout{60, 4, 128, Format::f16, Format::f16});
    dense.index = {};
    CHECK(kv_layout_of(dense, 60, Format::f16, Format::f16) ==
          KvLayout{60, 4, 128, Format::f16, Format::f16});
}

TEST_CASE("index keys follow the values of their layers") {
    const KvLayout layout = {.n_layer = 4,
                             .n_head_kv = 2,
                             .head_dim = 32,
                             .k_format = Format::q8_0,
                             .v_format = Format::f32,
                             .index_dim = 40,
                             .first_index_layer = 2};
    int64_t next = 0;
    for (int64_t layer = 0; layer < layout.n_layer; ++layer) {
        CHECK(layout.layer_offset(layer) == next);
        CHECK(layout.k_offset(layer, 0) == next);
        CHECK(layout.v_offset(layer, 0) == next + 2 * 64 * 34);
        next += 2 * 64 * (34 + 128);
        CHECK(layout.has_index(layer) == (layer >= 2));
        if (layer >= 2) {
            CHECK(layout.index_offset(layer) == next);
            next += 64 * 80;
        }
        CHECK(layout.layer_bytes(layer) == 2 * 64 * (34 + 128) + (layer >= 2 ? 64 * 80 : 0));
    }
    CHECK(layout.page_bytes() == next);
}

TEST_CASE("a page is exactly its tokens") {
    const KvLayout layout = {3, 2, 40, Format::f16, Format::f32};
    CHECK(layout.page_bytes() == k_kv_page_tokens * token_bytes(layout));
    CHECK(layout.page_bytes() == 3 * layout.layer_bytes(0));
}

TEST_CASE("heads of a page cover it once, layer after layer, keys before values") {
    const KvLayout layout = {3, 2, 40, Format::f16, Format::f32};
    int64_t next = 0;
    for (int64_t layer = 0; layer < layout.n_layer; ++layer) {
        for (int64_t head = 0; head < layout.n_head_kv; ++head) {
            CHECK(layout.k_offset(layer, head) == next);
            next += k_kv_page_tokens * layout.k_token_bytes();
        }
        for (int64_t head = 0; head < layout.n_head_kv; ++head) {
            CHECK(layout.v_offset(layer, head) == next);
            next += k_kv_page_tokens * layout.v_token_bytes();
        }
    }
    CHECK(next == layout.page_bytes());
}
