// SPDX-License-Identifier: Apache-2.0
#include "backend/kv_view.h"

namespace minim::backend {

int64_t KvLayout::k_token_bytes() const noexcept {
    const FormatTraits& t = traits(k_format);
    return head_dim / t.block_elems * t.block_bytes;
}

int64_t KvLayout::v_token_bytes() const noexcept {
    const FormatTraits& t = traits(v_format);
    return head_dim / t.block_elems * t.block_bytes;
}

int64_t KvLayout::layer_bytes() const noexcept {
    return n_head_kv * k_kv_page_tokens * (k_token_bytes() + v_token_bytes());
}

int64_t KvLayout::page_bytes() const noexcept {
    return n_layer * layer_bytes();
}

int64_t KvLayout::k_offset(int64_t layer, int64_t head) const noexcept {
    return layer * layer_bytes() + head * k_kv_page_tokens * k_token_bytes();
}

int64_t KvLayout::v_offset(int64_t layer, int64_t head) const noexcept {
    return layer * layer_bytes() + n_head_kv * k_kv_page_tokens * k_token_bytes() +
           head * k_kv_page_tokens * v_token_bytes();
}

bool is_kv_format(Format format) noexcept {
    return format == Format::f32 || format == Format::f16 || format == Format::bf16 ||
           format == Format::q8_0 || format == Format::q4_0;
}

}  // namespace minim::backend
