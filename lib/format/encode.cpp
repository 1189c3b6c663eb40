// SPDX-License-Identifier: Apache-2.0
#include "format/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "format/encode_block.h"
#include "format/grids.h"
#include "format/iq4_nl.h"
#include "format/q4_0.h"
#include "format/q5_0.h"
#include "format/q8_0.h"

namespace minim {
namespace {

// Writes bit 4 of 32 codes, eight per byte.
void store_fifth_bits(const int* codes, uint8_t* to) {
    std::memset(to, 0, 4);
    for (int i = 0; i < 32; ++i) to[i / 8] |= static_cast<uint8_t>(((codes[i] >> 4) & 1) << (i % 8));
}

struct ScaleAndOffset {
    float d;
    float m;
};

// Writes codes 0 … top, from the smallest element to the largest.
ScaleAndOffset quantise_from_minimum(const float* x, int top, int* codes) {
    float m = x[0];
    float largest = x[0];
    for (int i = 1; i < 32; ++i) {
        m = std::min(m, x[i]);
        largest = std::max(largest, x[i]);
    }
    const float d = (largest - m) / static_cast<float>(top);
    const float inverse = reciprocal_or_zero(d);
    for (int i = 0; i < 32; ++i) codes[i] = truncate_clamped((x[i] - m) * inverse + 0.5F, 0, top);
    return {d, m};
}

// Returns the code of the iq4nl value nearest to x.
int nearest_iq4nl(float x) {
    const int8_t* values = iq4nl_values();
    int best = 0;
    for (int code = 1; code < 16; ++code) {
        const float middle = 0.5F * static_cast<float>(values[code - 1] + values[code]);
        if (x > middle) best = code;
    }
    return best;
}

struct Iq4NlFit {
    float d;
    float gain;  // part of the weighted sum of squares that the fit explains
};

// Computes the codes of 32 elements for a given 1/d, then the d that minimises their error. Errors are weighted by x^2, because
// the large elements of a block dominate its dot products.
Iq4NlFit fit_iq4nl(const float* x, float inverse, int* codes) {
    float cross = 0.0F;
    float square = 0.0F;
    for (int i = 0; i < 32; ++i) {
        codes[i] = nearest_iq4nl(x[i] * inverse);
        const auto value = static_cast<float>(iq4nl_values()[codes[i]]);
        const float weight = x[i] * x[i];
        cross += weight * value * x[i];
        square += weight * value * value;
    }
    if (!(square > 0.0F)) return {0.0F, 0.0F};
    const float d = cross / square;
    return {d, d * cross};
}

// Writes the codes of the best fit and returns its d. Tries the peak at -127, at up to seven steps beside it, and at the other
// end of the table.
float quantise_iq4_nl(const float* x, int* codes) {
    const float peak = signed_peak(x, 32);
    std::fill_n(codes, 32, 0);
    if (!(std::fabs(peak) >= 1e-10F)) return 0.0F;  // zero, or far below what an f16 scale can hold
    Iq4NlFit best{0.0F, -1.0F};
    int trial[32];
    for (const int end : {-127, 113}) {
        for (int step = -7; step <= 7; ++step) {
            const Iq4NlFit fit = fit_iq4nl(x, static_cast<float>(end + step) / peak, trial);
            if (fit.gain <= best.gain) continue;
            best = fit;
            std::copy_n(trial, 32, codes);
        }
    }
    return best.d;
}

}  // namespace

void encode_row_f32(const float* x, int64_t count, std::byte* row) {
    std::memcpy(row, x, count * sizeof(float));
}

void encode_row_f16(const float* x, int64_t count, std::byte* row) {
    auto* to = reinterpret_cast<uint8_t*>(row);
    for (int64_t i = 0; i < count; ++i) store_u16(to + 2 * i, float_to_f16(x[i]));
}

void encode_row_bf16(const float* x, int64_t count, std::byte* row) {
    auto* to = reinterpret_cast<uint8_t*>(row);
    for (int64_t i = 0; i < count; ++i) store_u16(to + 2 * i, float_to_bf16(x[i]));
}

void encode_row_q8_0(const float* x, int64_t count, std::byte* row) {
    auto* block = reinterpret_cast<uint8_t*>(row);
    for (int64_t done = 0; done < count; done += Q8_0::block_elems, block += Q8_0::block_bytes)
        encode_block_q8_0(x + done, block);
}

void encode_row_q4_0(const float* x, int64_t count, std::byte* row) {
    auto* block = reinterpret_cast<uint8_t*>(row);
    for (int64_t done = 0; done < count; done += Q4_0::block_elems, block += Q4_0::block_bytes)
        encode_block_q4_0(x + done, block);
}

void encode_row_q4_1(const float* x, int64_t count, std::byte* row) {
    auto* block = reinterpret_cast<uint8_t*>(row);
    int codes[32];
    for (int64_t done = 0; done < count; done += Q4_1::block_elems, block += Q4_1::block_bytes) {
        const auto [d, m] = quantise_from_minimum(x + done, 15, codes);
        store_f16(block + Q4_1::d_at, d);
        store_f16(block + Q4_1::m_at, m);
        store_nibbles(codes, block + Q4_1::codes_at);
    }
}

void encode_row_q5_0(const float* x, int64_t count, std::byte* row) {
    auto* block = reinterpret_cast<uint8_t*>(row);
    int codes[32];
    for (int64_t done = 0; done < count; done += Q5_0::block_elems, block += Q5_0::block_bytes) {
        store_f16(block + Q5_0::d_at, quantise_around_zero(x + done, 16, codes));
        store_fifth_bits(codes, block + Q5_0::high_at);
        store_nibbles(codes, block + Q5_0::codes_at);
    }
}

void encode_row_q5_1(const float* x, int64_t count, std::byte* row) {
    auto* block = reinterpret_cast<uint8_t*>(row);
    int codes[32];
    for (int64_t done = 0; done < count; done += Q5_1::block_elems, block += Q5_1::block_bytes) {
        const auto [d, m] = quantise_from_minimum(x + done, 31, codes);
        store_f16(block + Q5_1::d_at, d);
        store_f16(block + Q5_1::m_at, m);
        store_fifth_bits(codes, block + Q5_1::high_at);
        store_nibbles(codes, block + Q5_1::codes_at);
    }
}

void encode_row_iq4_nl(const float* x, int64_t count, std::byte* row) {
    auto* block = reinterpret_cast<uint8_t*>(row);
    int codes[32];
    for (int64_t done = 0; done < count; done += IQ4_NL::block_elems, block += IQ4_NL::block_bytes) {
        store_f16(block + IQ4_NL::d_at, quantise_iq4_nl(x + done, codes));
        store_nibbles(codes, block + IQ4_NL::codes_at);
    }
}

EncodeRow row_encoder(Format format) noexcept {
    switch (format) {
        case Format::f32:
            return encode_row_f32;
        case Format::f16:
            return encode_row_f16;
        case Format::bf16:
            return encode_row_bf16;
        case Format::q8_0:
            return encode_row_q8_0;
        case Format::q4_0:
            return encode_row_q4_0;
        case Format::q4_1:
            return encode_row_q4_1;
        case Format::q5_0:
            return encode_row_q5_0;
        case Format::q5_1:
            return encode_row_q5_1;
        case Format::iq4_nl:
            return encode_row_iq4_nl;
        default:
            return nullptr;
    }
}

}  // namespace minim
