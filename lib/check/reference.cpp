// SPDX-License-Identifier: Apache-2.0
#include "check/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <tuple>

#include "base/error.h"
#include "base/format_text.h"
#include "format/format.h"
#include "weights/reader.h"

namespace minim::check {
namespace {

using weights::WeightSpec;

constexpr double k_allowed_factor = 3.0;
// The difference between matrices that have nothing in common is the square root of 2.
constexpr double k_largest_allowed = 1.0;
constexpr double k_smallest_allowed = 1e-5;
constexpr int64_t k_numbers_at_once = int64_t{1} << 18;
constexpr int64_t k_n_rows_to_match = 8;

struct FormatError {
    Format format;
    double error;  // root mean square of the difference over that of the matrix
};

// Of matrices with the spread of trained ones, as the usual quantisers make them, with or without importance data, whichever is more.
constexpr FormatError k_format_errors[] = {
    {Format::f32, 0.0},      {Format::f16, 0.0003},    {Format::bf16, 0.0017},
    {Format::q4_0, 0.105},   {Format::q4_1, 0.088},    {Format::q5_0, 0.052},
    {Format::q5_1, 0.043},   {Format::q8_0, 0.0066},   {Format::q6_0, 0.026},
    {Format::iq4_nl, 0.089}, {Format::mxfp4, 0.128},   {Format::nvfp4, 0.101},
    {Format::q2_k, 0.33},    {Format::q3_k, 0.175},    {Format::q4_k, 0.086},
    {Format::q5_k, 0.042},   {Format::q6_k, 0.022},    {Format::iq1_s, 0.58},
    {Format::iq1_m, 0.60},   {Format::iq2_xxs, 0.41},  {Format::iq2_xs, 0.36},
    {Format::iq2_s, 0.31},   {Format::iq3_xxs, 0.24},  {Format::iq3_s, 0.185},
    {Format::iq4_xs, 0.090}, {Format::iq2_k, 0.34},    {Format::iq3_k, 0.154},
    {Format::iq4_k, 0.074},  {Format::iq5_k, 0.038},   {Format::iq6_k, 0.018},
    {Format::iq2_ks, 0.40},  {Format::iq3_ks, 0.182},  {Format::iq4_ks, 0.087},
    {Format::iq5_ks, 0.044}, {Format::iq4_kss, 0.125}, {Format::iq2_kl, 0.27},
    {Format::iq1_kt, 0.52},  {Format::iq2_kt, 0.395},  {Format::iq3_kt, 0.216},
    {Format::iq4_kt, 0.13},  {Format::mxfp8, 0.027},   {Format::fp8_e4m3_b128, 0.027},
};
// Of the formats that are not in the table: the largest one of those with four bits in groups of 128.
constexpr double k_error_of_4_bits = 0.155;
constexpr double k_error_of_8_bits = 0.020;

double error_of(Format format) {
    const auto* known = std::ranges::find(k_format_errors, format, &FormatError::format);
    if (known != std::end(k_format_errors)) return known->error;
    return traits(format).name.starts_with("INT8") ? k_error_of_8_bits : k_error_of_4_bits;
}

double allowed_difference(const WeightSpec& a, const WeightSpec& b) {
    const double of_formats = std::hypot(error_of(a.format), error_of(b.format));
    return std::clamp(k_allowed_factor * of_formats, k_smallest_allowed, k_largest_allowed);
}

// The same matrix of two files.
struct Pair {
    const WeightSpec* weight = nullptr;
    const WeightSpec* reference = nullptr;
};

using Key = std::tuple<int32_t, int32_t, int32_t>;  // layer, role, expert

Key key_of(const WeightSpec& weight) {
    return {weight.layer, weight.role, weight.expert};
}

std::vector<float> decoded(const weights::Reader& reader, const WeightSpec& weight, int64_t first,
                           int64_t count) {
    std::vector<std::byte> bytes(static_cast<size_t>(count * weight.row_bytes));
    std::vector<float> values(static_cast<size_t>(count * weight.cols));
    reader.read(weight, static_cast<uint64_t>(first * weight.row_bytes), bytes);
    decode_rows(weight.format, bytes.data(), count, weight.row_bytes, weight.cols, values.data());
    const float factor = reader.factor(weight);
    if (factor != 1.0F)
        for (float& value : values) value *= factor;
    return values;
}

// Returns the root mean square of the difference over that of the reference, of the first n_rows rows.
double difference(const weights::Reader& reader, const WeightSpec& weight,
                  const weights::Reader& other_reader, const WeightSpec& other, int64_t n_rows) {
    const int64_t n_piece = std::max<int64_t>(k_numbers_at_once / weight.cols, 1);
    double of_difference = 0.0;
    double of_reference = 0.0;
    for (int64_t row = 0; row < n_rows; row += n_piece) {
        const int64_t n = std::min(n_piece, n_rows - row);
        const std::vector<float> x = decoded(reader, weight, row, n);
        const std::vector<float> y = decoded(other_reader, other, row, n);
        for (size_t i = 0; i < x.size(); ++i) {
            const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
            of_difference += d * d;
            of_reference += static_cast<double>(y[i]) * static_cast<double>(y[i]);
        }
    }
    if (of_difference == 0.0) return 0.0;
    return std::sqrt(of_difference / of_reference);
}

// Finds the expert of the reference that a wrong expert is; -1: none.
int32_t matching_expert(const weights::Reader& reader, const WeightSpec& weight,
                        const weights::Reader& other_reader, std::span<const Pair> pairs) {
    int32_t best = -1;
    double least = allowed_difference(weight, weight);
    for (const Pair& pair : pairs) {
        const WeightSpec& other = *pair.reference;
        const bool is_candidate =
            other.layer == weight.layer && other.role == weight.role && other.expert != weight.expert;
        if (!is_candidate) continue;
        const double found =
            difference(reader, weight, other_reader, other, std::min(k_n_rows_to_match, weight.rows));
        if (found < least) {
            least = found;
            best = other.expert;
        }
    }
    return best;
}

// Returns the matrices that both files have in one shape. Others are faults.
std::vector<Pair> paired(const Opened& opened, const Opened& reference, Report& report) {
    std::map<Key, const WeightSpec*> others;
    for (const WeightSpec& weight : reference.weights) others[key_of(weight)] = &weight;
    std::vector<Pair> pairs;
    for (const WeightSpec& weight : opened.weights) {
        const auto other = others.find(key_of(weight));
        const std::string& name = weight.source.tensor->name;
        if (other == others.end()) {
            report.fault(FaultClass::reference, name, "is not in the reference");
        } else if (other->second->rows != weight.rows || other->second->cols != weight.cols) {
            report.fault(FaultClass::reference, name,
                         format_text("is {} x {}; the reference has {} x {}", weight.rows, weight.cols,
                                     other->second->rows, other->second->cols));
        } else {
            pairs.push_back({&weight, other->second});
        }
    }
    return pairs;
}

// Reports wrong matrices. For experts, names those that were exchanged.
void report_wrong(std::span<const Pair> pairs, std::span<const double> differences,
                  const weights::Reader& reader, const weights::Reader& other_reader, Report& report) {
    std::map<Key, int32_t> matches;  // of wrong experts
    const auto is_wrong = [&](size_t i) {
        return !(differences[i] <= allowed_difference(*pairs[i].weight, *pairs[i].reference));
    };
    for (size_t i = 0; i < pairs.size(); ++i)
        if (is_wrong(i) && pairs[i].weight->is_expert())
            matches[key_of(*pairs[i].weight)] =
                matching_expert(reader, *pairs[i].weight, other_reader, pairs);
    for (size_t i = 0; i < pairs.size(); ++i) {
        if (!is_wrong(i)) continue;
        const WeightSpec& weight = *pairs[i].weight;
        const std::string& name = weight.source.tensor->name;
        const auto match = matches.find(key_of(weight));
        const int32_t other = match == matches.end() ? -1 : match->second;
        if (other >= 0) {
            const auto back = matches.find({weight.layer, weight.role, other});
            const bool is_exchanged = back != matches.end() && back->second == weight.expert;
            if (is_exchanged && other < weight.expert) continue;  // named before
            report.fault(FaultClass::reference, name,
                         is_exchanged
                             ? format_text("experts {} and {} are exchanged", weight.expert, other)
                             : format_text("expert {} is expert {} of the reference", weight.expert, other));
            continue;
        }
        report.fault(
            FaultClass::reference, name,
            format_text("{}differs by {:.3g} of its size from the reference; {} and {} allow {:.3g}",
                        weight.is_expert() ? format_text("expert {} ", weight.expert) : std::string(),
                        differences[i], traits(weight.format).name, traits(pairs[i].reference->format).name,
                        allowed_difference(weight, *pairs[i].reference)));
    }
}

}  // namespace

void check_reference(const Opened& opened, const Opened& reference, const Reading& reading, Report& report) {
    report.stages.emplace_back("reference");
    const std::vector<Pair> pairs = paired(opened, reference, report);
    const weights::Reader reader(opened.checkpoint);
    const weights::Reader other_reader(reference.checkpoint);
    std::vector<double> differences(pairs.size());
    run_in_groups(
        reading, std::ssize(pairs), [&](int64_t i) { return pairs[i].weight->bytes(); },
        [&](int64_t i) {
            differences[i] = difference(reader, *pairs[i].weight, other_reader, *pairs[i].reference,
                                        pairs[i].weight->rows);
        });
    report_wrong(pairs, differences, reader, other_reader, report);
}

}  // namespace minim::check
