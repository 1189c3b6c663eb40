// SPDX-License-Identifier: Apache-2.0
// Weight formats. Every format has one entry in a table: its name, its GGUF type id, its block geometry and its decoder. The
// file of each format shows its layout, which is used only in lib/format and lib/panel.
//
// The formats of quantised safetensors folders assemble the codes and scales that files store in several tensors
// (format/gather.h). The last formats of the list are in no file: codebooks may be unpacked to them at load (format/expand.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace minim {

// clang-format off
enum class Format : uint8_t {
    f32, f16, bf16, f64, i8, i16, i32, i64,
    q4_0, q4_1, q5_0, q5_1, q8_0, q6_0,
    iq4_nl, mxfp4, nvfp4, q1_0, q2_0, tq1_0, tq2_0,
    q2_k, q3_k, q4_k, q5_k, q6_k,
    iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq4_xs,
    iq2_k, iq3_k, iq4_k, iq5_k, iq6_k,
    iq2_ks, iq3_ks, iq4_ks, iq5_ks, iq4_kss, iq2_kl,
    iq1_kt, iq2_kt, iq3_kt, iq4_kt,
    fp8_e4m3_b128, mxfp8,
    int4_s64, int4_s128, int4_z32, int4_z64, int4_z128, int4_row, int4_w32,
    int8_s64, int8_s128, int8_z32, int8_z64, int8_z128, int8_row, int8_w32,
    x1_s, x1_m, x2_xxs, x2_xs, x2_s, x3_xxs, x3_s,
    count_
};
// clang-format on

inline constexpr size_t k_format_count = static_cast<size_t>(Format::count_);
inline constexpr size_t k_file_format_count = static_cast<size_t>(Format::x1_s);

inline constexpr uint32_t k_no_gguf_type = 0xFFFFFFFF;

struct FormatTraits {
    Format format;
    std::string_view name;  // as in model files: "Q4_K"
    uint32_t gguf_type;     // k_no_gguf_type if GGUF does not have the format
    int32_t block_elems;
    int32_t block_bytes;
    int32_t row_header_bytes;  // one scale for the whole row, before its first block; 0 for most
    // Decodes one whole row (header and blocks, any alignment) of `count` elements, a multiple of
    // block_elems. Null for the integer types and F64, which are not used for weights.
    void (*decode_row)(const std::byte* row, int64_t count, float* out);
};

const FormatTraits& traits(Format format) noexcept;
// Returns the formats that files have, in one tensor or in several.
std::span<const FormatTraits> all_formats() noexcept;
std::optional<Format> format_from_name(std::string_view name) noexcept;  // exact, upper case
std::optional<Format> format_from_gguf_type(uint32_t type) noexcept;

// Returns why a GGUF type id has no format, as a phrase for an error message: "removed type Q4_2", "repacked file (Q4_K_R4)",
// "unknown". Empty for an id that has a format.
std::string_view why_gguf_type_is_refused(uint32_t type) noexcept;

// Computes the bytes of a row of `count` elements, its header included. Returns false if count is not a multiple of the block or
// the size does not fit.
[[nodiscard]] bool row_bytes(Format format, uint64_t count, uint64_t& bytes) noexcept;
// Returns the bytes of a row whose `count` is known to be valid.
int64_t row_bytes(Format format, int64_t count) noexcept;

// Decodes `n_rows` rows of `cols` elements, `row_stride_bytes` apart, into out[n_rows][cols]. The format has
// a decoder and cols is a multiple of its block.
void decode_rows(Format format, const std::byte* rows, int64_t n_rows, int64_t row_stride_bytes, int64_t cols,
                 float* out);

}  // namespace minim
