// The float formats of memory as 16 lanes, whole or in part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace minim::cpu::generic {

template <class V>
struct F32Elements {
    static constexpr int64_t k_bytes = 4;
    static typename V::F32 load(const std::byte* p) { return V::load_f32(p); }
};

template <class V>
struct F16Elements {
    static constexpr int64_t k_bytes = 2;
    static typename V::F32 load(const std::byte* p) { return V::load_f16(p); }
};

template <class V>
struct Bf16Elements {
    static constexpr int64_t k_bytes = 2;
    static typename V::F32 load(const std::byte* p) { return V::load_bf16(p); }
};

// The first `count` < 16 elements, then zeros.
template <class Elements>
auto load_part(const std::byte* p, int64_t count) {
    alignas(64) std::byte padded[64] = {};
    memcpy(padded, p, static_cast<size_t>(count * Elements::k_bytes));
    return Elements::load(padded);
}

template <class V>
typename V::F32 load(const float* p) {
    return V::load_f32(reinterpret_cast<const std::byte*>(p));
}

template <class V>
typename V::F32 load_part(const float* p, int64_t count, float fill = 0.0F) {
    alignas(64) float padded[16];
    for (float& value : padded) value = fill;
    memcpy(padded, p, static_cast<size_t>(count) * sizeof(float));
    return load<V>(padded);
}

template <class V>
void store_part(float* p, typename V::F32 a, int64_t count) {
    alignas(64) float whole[16];
    V::store(whole, a);
    memcpy(p, whole, static_cast<size_t>(count) * sizeof(float));
}

// f(first element, count) for every 16 elements of n, and for the rest of fewer.
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
