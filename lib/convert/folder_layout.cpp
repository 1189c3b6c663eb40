// SPDX-License-Identifier: Apache-2.0
#include "convert/folder_layout.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/encode/folders.h"
#include "format/fp8_e4m3_b128.h"
#include "format/mxfp4.h"
#include "format/mxfp8.h"
#include "format/nvfp4.h"

namespace minim::convert {
namespace {

constexpr int64_t k_fp8_rows = 128;

struct LayoutTraits {
    FolderLayout layout;
    std::string_view name;
    std::string_view code_name;
    int64_t column_multiple;
};

// The multiples are those that readers here need: blocks of 64 for NVFP4, groups of 32 for integers.
constexpr LayoutTraits k_layouts[] = {
    {FolderLayout::bf16, "bf16", "BF16", 1},           {FolderLayout::fp8, "fp8", "FP8", 128},
    {FolderLayout::mxfp8, "mxfp8", "MXFP8", 32},       {FolderLayout::nvfp4, "nvfp4", "NVFP4", 64},
    {FolderLayout::nvfp4_ct, "nvfp4-ct", "NVFP4", 64}, {FolderLayout::mxfp4_ct, "mxfp4-ct", "MXFP4", 32},
    {FolderLayout::int4_g32, "int4-g32", "INT4", 32},  {FolderLayout::int4_g128, "int4-g128", "INT4", 128},
    {FolderLayout::int8, "int8", "INT8", 32},
};

const LayoutTraits& traits_of(FolderLayout layout) {
    return *std::ranges::find(k_layouts, layout, &LayoutTraits::layout);
}

int64_t integer_group(FolderLayout layout) {
    if (layout == FolderLayout::int8) return 0;  // a whole row
    return layout == FolderLayout::int4_g32 ? 32 : 128;
}

int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// Two codes in a byte, in order, from the halves of a group: byte i has elements i and i + count / 2.
void join_halves(const std::byte* halves, int count, std::byte* pairs) {
    const auto code = [&](int i) {
        const std::byte both = halves[i % (count / 2)];
        return i < count / 2 ? both & std::byte{15} : both >> 4;
    };
    for (int i = 0; i < count; i += 2) pairs[i / 2] = code(i) | code(i + 1) << 4;
}

// ---- codes and scales of the source

void keep_nvfp4(const EncodeFolderPart& part) {
    const int64_t n_blocks = part.n_rows * (part.n_columns / NVFP4::block_elems);
    for (int64_t b = 0; b < n_blocks; ++b) {
        const std::byte* block = part.source_rows + b * NVFP4::block_bytes;
        std::copy_n(block + NVFP4::scales_at, 4, part.scales + 4 * b);
        for (int g = 0; g < 4; ++g)
            join_halves(block + NVFP4::codes_at + 8 * g, 16, part.codes + 32 * b + 8 * g);
    }
}

void keep_mxfp4(const EncodeFolderPart& part) {
    const int64_t n_blocks = part.n_rows * (part.n_columns / MXFP4::block_elems);
    for (int64_t b = 0; b < n_blocks; ++b) {
        const std::byte* block = part.source_rows + b * MXFP4::block_bytes;
        part.scales[b] = block[MXFP4::exponent_at];
        join_halves(block + MXFP4::codes_at, 32, part.codes + 16 * b);
    }
}

void keep_mxfp8(const EncodeFolderPart& part) {
    const int64_t n_blocks = part.n_rows * (part.n_columns / MXFP8::block_elems);
    for (int64_t b = 0; b < n_blocks; ++b) {
        const std::byte* block = part.source_rows + b * MXFP8::block_bytes;
        part.scales[b] = block[MXFP8::exponent_at];
        std::byte* to = part.codes + b * MXFP8::block_elems;
        for (int e = 0; e < MXFP8::block_elems; ++e) to[e] = block[MXFP8::codes_at + fp8_code_of_32(e)];
    }
}

// Returns false if rows that would share a scale have different ones.
bool keep_fp8(const EncodeFolderPart& part) {
    using Block = FP8_E4M3_B128;
    const int64_t n_blocks = part.n_columns / Block::block_elems;
    const auto block_at = [&](int64_t row, int64_t b) {
        return part.source_rows + (row * n_blocks + b) * Block::block_bytes;
    };
    for (int64_t row = 0; row < part.n_rows; ++row)
        for (int64_t b = 0; b < n_blocks; ++b)
            if (std::memcmp(block_at(row, b) + Block::scale_at,
                            block_at(row / k_fp8_rows * k_fp8_rows, b) + Block::scale_at, sizeof(float)) != 0)
                return false;
    for (int64_t row = 0; row < part.n_rows; ++row) {
        for (int64_t b = 0; b < n_blocks; ++b) {
            const std::byte* block = block_at(row, b);
            const int64_t scale = row / k_fp8_rows * n_blocks + b;
            std::memcpy(part.scales + scale * 4, block + Block::scale_at, sizeof(float));
            std::byte* to = part.codes + row * part.n_columns + b * Block::block_elems;
            for (int e = 0; e < Block::block_elems; ++e) to[e] = block[Block::codes_at + fp8_code_of_32(e)];
        }
    }
    return true;
}

bool keep_codes(const EncodeFolderPart& part) {
    if (part.source_rows == nullptr || !keeps_codes(part.layout, part.source_format)) return false;
    if (part.source_format == Format::fp8_e4m3_b128) return keep_fp8(part);
    if (part.source_format == Format::nvfp4) {
        keep_nvfp4(part);
    } else if (part.source_format == Format::mxfp8) {
        keep_mxfp8(part);
    } else {
        keep_mxfp4(part);
    }
    return true;
}

// ---- new codes and scales

uint8_t* bytes_at(std::byte* at) {
    return reinterpret_cast<uint8_t*>(at);
}

void encode_fp8(const EncodeFolderPart& part, const EncodeFolderRows& job) {
    std::vector<float> scales(ceil_div(part.n_rows, k_fp8_rows) * ceil_div(part.n_columns, k_fp8_rows));
    encode_fp8_folder(job, bytes_at(part.codes), scales.data());
    std::memcpy(part.scales, scales.data(), scales.size() * sizeof(float));
}

void encode_integers(const EncodeFolderPart& part, const EncodeFolderRows& job) {
    const int64_t group = integer_group(part.layout);
    const int32_t bits = part.layout == FolderLayout::int8 ? 8 : 4;
    std::vector<uint8_t> codes(part.n_rows * part.n_columns);
    std::vector<float> scales(part.n_rows * (group == 0 ? 1 : part.n_columns / group));
    encode_integers_folder(job,
                           {.bits = bits, .group = group, .with_zeros = false, .scale_type = ScaleType::bf16},
                           codes.data(), scales.data(), nullptr);
    for (size_t i = 0; i < scales.size(); ++i) {
        const uint16_t scale = float_to_bf16(scales[i]);
        std::memcpy(part.scales + 2 * i, &scale, sizeof(scale));
    }
    if (bits == 8) {
        std::ranges::copy(codes, bytes_at(part.codes));
        return;
    }
    // Eight to a word, the first in the lowest bits, and 8 added to each.
    constexpr uint8_t k_middle = 8;
    const auto stored = [&](size_t i) { return static_cast<uint8_t>((codes[i] + k_middle) & 15U); };
    for (size_t i = 0; i < codes.size(); i += 2)
        part.codes[i / 2] = static_cast<std::byte>(stored(i) | stored(i + 1) << 4);
}

void encode_anew(const EncodeFolderPart& part) {
    const EncodeFolderRows job = {.x = part.x,
                                  .n_rows = part.n_rows,
                                  .n_columns = part.n_columns,
                                  .importance = part.importance,
                                  .effort = part.effort};
    switch (part.layout) {
        case FolderLayout::bf16:
            fail_internal("the layout bf16 has no codes");
        case FolderLayout::fp8:
            return encode_fp8(part, job);
        case FolderLayout::mxfp8:
            return encode_mxfp8_folder(job, bytes_at(part.codes), bytes_at(part.scales));
        case FolderLayout::nvfp4:
        case FolderLayout::nvfp4_ct:
            return encode_nvfp4_folder(job, part.factor, bytes_at(part.codes), bytes_at(part.scales));
        case FolderLayout::mxfp4_ct:
            return encode_mxfp4_folder(job, bytes_at(part.codes), bytes_at(part.scales));
        case FolderLayout::int4_g32:
        case FolderLayout::int4_g128:
        case FolderLayout::int8:
            return encode_integers(part, job);
    }
}

// ---- what codes stand for

float scale_at(const EncodeFolderPart& part, int64_t row, int64_t column) {
    const auto byte = [&](int64_t group) {
        const int64_t at = row * (part.n_columns / group) + column / group;
        return std::to_integer<uint8_t>(part.scales[at]);
    };
    switch (part.layout) {
        case FolderLayout::bf16:
            break;
        case FolderLayout::fp8: {
            float scale;
            const int64_t at = row / k_fp8_rows * (part.n_columns / k_fp8_rows) + column / k_fp8_rows;
            std::memcpy(&scale, part.scales + at * 4, sizeof(scale));
            return scale;
        }
        case FolderLayout::nvfp4:
        case FolderLayout::nvfp4_ct:
            return e4m3_to_float(byte(16)) * part.factor;
        case FolderLayout::mxfp8:
        case FolderLayout::mxfp4_ct:
            return e8m0_to_float(byte(32));
        case FolderLayout::int4_g32:
        case FolderLayout::int4_g128:
        case FolderLayout::int8: {
            const int64_t group = integer_group(part.layout);
            const int64_t at = group == 0 ? row : row * (part.n_columns / group) + column / group;
            uint16_t scale;
            std::memcpy(&scale, part.scales + at * 2, sizeof(scale));
            return bf16_to_float(scale);
        }
    }
    return 0.0F;
}

void decode(const EncodeFolderPart& part) {
    constexpr int64_t k_same_scale = 16;  // columns, in every layout
    for (int64_t row = 0; row < part.n_rows; ++row) {
        for (int64_t column = 0; column < part.n_columns; ++column) {
            const int64_t at = row * part.n_columns + column;
            const auto code = [&](int64_t byte) { return std::to_integer<int>(part.codes[byte]); };
            const bool is_fp8 = part.layout == FolderLayout::fp8 || part.layout == FolderLayout::mxfp8;
            const int nibble =
                is_fp8 || part.layout == FolderLayout::int8 ? 0 : (code(at / 2) >> (at % 2 * 4) & 15);
            float value = 0.0F;
            if (is_fp8) {
                value = e4m3_to_float(static_cast<uint8_t>(code(at)));
            } else if (part.layout == FolderLayout::int8) {
                value = static_cast<float>(static_cast<int8_t>(code(at)));
            } else if (part.layout == FolderLayout::int4_g32 || part.layout == FolderLayout::int4_g128) {
                value = static_cast<float>(nibble - 8);
            } else {
                value = e2m1_to_float(nibble);
            }
            part.decoded[at] = value;
        }
        for (int64_t column = 0; column < part.n_columns; column += k_same_scale) {
            const float scale = scale_at(part, row, column);
            float* values = part.decoded + row * part.n_columns + column;
            for (int64_t i = 0; i < std::min(k_same_scale, part.n_columns - column); ++i) values[i] *= scale;
        }
    }
}

Piece by_rows(std::string name, std::string_view type, PieceContent content, std::vector<int64_t> shape,
              int64_t line_bytes, int64_t line_rows, int64_t rows) {
    Piece piece{std::move(name), type, std::move(shape), content, line_rows, line_bytes};
    piece.bytes = static_cast<uint64_t>(ceil_div(rows, line_rows) * line_bytes);
    return piece;
}

Piece undivided(std::string name, std::string_view type, PieceContent content, std::vector<int64_t> shape,
                uint64_t bytes) {
    Piece piece{std::move(name), type, std::move(shape), content, 0, 0};
    piece.bytes = bytes;
    return piece;
}

}  // namespace

std::optional<FolderLayout> find_folder_layout(std::string_view name) {
    std::string small(name);
    for (char& c : small)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const auto* const found = std::ranges::find(k_layouts, small, &LayoutTraits::name);
    return found == std::end(k_layouts) ? std::nullopt : std::optional(found->layout);
}

std::string_view name_of(FolderLayout layout) {
    return traits_of(layout).name;
}

std::string folder_layout_names() {
    std::string names;
    for (const LayoutTraits& layout : k_layouts) {
        if (!names.empty()) names += ", ";
        names += layout.name;
    }
    return names;
}

std::string_view code_name(FolderLayout layout) {
    return traits_of(layout).code_name;
}

bool includes_attention(FolderLayout layout) {
    return layout == FolderLayout::fp8 || layout == FolderLayout::mxfp8;
}

bool includes_index(FolderLayout layout) {
    return layout == FolderLayout::mxfp8;
}

int64_t column_multiple(FolderLayout layout) {
    return traits_of(layout).column_multiple;
}

int64_t row_group(FolderLayout layout) {
    return layout == FolderLayout::fp8 ? k_fp8_rows : 1;
}

bool has_matrix_factor(FolderLayout layout) {
    return layout == FolderLayout::nvfp4 || layout == FolderLayout::nvfp4_ct;
}

uint64_t Piece::bytes_of(int64_t first, int64_t count) const {
    if (line_rows == 0) return first == 0 ? bytes : 0;
    return static_cast<uint64_t>(ceil_div(count, line_rows) * line_bytes);
}

uint64_t Piece::bytes_before(int64_t first) const {
    if (line_rows == 0) return first == 0 ? 0 : bytes;
    return static_cast<uint64_t>(first / line_rows * line_bytes);
}

std::vector<Piece> pieces_of(FolderLayout layout, const std::string& stem, int64_t rows, int64_t columns,
                             bool with_input_scale) {
    using Content = PieceContent;
    std::vector<Piece> pieces;
    const auto lines = [&](const char* suffix, std::string_view type, Content content, int64_t n,
                           int64_t bytes) {
        pieces.push_back(by_rows(stem + suffix, type, content, {rows, n}, bytes, 1, rows));
    };
    const auto number = [&](const char* suffix, Content content, std::vector<int64_t> shape) {
        pieces.push_back(undivided(stem + suffix, "F32", content, std::move(shape), sizeof(float)));
    };
    switch (layout) {
        case FolderLayout::bf16:
            lines(".weight", "BF16", Content::rows, columns, 2 * columns);
            break;
        case FolderLayout::fp8: {
            const int64_t n_scales = ceil_div(columns, k_fp8_rows);
            lines(".weight", "F8_E4M3", Content::codes, columns, columns);
            pieces.push_back(by_rows(stem + ".weight_scale_inv", "F32", Content::scales,
                                     {ceil_div(rows, k_fp8_rows), n_scales}, 4 * n_scales, k_fp8_rows, rows));
            break;
        }
        case FolderLayout::mxfp8:
            lines(".weight", "F8_E4M3", Content::codes, columns, columns);
            lines(".weight_scale_inv", "U8", Content::scales, columns / 32, columns / 32);
            break;
        case FolderLayout::nvfp4:
            lines(".weight", "U8", Content::codes, columns / 2, columns / 2);
            lines(".weight_scale", "F8_E4M3", Content::scales, columns / 16, columns / 16);
            number(".weight_scale_2", Content::factor, {});
            if (with_input_scale) number(".input_scale", Content::input_scale, {});
            break;
        case FolderLayout::nvfp4_ct:
            lines(".weight_packed", "U8", Content::codes, columns / 2, columns / 2);
            lines(".weight_scale", "F8_E4M3", Content::scales, columns / 16, columns / 16);
            number(".weight_global_scale", Content::inverse_factor, {1});
            if (with_input_scale) number(".input_global_scale", Content::inverse_input_scale, {1});
            break;
        case FolderLayout::mxfp4_ct:
            lines(".weight_packed", "U8", Content::codes, columns / 2, columns / 2);
            lines(".weight_scale", "U8", Content::scales, columns / 32, columns / 32);
            break;
        case FolderLayout::int4_g32:
        case FolderLayout::int4_g128: {
            const int64_t n_scales = columns / integer_group(layout);
            lines(".weight_packed", "I32", Content::codes, columns / 8, columns / 2);
            lines(".weight_scale", "BF16", Content::scales, n_scales, 2 * n_scales);
            pieces.push_back(
                undivided(stem + ".weight_shape", "I64", Content::shape, {2}, 2 * sizeof(int64_t)));
            break;
        }
        case FolderLayout::int8:
            lines(".weight", "I8", Content::codes, columns, columns);
            lines(".weight_scale", "BF16", Content::scales, 1, 2);
            break;
    }
    return pieces;
}

bool keeps_codes(FolderLayout layout, Format format) {
    switch (layout) {
        case FolderLayout::fp8:
            return format == Format::fp8_e4m3_b128;
        case FolderLayout::mxfp8:
            return format == Format::mxfp8;
        case FolderLayout::nvfp4:
        case FolderLayout::nvfp4_ct:
            return format == Format::nvfp4;
        case FolderLayout::mxfp4_ct:
            return format == Format::mxfp4;
        default:
            return false;
    }
}

void encode_folder_part(const EncodeFolderPart& part) {
    if (!keep_codes(part)) encode_anew(part);
    decode(part);
}

}  // namespace minim::convert
