// SPDX-License-Identifier: Apache-2.0
// Loads 16 columns of a row in memory, or fewer, as 16 lanes of floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/q4_0.h"
#include "format/q8_0.h"

namespace minim::cpu::generic {

// load(row, c) loads columns c .. c + 15 of a row; load_part(row, c, count) loads only the first `count`
// of them; the other lanes are zeros.
template <class Elements, int64_t bytes>
struct PlainElements {
    static constexpr int64_t k_bytes = bytes;
    static auto load_part(const std::byte* row, int64_t c, int64_t count) {
        alignas(64) std::byte padded[64] = {};
        memcpy(padded, row + c * bytes, count * bytes);
        return Elements::load(padded, 0);
    }
};

template <class V>
struct F32Elements : PlainElements<F32Elements<V>, 4> {
    static typename V::F32 load(const std::byte* row, int64_t c) { return V::load_f32(row + 4 * c); }
};

template <class V>
struct F16Elements : PlainElements<F16Elements<V>, 2> {
    static typename V::F32 load(const std::byte* row, int64_t c) { return V::load_f16(row + 2 * c); }
};

template <class V>
struct Bf16Elements : PlainElements<Bf16Elements<V>, 2> {
    static typename V::F32 load(const std::byte* row, int64_t c) { return V::load_bf16(row + 2 * c); }
};

// The next two formats have blocks of 32 columns, so 16 columns are always complete.
template <class V>
struct Q4_0Elements {
    static typename V::F32 load(const std::byte* row, int64_t c) {
        const std::byte* block = row + c / Q4_0::block_elems * Q4_0::block_bytes;
        const bool is_upper = c % Q4_0::block_elems != 0;
        const auto code = V::load_i4(block + Q4_0::codes_at, is_upper);
        return V::mul(V::all(V::load_one_f16(block + Q4_0::d_at)), code);
    }
    static typename V::F32 load_part(const std::byte* row, int64_t c, int64_t /*16*/) { return load(row, c); }
};

template <class V>
struct Q8_0Elements {
    static typename V::F32 load(const std::byte* row, int64_t c) {
        const std::byte* block = row + c / Q8_0::block_elems * Q8_0::block_bytes;
        const auto code = V::load_i8(block + Q8_0::codes_at + c % Q8_0::block_elems);
        return V::mul(V::all(V::load_one_f16(block + Q8_0::d_at)), code);
    }
    static typename V::F32 load_part(const std::byte* row, int64_t c, int64_t /*16*/) { return load(row, c); }
};

template <class V>
typename V::F32 load(const float* p) {
    return V::load_f32(reinterpret_cast<const std::byte*>(p));
}

template <class V>
typename V::F32 load_part(const float* p, int64_t count, float fill = 0.0F) {
    alignas(64) float padded[16];
    for (float& value : padded) value = fill;
    memcpy(padded, p, count * sizeof(float));
    return load<V>(padded);
}

template <class V>
void store_part(float* p, typename V::F32 a, int64_t count) {
    alignas(64) float whole[16];
    V::store(whole, a);
    memcpy(p, whole, count * sizeof(float));
}

// Calls f(first element, count) for every 16 elements of n, and for the rest.
template <class Function>
void for_each_vector(int64_t n, const Function& f) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f(i, int64_t{16});
    if (i < n) f(i, n - i);
}

template <class V>
typename V::F32 load_up_to(const float* p, int64_t count) {
    return count == 16 ? load<V>(p) : load_part<V>(p, count);
}

template <class V>
void store_up_to(float* p, typename V::F32 a, int64_t count) {
    if (count == 16) {
        V::store(p, a);
    } else {
        store_part<V>(p, a, count);
    }
}

}  // namespace minim::cpu::generic
