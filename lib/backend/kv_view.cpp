// SPDX-License-Identifier: Apache-2.0
#include "backend/kv_view.h"

#include <algorithm>

#include "backend/device.h"

namespace minim::backend {
int64_t KvLayout::k_token_bytes() const noexcept {
    return row_bytes(k_format, head_dim);
}

int64_t KvLayout::v_token_bytes() const noexcept {
    return row_bytes(v_format, head_dim);
}

int64_t KvLayout::n_index_layer() const noexcept {
    return index_dim > 0 ? std::max(n_layer - first_index_layer, int64_t{0}) : 0;
}

int64_t KvLayout::index_token_bytes() const noexcept {
    return row_bytes(index_format, index_dim);
}

int64_t KvLayout::layer_bytes(int64_t layer) const noexcept {
    return layer_offset(layer + 1) - layer_offset(layer);
}

int64_t KvLayout::page_bytes() const noexcept {
    return layer_offset(n_layer);
}

int64_t KvLayout::layer_offset(int64_t layer) const noexcept {
    const int64_t bytes = layer * n_head_kv * k_kv_page_tokens * (k_token_bytes() + v_token_bytes());
    if (index_dim == 0) return bytes;
    const int64_t n_index = std::max(layer - first_index_layer, int64_t{0});
    return bytes + n_index * k_kv_page_tokens * index_token_bytes();
}

int64_t KvLayout::k_offset(int64_t layer, int64_t head) const noexcept {
    return layer_offset(layer) + head * k_kv_page_tokens * k_token_bytes();
}

int64_t KvLayout::v_offset(int64_t layer, int64_t head) const noexcept {
    return k_offset(layer, n_head_kv) + head * k_kv_page_tokens * v_token_bytes();
}

int64_t KvLayout::index_offset(int64_t layer) const noexcept {
    return v_offset(layer, n_head_kv);
}

KvLayout KvLayout::part(int64_t first_layer, int64_t n_layer_of_part, int64_t n_head_of_part) const noexcept {
    KvLayout layout = *this;
    layout.n_layer = n_layer_of_part;
    layout.n_head_kv = n_head_of_part;
    layout.first_index_layer = std::max(first_index_layer - first_layer, int64_t{0});
    return layout;
}

bool is_kv_format(Format format) noexcept {
    return format == Format::f32 || format == Format::f16 || format == Format::bf16 ||
           format == Format::q8_0 || format == Format::q4_0;
}

KvLayout kv_layout_of(const StepLimits& shape, int64_t n_layer, Format k_format, Format v_format) noexcept {
    KvLayout layout = {n_layer, shape.n_head_kv, shape.head_dim, k_format, v_format};
    if (shape.index.n_head == 0 || shape.first_sparse_layer >= n_layer) return layout;
    layout.index_dim = shape.index.dim;
    layout.index_format = index_format_of(k_format);
    layout.first_index_layer = shape.first_sparse_layer;
    return layout;
}

Format index_format_of(Format k_format) noexcept {
    return k_format == Format::f32 || k_format == Format::bf16 ? k_format : Format::f16;
}

}  // namespace minim::backend
