// SPDX-License-Identifier: Apache-2.0
#include "format/encode/encode_rows.h"

#include <cmath>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"
#include "format/encode.h"
#include "format/encode/grid_neighbours.h"
#include "format/encode/kernels.h"
#include "format/encode/weights.h"

namespace minim {
namespace {

constexpr float k_largest_f16 = 65504.0F;

encoding::RowKernel kernel_for(Format format) {
#if MINIM_HAS_AVX2_ENCODERS
    if (active_cpu_level() >= CpuLevel::avx2) return encoding::avx2_kernel(format);
#endif
    return encoding::scalar_kernel(format);
}

// The formats that only round.
EncodeRow plain_encoder(Format format) noexcept {
    switch (format) {
        case Format::f32:
        case Format::f16:
        case Format::bf16:
        case Format::q8_0:
            return row_encoder(format);
        default:
            return nullptr;
    }
}

// Returns the largest magnitude that a plain format has.
float largest_plain(Format format) noexcept {
    if (format == Format::f16) return k_largest_f16;
    if (format == Format::q8_0) return 127.0F * k_largest_f16;
    if (format == Format::bf16) return 0x1.FEp127F;
    return INFINITY;
}

void encode_plain(const EncodeRows& job, int64_t row_size) {
    const float largest = largest_plain(job.format);
    for (int64_t row = 0; row < job.n_rows; ++row) {
        const float* x = job.x + row * job.n_columns;
        for (int64_t column = 0; column < job.n_columns; ++column) {
            if (std::fabs(x[column]) <= largest) continue;
            fail(Status::invalid, "the weight {} of row {}, column {} exceeds the largest of {}, {}",
                 x[column], row, column, traits(job.format).name, largest);
        }
        plain_encoder(job.format)(x, job.n_columns, job.out + row * row_size);
    }
}

// How much outliers weigh at least (raise_outliers). Formats whose scales have the range of F32 want more: other programs fit the
// outliers of tiny rows too.
double outlier_weight(Format format) noexcept {
    switch (format) {
        case Format::mxfp4:
            return 1.0;
        case Format::iq4_ks:
        case Format::iq4_kss:
            return 2.0;
        case Format::iq5_ks:
            return 3.0;
        default:
            return encoding::k_outlier_weight;
    }
}

void encode_with_search(const EncodeRows& job, int64_t row_size) {
    const encoding::RowKernel kernel = kernel_for(job.format);
    const std::vector<float> u = encoding::column_weights(
        job.importance, job.n_columns, traits(job.format).block_elems, encoding::k_min_weight);
    const encoding::GridNeighbours* near =
        job.effort == EncodeEffort::fast ? encoding::neighbours_of(job.format) : nullptr;
    std::vector<float> raised = u;
    std::vector<float> scratch(static_cast<size_t>(encoding::row_scratch(job.n_columns)));
    for (int64_t row = 0; row < job.n_rows; ++row) {
        encoding::RowTask task{};
        task.x = job.x + row * job.n_columns;
        encoding::raise_outliers(task.x, u, outlier_weight(job.format), raised);
        task.u = raised.data();
        task.n_columns = job.n_columns;
        task.out = reinterpret_cast<uint8_t*>(job.out) + row * row_size;
        task.scratch = scratch.data();
        task.factor = job.factor;
        task.fast = job.effort == EncodeEffort::fast;
        task.near = near;
        const int64_t column = kernel(task);
        if (column == encoding::k_encoded) continue;
        fail(Status::invalid, "the weights of row {} from column {} are too large for the scales of {}", row,
             column, traits(job.format).name);
    }
}

}  // namespace

bool can_encode(Format format) noexcept {
    return plain_encoder(format) != nullptr || encoding::scalar_kernel(format) != nullptr;
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
    encoding::check_numbers(job.x, job.n_rows, job.n_columns, job.importance);
    if (!(job.factor > 0.0F) || !std::isfinite(job.factor))
        fail(Status::invalid, "the factor {} is not positive", job.factor);
    if (plain_encoder(job.format) != nullptr) {
        encode_plain(job, static_cast<int64_t>(row_size));
    } else {
        encode_with_search(job, static_cast<int64_t>(row_size));
    }
}

}  // namespace minim
