// SPDX-License-Identifier: Apache-2.0
#include "weights/finite.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/format_text.h"
#include "format/format.h"

namespace minim::weights {
namespace {

constexpr int64_t k_piece_numbers = int64_t{1} << 20;

std::string sentence(const WeightSpec& weight, float value, int64_t row, int64_t col) {
    const char* what = std::isnan(value) ? "NaN" : "infinity";
    const std::string& name = weight.source.tensor->name;
    if (weight.use == Use::vector) return format_text("tensor {} has {} at element {}", name, what, col);
    if (weight.is_expert())
        return format_text("tensor {} has {} in row {} of expert {}", name, what, row, weight.expert);
    return format_text("tensor {} has {} in row {}", name, what, row);
}

}  // namespace

std::string why_not_finite(const Reader& reader, const WeightSpec& weight, int64_t first, int64_t count) {
    const int64_t n_piece =
        std::clamp<int64_t>(k_piece_numbers / weight.cols, 1, std::max<int64_t>(count, 1));
    std::vector<std::byte> bytes(n_piece * weight.row_bytes);
    std::vector<float> values(n_piece * weight.cols);
    for (int64_t row = first; row < first + count; row += n_piece) {
        const int64_t n = std::min(n_piece, first + count - row);
        const std::span piece = std::span(bytes).first(n * weight.row_bytes);
        reader.read(weight, static_cast<uint64_t>(row * weight.row_bytes), piece);
        decode_rows(weight.format, piece.data(), n, weight.row_bytes, weight.cols, values.data());
        const auto end = values.begin() + n * weight.cols;
        const auto bad = std::find_if(values.begin(), end, [](float value) { return !std::isfinite(value); });
        if (bad == end) continue;
        const int64_t at = bad - values.begin();
        return sentence(weight, *bad, row + at / weight.cols, at % weight.cols);
    }
    return {};
}

std::string why_not_finite(const Reader& reader, const WeightSpec& weight) {
    const float factor = reader.factor(weight);
    if (!std::isfinite(factor)) {
        const std::string& name = weight.source.factor->name;
        return format_text("tensor {} has {} at element {}", name, std::isnan(factor) ? "NaN" : "infinity",
                           weight.source.factor_index);
    }
    return why_not_finite(reader, weight, 0, weight.rows);
}

}  // namespace minim::weights
