// SPDX-License-Identifier: Apache-2.0
// Encoders of the formats that need no search, for tests, tools and quantised KV caches. `count` is a multiple of the
// format's block. Any input is accepted, but with NaN or infinity the result is meaningless.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/format.h"

namespace minim {

void encode_row_f32(const float* x, int64_t count, std::byte* row);
void encode_row_f16(const float* x, int64_t count, std::byte* row);
void encode_row_bf16(const float* x, int64_t count, std::byte* row);
void encode_row_q8_0(const float* x, int64_t count, std::byte* row);
void encode_row_q4_0(const float* x, int64_t count, std::byte* row);
void encode_row_q4_1(const float* x, int64_t count, std::byte* row);
void encode_row_q5_0(const float* x, int64_t count, std::byte* row);
void encode_row_q5_1(const float* x, int64_t count, std::byte* row);
void encode_row_iq4_nl(const float* x, int64_t count, std::byte* row);

// Returns the encoder of a format, null if there is none.
using EncodeRow = void (*)(const float* x, int64_t count, std::byte* row);
EncodeRow row_encoder(Format format) noexcept;

}  // namespace minim
