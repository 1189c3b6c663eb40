// SPDX-License-Identifier: Apache-2.0
// Measures the encoders of all formats on one thread: CPU time for a weight with full and with fast effort, and the relative root of the mean
// square error, weighted with the importance of the columns, without it and with it. The matrix is that of
// tests/unit/format/weight_matrices.h. MINIM_CPU chooses the instruction set.
//
//   encode_bench [FORMAT ...]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <vector>

#include "format/encode/encode_rows.h"
#include "format/encode/folders.h"
#include "unit/format/weight_matrices.h"

namespace {

using namespace minim;

struct Measured {
    double ns;  // of the CPU, for a weight
    double weighted_error;
};

double weighted_error(const test::WeightMatrix& matrix, const std::vector<float>& y, float factor) {
    double difference = 0.0;
    double power = 0.0;
    for (size_t i = 0; i < y.size(); ++i) {
        const auto u = static_cast<double>(matrix.importance[i % matrix.importance.size()]);
        const auto x = static_cast<double>(matrix.weights[i]);
        const double d = x - static_cast<double>(y[i] * factor);
        difference += u * d * d;
        power += u * x * x;
    }
    return std::sqrt(difference / power);
}

Measured measure(Format format, const test::WeightMatrix& matrix, bool with_importance, EncodeEffort effort) {
    EncodeRows job{};
    job.format = format;
    job.x = matrix.weights.data();
    job.n_rows = matrix.n_rows;
    job.n_columns = matrix.n_columns;
    job.importance = with_importance ? matrix.importance.data() : nullptr;
    job.effort = effort;
    if (format == Format::nvfp4) {
        float largest = 0.0F;
        for (const float weight : matrix.weights) largest = std::max(largest, std::fabs(weight));
        job.factor = nvfp4_factor(largest);
    }
    const int64_t stride = row_bytes(format, matrix.n_columns);
    std::vector<std::byte> out(static_cast<size_t>(matrix.n_rows * stride));
    job.out = out.data();
    // Tables that the first call makes are not counted.
    job.n_rows = 1;
    encode_rows(job);
    job.n_rows = matrix.n_rows;
    const std::clock_t start = std::clock();
    encode_rows(job);
    const double ns = static_cast<double>(std::clock() - start) * 1e9 / CLOCKS_PER_SEC;
    std::vector<float> y(matrix.weights.size());
    decode_rows(format, out.data(), matrix.n_rows, stride, matrix.n_columns, y.data());
    return {ns / static_cast<double>(y.size()), weighted_error(matrix, y, job.factor)};
}

}  // namespace

int main(int n_arguments, char** arguments) {
    const std::vector<std::string_view> names(arguments + 1, arguments + n_arguments);
    for (const std::string_view name : names) {
        const auto format = format_from_name(name);
        if (format && can_encode(*format)) continue;
        std::fprintf(stderr, "there is no encoder of %.*s\n", static_cast<int>(name.size()), name.data());
        return 1;
    }
    const test::WeightMatrix matrix = test::weight_matrix("down", 1);
    std::printf("%-8s %8s %8s %9s %9s %9s\n", "format", "ns", "ns fast", "error", "weighted", "fast");
    for (const FormatTraits& entry : all_formats()) {
        if (!can_encode(entry.format)) continue;
        if (!names.empty() && std::find(names.begin(), names.end(), entry.name) == names.end()) continue;
        const Measured without = measure(entry.format, matrix, false, EncodeEffort::full);
        const Measured with = measure(entry.format, matrix, true, EncodeEffort::full);
        const Measured fast = measure(entry.format, matrix, true, EncodeEffort::fast);
        std::printf("%-8.*s %8.0f %8.0f %9.5f %9.5f %9.5f\n", static_cast<int>(entry.name.size()),
                    entry.name.data(), with.ns, fast.ns, without.weighted_error, with.weighted_error,
                    fast.weighted_error);
    }
    return 0;
}
