// SPDX-License-Identifier: Apache-2.0
#include "weights/narrow.h"

#include "base/error.h"

namespace minim::weights {
namespace {

void check_range(const WeightSpec& whole, Range range, int64_t count, int64_t unit, const char* what) {
    const bool is_inside = range.first >= 0 && range.count > 0 && range.first <= count - range.count;
    if (is_inside && range.first % unit == 0 && range.count % unit == 0) return;
    fail_internal("{} {} of tensor {} from {} on: it has {}, in units of {}", range.count, what,
                  whole.source.tensor->name, range.first, count, unit);
}

// Returns elements of a vector. Its source may have another type, which has no blocks.
WeightSpec elements_of(const WeightSpec& whole, Range range) {
    check_range(whole, range, whole.cols, 1, "elements");
    WeightSpec part = whole;
    part.source.offset += static_cast<uint64_t>(row_bytes(*whole.source.tensor->format, range.first));
    part.cols = range.count;
    part.row_bytes = row_bytes(whole.format, range.count);
    return part;
}

}  // namespace

WeightSpec rows_of(const WeightSpec& whole, Range range) {
    if (whole.use == Use::vector) return elements_of(whole, range);
    check_range(whole, range, whole.rows, 1, "rows");
    WeightSpec part = whole;
    part.source.offset += static_cast<uint64_t>(range.first * whole.source_row_bytes());
    part.rows = range.count;
    return part;
}

WeightSpec columns_of(const WeightSpec& whole, Range range) {
    const FormatTraits& format = traits(whole.format);
    check_range(whole, range, whole.cols, format.block_elems, "columns");
    if (whole.use == Use::vector)
        fail_internal("tensor {} is a vector, and has no columns", whole.source.tensor->name);
    if (range.count == whole.cols) return whole;
    const int64_t first_byte =
        whole.source.columns ? whole.source.columns->first_byte : format.row_header_bytes;
    WeightSpec part = whole;
    part.source.columns = {.first_byte = first_byte + range.first / format.block_elems * format.block_bytes,
                           .row_bytes = whole.source_row_bytes()};
    part.cols = range.count;
    part.row_bytes = row_bytes(whole.format, range.count);
    return part;
}

}  // namespace minim::weights
