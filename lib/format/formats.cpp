// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/checked.h"
#include "format/blocks.h"
#include "format/format.h"

namespace minim {
namespace {

template <typename Block>
void decode_row(const std::byte* row, int64_t count, float* out) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(row);
    const float row_scale = load_row_scale<Block>(bytes);
    const uint8_t* block = bytes + Block::row_header_bytes;
    for (int64_t done = 0; done < count; done += Block::block_elems) {
        Block::decode_block(block, row_scale, out + done);
        block += Block::block_bytes;
    }
}

template <typename Block>
constexpr FormatTraits weight(std::string_view name, uint32_t gguf_type) {
    return {
        Block::format,    name, gguf_type, Block::block_elems, Block::block_bytes, Block::row_header_bytes,
        decode_row<Block>};
}

constexpr FormatTraits number(Format format, std::string_view name, uint32_t gguf_type, int32_t bytes) {
    return {format, name, gguf_type, 1, bytes, 0, nullptr};
}

// In the order of enum Format.
constexpr std::array<FormatTraits, k_format_count> k_formats = {{
    weight<F32>("F32", 0),
    weight<F16>("F16", 1),
    weight<BF16>("BF16", 30),
    number(Format::f64, "F64", 28, 8),
    number(Format::i8, "I8", 24, 1),
    number(Format::i16, "I16", 25, 2),
    number(Format::i32, "I32", 26, 4),
    number(Format::i64, "I64", 27, 8),
    weight<Q4_0>("Q4_0", 2),
    weight<Q4_1>("Q4_1", 3),
    weight<Q5_0>("Q5_0", 6),
    weight<Q5_1>("Q5_1", 7),
    weight<Q8_0>("Q8_0", 8),
    weight<Q6_0>("Q6_0", 133),
    weight<IQ4_NL>("IQ4_NL", 20),
    weight<MXFP4>("MXFP4", 39),
    weight<NVFP4>("NVFP4", 40),
    weight<Q1_0>("Q1_0", 41),
    weight<Q2_0>("Q2_0", 42),
    weight<TQ1_0>("TQ1_0", 34),
    weight<TQ2_0>("TQ2_0", 35),
    weight<Q2_K>("Q2_K", 10),
    weight<Q3_K>("Q3_K", 11),
    weight<Q4_K>("Q4_K", 12),
    weight<Q5_K>("Q5_K", 13),
    weight<Q6_K>("Q6_K", 14),
    weight<IQ1_S>("IQ1_S", 19),
    weight<IQ1_M>("IQ1_M", 29),
    weight<IQ2_XXS>("IQ2_XXS", 16),
    weight<IQ2_XS>("IQ2_XS", 17),
    weight<IQ2_S>("IQ2_S", 22),
    weight<IQ3_XXS>("IQ3_XXS", 18),
    weight<IQ3_S>("IQ3_S", 21),
    weight<IQ4_XS>("IQ4_XS", 23),
    weight<IQ2_K>("IQ2_K", 137),
    weight<IQ3_K>("IQ3_K", 138),
    weight<IQ4_K>("IQ4_K", 139),
    weight<IQ5_K>("IQ5_K", 140),
    weight<IQ6_K>("IQ6_K", 141),
    weight<IQ2_KS>("IQ2_KS", 145),
    weight<IQ3_KS>("IQ3_KS", 156),
    weight<IQ4_KS>("IQ4_KS", 144),
    weight<IQ5_KS>("IQ5_KS", 152),
    weight<IQ4_KSS>("IQ4_KSS", 146),
    weight<IQ2_KL>("IQ2_KL", 157),
    weight<IQ1_KT>("IQ1_KT", 158),
    weight<IQ2_KT>("IQ2_KT", 153),
    weight<IQ3_KT>("IQ3_KT", 154),
    weight<IQ4_KT>("IQ4_KT", 155),
    weight<FP8_E4M3_B128>("FP8_E4M3_B128", k_no_gguf_type),
    weight<MXFP8>("MXFP8", k_no_gguf_type),
    weight<INT4_S64>("INT4_S64", k_no_gguf_type),
    weight<INT4_S128>("INT4_S128", k_no_gguf_type),
    weight<INT4_Z32>("INT4_Z32", k_no_gguf_type),
    weight<INT4_Z64>("INT4_Z64", k_no_gguf_type),
    weight<INT4_Z128>("INT4_Z128", k_no_gguf_type),
    weight<INT4_ROW>("INT4_ROW", k_no_gguf_type),
    weight<INT4_W32>("INT4_W32", k_no_gguf_type),
    weight<INT8_S64>("INT8_S64", k_no_gguf_type),
    weight<INT8_S128>("INT8_S128", k_no_gguf_type),
    weight<INT8_Z32>("INT8_Z32", k_no_gguf_type),
    weight<INT8_Z64>("INT8_Z64", k_no_gguf_type),
    weight<INT8_Z128>("INT8_Z128", k_no_gguf_type),
    weight<INT8_ROW>("INT8_ROW", k_no_gguf_type),
    weight<INT8_W32>("INT8_W32", k_no_gguf_type),
    weight<X1_S>("X1_S", k_no_gguf_type),
    weight<X1_M>("X1_M", k_no_gguf_type),
    weight<X2_XXS>("X2_XXS", k_no_gguf_type),
    weight<X2_XS>("X2_XS", k_no_gguf_type),
    weight<X2_S>("X2_S", k_no_gguf_type),
    weight<X3_XXS>("X3_XXS", k_no_gguf_type),
    weight<X3_S>("X3_S", k_no_gguf_type),
}};

constexpr bool is_in_order() {
    for (size_t i = 0; i < k_format_count; ++i) {
        if (static_cast<size_t>(k_formats[i].format) != i) return false;
    }
    return true;
}
static_assert(is_in_order());

struct RefusedType {
    uint32_t gguf_type;
    std::string_view why;
};

// Ids that were assigned but cannot be read: withdrawn upstream, never stored in files, or rows interleaved by the ik fork
// for its own kernels (id = id of the plain type + 200).
constexpr RefusedType k_refused_types[] = {
    {4, "removed type Q4_2"},
    {5, "removed type Q4_3"},
    {9, "activation type Q8_1"},
    {15, "activation type Q8_K"},
    {31, "removed type Q4_0_4_4"},
    {32, "removed type Q4_0_4_8"},
    {33, "removed type Q4_0_8_8"},
    {36, "removed type IQ4_NL_4_4, or I2_S of the ik fork"},
    {37, "removed type IQ4_NL_4_8"},
    {38, "removed type IQ4_NL_8_8"},
    {202, "repacked file (Q4_0_R8)"},
    {206, "repacked file (Q5_0_R4)"},
    {208, "repacked file (Q8_0_R8)"},
    {210, "repacked file (Q2_K_R4)"},
    {211, "repacked file (Q3_K_R4)"},
    {212, "repacked file (Q4_K_R4)"},
    {213, "repacked file (Q5_K_R4)"},
    {214, "repacked file (Q6_K_R4)"},
    {216, "repacked file (IQ2_XXS_R4)"},
    {217, "repacked file (IQ2_XS_R4)"},
    {218, "repacked file (IQ3_XXS_R4)"},
    {219, "repacked file (IQ1_S_R4)"},
    {220, "repacked file (IQ4_NL_R4)"},
    {221, "repacked file (IQ3_S_R4)"},
    {222, "repacked file (IQ2_S_R4)"},
    {223, "repacked file (IQ4_XS_R8)"},
    {229, "repacked file (IQ1_M_R4)"},
    {230, "repacked file (BF16_R16)"},
    {233, "repacked file (Q6_0_R4)"},
    {337, "repacked file (IQ2_K_R4)"},
    {338, "repacked file (IQ3_K_R4)"},
    {339, "repacked file (IQ4_K_R4)"},
    {340, "repacked file (IQ5_K_R4)"},
    {344, "repacked file (IQ4_KS_R4)"},
    {352, "repacked file (IQ5_KS_R4)"},
};

// The ik fork numbers its row-interleaved types from here up.
constexpr uint32_t k_first_repacked_type = 200;

}  // namespace

