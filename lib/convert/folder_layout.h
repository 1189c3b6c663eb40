// SPDX-License-Identifier: Apache-2.0
// The layouts in which safetensors folders are written: which tensors a matrix becomes, and how its rows are encoded.
//
//   bf16      weight BF16
//   fp8       weight F8_E4M3, weight_scale_inv F32 of 128 x 128 blocks: the official release's
//   mxfp8     weight F8_E4M3, weight_scale_inv U8 of 32 columns: the official release's of M3
//   nvfp4     weight U8, weight_scale F8_E4M3, weight_scale_2 F32, perhaps input_scale F32: ModelOpt's
//   nvfp4-ct  weight_packed U8, weight_scale F8_E4M3, weight_global_scale F32, perhaps input_global_scale F32: compressed-tensors', as
//             those below
//   mxfp4-ct  weight_packed U8, weight_scale U8
//   int4-gN   weight_packed I32, weight_scale BF16, weight_shape I64
//   int8      weight I8, weight_scale BF16
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/encode/encode_rows.h"
#include "format/format.h"

namespace minim::convert {

enum class FolderLayout : uint8_t { bf16, fp8, mxfp8, nvfp4, nvfp4_ct, mxfp4_ct, int4_g32, int4_g128, int8 };

// Returns a layout by its name, in any case; nothing if there is none.
std::optional<FolderLayout> find_folder_layout(std::string_view name);
std::string_view name_of(FolderLayout layout);
// Returns the names of all layouts, for messages.
std::string folder_layout_names();
// Returns how reports call the type of a quantised matrix: "NVFP4".
std::string_view code_name(FolderLayout layout);

// Returns whether a layout stores attention and the feed-forwards that every row takes in its own type, beside the experts, unless a
// rule says otherwise.
bool includes_attention(FolderLayout layout);
// Returns whether it stores the projections of M3's index so, too, unless a rule says otherwise.
bool includes_index(FolderLayout layout);
// Returns of how many columns a row of a matrix must be a multiple.
int64_t column_multiple(FolderLayout layout);
// Returns the number of rows that are encoded together.
int64_t row_group(FolderLayout layout);
// Returns whether a matrix has a factor, which its largest weight decides.
bool has_matrix_factor(FolderLayout layout);

// What a tensor of a matrix has.
enum class PieceContent : uint8_t {
    rows,            // of a plain matrix or vector
    codes,           // a line for each row
    scales,          // a line for each row, or each 128 rows
    factor,          // of the matrix
    inverse_factor,  // 1 / factor
    input_scale,     // of the matrix's inputs: their largest magnitude / (6 * 448)
    inverse_input_scale,
    shape,  // two I64
};

// One tensor of the folder.
struct Piece {
    std::string name;
    std::string_view type;  // "F8_E4M3"
    std::vector<int64_t> shape;
    PieceContent content = PieceContent::rows;
    int64_t line_rows = 1;   // rows that share a line; 0: the tensor is not divided by rows
    int64_t line_bytes = 0;  // of a line
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in the file

    // Returns the bytes that rows [first, first + count) have in the tensor, or that are before them. `first` is a multiple of
    // line_rows. A tensor without rows goes with the first ones.
    uint64_t bytes_of(int64_t first, int64_t count) const;
    uint64_t bytes_before(int64_t first) const;
};
inline constexpr size_t k_max_pieces = 4;  // of a matrix

// Returns the tensors of a matrix that is quantised. `stem`: their name without ".weight".
std::vector<Piece> pieces_of(FolderLayout layout, const std::string& stem, int64_t rows, int64_t columns,
                             bool with_input_scale);

// Rows of a matrix to encode. row_group() divides the number of the first row.
struct EncodeFolderPart {
    FolderLayout layout;
    const float* x;  // [n_rows, n_columns]
    int64_t n_rows;
    int64_t n_columns;
    const float* importance = nullptr;  // [n_columns] or null
    EncodeEffort effort = EncodeEffort::full;
    float factor = 1.0F;  // of the matrix
    // The rows in the source's format, whose codes and scales stay if the layout has them: keeps_codes().
    const std::byte* source_rows = nullptr;
    Format source_format = Format::f32;
    std::byte* codes = nullptr;
    std::byte* scales = nullptr;
    float* decoded = nullptr;  // [n_rows, n_columns]: what the codes stand for
};

// Returns whether rows of a format have codes and scales that the layout stores as they are. FP8 has only if rows of a block of 128
// share their scales; others are encoded.
bool keeps_codes(FolderLayout layout, Format format);

// Encodes on the caller's thread. Throws what the encoders throw (format/encode/folders.h).
void encode_folder_part(const EncodeFolderPart& part);

}  // namespace minim::convert
