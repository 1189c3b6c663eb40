// SPDX-License-Identifier: Apache-2.0
#include "format/encode/folders.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"
#include "format/e4m3.h"
#include "format/encode/kernels.h"
#include "format/encode/weights.h"

namespace minim {
namespace {

constexpr int64_t k_fp8_block = 128;
constexpr int64_t k_mxfp8_group = 32;

const encoding::FolderKernels& folder_kernels() {
#if MINIM_HAS_AVX2_ENCODERS
    if (active_cpu_level() >= CpuLevel::avx2) return encoding::avx2_folder_kernels();
#endif
    return encoding::scalar_folder_kernels();
}

// Calls encode(row, task) for each row; it returns what kernels return. least_weight: see column_weights().
template <class Encode>
void for_each_row(const EncodeFolderRows& job, int64_t group, double least_weight, std::string_view name,
                  const Encode& encode) {
    if (job.n_rows < 0 || job.n_columns < 0 || (group > 0 && job.n_columns % group != 0)) {
        fail(Status::invalid, "{} x {} weights are not rows of whole groups of {} ({} each)", job.n_rows,
             job.n_columns, name, group);
    }
    encoding::check_numbers(job.x, job.n_rows, job.n_columns, job.importance);
    const int64_t block = group > 0 ? group : job.n_columns;
    const std::vector<float> u = encoding::column_weights(job.importance, job.n_columns, block, least_weight);
    for (int64_t row = 0; row < job.n_rows && job.n_columns > 0; ++row) {
        encoding::RowTask task{};
        task.x = job.x + row * job.n_columns;
        task.u = u.data();
        task.n_columns = job.n_columns;
        task.factor = 1.0F;
        task.fast = job.effort == EncodeEffort::fast;
        const int64_t column = encode(row, task);
        if (column == encoding::k_encoded) continue;
        fail(Status::invalid, "the weights of row {} from column {} are too large for the scales of {}", row,
             column, name);
    }
}

// Encodes a group under the scale 2^exponent. Returns the sum of the square errors.
double encode_mxfp8_group(const float* x, int exponent, uint8_t* codes) {
    double error = 0.0;
    for (int64_t i = 0; i < k_mxfp8_group; ++i) {
        codes[i] = float_to_e4m3(std::ldexp(x[i], -exponent));
        const double difference =
            static_cast<double>(std::ldexp(e4m3_to_float(codes[i]), exponent)) - static_cast<double>(x[i]);
        error += difference * difference;
    }
    return error;
}

}  // namespace

float nvfp4_factor(float largest_magnitude) noexcept {
    return largest_magnitude > 0.0F ? largest_magnitude / (6.0F * 448.0F) : 1.0F;
}

void encode_nvfp4_folder(const EncodeFolderRows& job, float factor, uint8_t* codes, uint8_t* scales) {
    for_each_row(job, 16, encoding::k_min_weight, "NVFP4", [&](int64_t row, encoding::RowTask& task) {
        if (!(factor > 0.0F) || !std::isfinite(factor))
            fail(Status::invalid, "the factor {} is not positive", factor);
        task.factor = factor;
        return folder_kernels().nvfp4(task, codes + row * (job.n_columns / 2),
                                      scales + row * (job.n_columns / 16));
    });
}

void encode_mxfp4_folder(const EncodeFolderRows& job, uint8_t* codes, uint8_t* scales) {
    for_each_row(job, 32, encoding::k_min_weight, "MXFP4", [&](int64_t row, const encoding::RowTask& task) {
        return folder_kernels().mxfp4(task, codes + row * (job.n_columns / 2),
                                      scales + row * (job.n_columns / 32));
    });
}

void encode_mxfp8_folder(const EncodeFolderRows& job, uint8_t* codes, uint8_t* scales) {
    constexpr int k_bias = 127;
    constexpr int k_largest_code_exponent = 8;  // 448 is 1.75 * 2^8
    for_each_row(
        job, k_mxfp8_group, encoding::k_min_weight, "MXFP8", [&](int64_t row, const encoding::RowTask& task) {
            for (int64_t column = 0; column < job.n_columns; column += k_mxfp8_group) {
                const float* x = task.x + column;
                uint8_t* to = codes + row * job.n_columns + column;
                float peak = 0.0F;
                for (int64_t i = 0; i < k_mxfp8_group; ++i) peak = std::max(peak, std::fabs(x[i]));
                int exponent =
                    peak > 0.0F ? std::max(std::ilogb(peak) - k_largest_code_exponent, -k_bias) : 0;
                uint8_t other[k_mxfp8_group];
                if (encode_mxfp8_group(x, exponent + 1, other) < encode_mxfp8_group(x, exponent, to)) {
                    std::copy_n(other, k_mxfp8_group, to);
                    ++exponent;
                }
                scales[(row * job.n_columns + column) / k_mxfp8_group] =
                    static_cast<uint8_t>(exponent + k_bias);
            }
            return encoding::k_encoded;
        });
}

void encode_fp8_folder(const EncodeFolderRows& job, uint8_t* codes, float* scales) {
    if (job.n_rows < 0 || job.n_columns < 0)
        fail(Status::invalid, "{} x {} weights", job.n_rows, job.n_columns);
    encoding::check_numbers(job.x, job.n_rows, job.n_columns, job.importance);
    float* scale = scales;
    for (int64_t row = 0; row < job.n_rows; row += k_fp8_block) {
        const int64_t last_row = std::min(row + k_fp8_block, job.n_rows);
        for (int64_t column = 0; column < job.n_columns; column += k_fp8_block) {
            const int64_t last_column = std::min(column + k_fp8_block, job.n_columns);
            float peak = 0.0F;
            for (int64_t i = row; i < last_row; ++i) {
                for (int64_t k = column; k < last_column; ++k)
                    peak = std::max(peak, std::fabs(job.x[i * job.n_columns + k]));
            }
            *scale = std::max(peak / 448.0F, 1e-12F);
            for (int64_t i = row; i < last_row; ++i) {
                for (int64_t k = column; k < last_column; ++k)
                    codes[i * job.n_columns + k] = float_to_e4m3(job.x[i * job.n_columns + k] / *scale);
            }
            ++scale;
        }
    }
}

void encode_integers_folder(const EncodeFolderRows& job, const IntegerGroups& groups, uint8_t* codes,
                            float* scales, uint8_t* zeros) {
    if (groups.bits != 4 && groups.bits != 8) fail(Status::invalid, "{} bits, not 4 or 8", groups.bits);
    if (groups.group < 0) fail(Status::invalid, "a group of {} columns", groups.group);
    const std::string_view name = groups.bits == 4 ? "INT4" : "INT8";
    // An outlier that eight bits cut off would be most of the error of its group.
    const double least_weight = groups.bits == 8 ? 1e-2 : encoding::k_min_weight;
    for_each_row(job, groups.group, least_weight, name, [&](int64_t row, const encoding::RowTask& task) {
        const int64_t n_groups = groups.group > 0 ? job.n_columns / groups.group : 1;
        uint8_t* row_zeros = groups.with_zeros ? zeros + row * n_groups : nullptr;
        return folder_kernels().integers(task, groups, codes + row * job.n_columns, scales + row * n_groups,
                                         row_zeros);
    });
}

}  // namespace minim