const FormatTraits& traits(Format format) noexcept {
    return k_formats[static_cast<size_t>(format)];
}

std::optional<Format> format_from_name(std::string_view name) noexcept {
    for (const FormatTraits& entry : all_formats()) {
        if (entry.name == name) return entry.format;
    }
    return std::nullopt;
}

std::optional<Format> format_from_gguf_type(uint32_t type) noexcept {
    if (type == k_no_gguf_type) return std::nullopt;
    for (const FormatTraits& entry : all_formats()) {
        if (entry.gguf_type == type) return entry.format;
    }
    return std::nullopt;
}

std::span<const FormatTraits> all_formats() noexcept {
    return std::span(k_formats).first<k_file_format_count>();
}

std::string_view why_gguf_type_is_refused(uint32_t type) noexcept {
    if (format_from_gguf_type(type)) return {};
    for (const RefusedType& refused : k_refused_types) {
        if (refused.gguf_type == type) return refused.why;
    }
    return type >= k_first_repacked_type ? "repacked file" : "unknown";
}

bool row_bytes(Format format, uint64_t count, uint64_t& bytes) noexcept {
    const FormatTraits& entry = traits(format);
    const auto block_elems = static_cast<uint64_t>(entry.block_elems);
    if (count % block_elems != 0) return false;
    uint64_t block_total = 0;
    return checked_mul(count / block_elems, static_cast<uint64_t>(entry.block_bytes), block_total) &&
           checked_add(block_total, static_cast<uint64_t>(entry.row_header_bytes), bytes);
}

int64_t row_bytes(Format format, int64_t count) noexcept {
    const FormatTraits& entry = traits(format);
    return entry.row_header_bytes + count / entry.block_elems * entry.block_bytes;
}

void decode_rows(Format format, const std::byte* rows, int64_t n_rows, int64_t row_stride_bytes, int64_t cols,
                 float* out) {
    const auto decode = traits(format).decode_row;
    for (int64_t row = 0; row < n_rows; ++row) decode(rows + row * row_stride_bytes, cols, out + row * cols);
}

}  // namespace minim
