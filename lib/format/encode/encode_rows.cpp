// SPDX-License-Identifier: Apache-2.0
#include "format/encode/encode_rows.h"

#include <cmath>

#include "base/error.h"
#include "format/encode.h"

namespace minim {
namespace {

// F16 rounds larger magnitudes to infinity, or to another number than the largest.
constexpr float k_largest_f16 = 65504.0F;

void check_numbers(const EncodeRows& job) {
    for (int64_t row = 0; row < job.n_rows; ++row) {
        const float* x = job.x + row * job.n_columns;
        for (int64_t column = 0; column < job.n_columns; ++column) {
            if (!std::isfinite(x[column])) {
                fail(Status::invalid, "the weight of row {}, column {} is {}", row, column, x[column]);
            }
            if (job.format == Format::f16 && std::fabs(x[column]) > k_largest_f16) {
                fail(Status::invalid, "the weight {} of row {}, column {} exceeds the largest F16, 65504",
                     x[column], row, column);
            }
        }
    }
    if (job.importance == nullptr) return;
    for (int64_t column = 0; column < job.n_columns; ++column) {
        const float u = job.importance[column];
        if (!std::isfinite(u) || u < 0.0F)
            fail(Status::invalid, "the importance of column {} is {}", column, u);
    }
}

}  // namespace

bool can_encode(Format format) noexcept {
    return row_encoder(format) != nullptr;
}

bool needs_importance(Format format) noexcept {
    switch (format) {
        case Format::iq1_s:
        case Format::iq1_m:
        case Format::iq2_xxs:
        case Format::iq2_xs:
        case Format::iq2_s:
        case Format::iq3_xxs:
            return true;
        default:
            return false;
    }
}

void encode_rows(const EncodeRows& job) {
    if (!can_encode(job.format))
        fail(Status::unsupported, "there is no encoder of {}", traits(job.format).name);
    uint64_t row_size = 0;
    if (job.n_rows < 0 || job.n_columns < 0 ||
        !row_bytes(job.format, static_cast<uint64_t>(job.n_columns), row_size)) {
        fail(Status::invalid, "{} x {} weights are not rows of whole blocks of {} ({} each)", job.n_rows,
             job.n_columns, traits(job.format).name, traits(job.format).block_elems);
    }
    check_numbers(job);
    const EncodeRow encode = row_encoder(job.format);
    for (int64_t row = 0; row < job.n_rows; ++row) {
        encode(job.x + row * job.n_columns, job.n_columns, job.out + row * static_cast<int64_t>(row_size));
    }
}

}  // namespace minim
