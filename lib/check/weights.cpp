// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <span>

#include "base/error.h"
#include "base/format_text.h"
#include "check/files.h"
#include "format/format.h"
#include "weights/reader.h"

namespace minim::check {
namespace {

using weights::Use;
using weights::WeightSpec;

constexpr int64_t k_piece_numbers = int64_t{1} << 19;
// Trained matrices of one role differ by less: by 4 among the layers and experts of the released models.
constexpr double k_largest_ratio = 16.0;

// Some rows of a weight.
struct RowsToRead {
    size_t weight = 0;
    int64_t first = 0;
    int64_t count = 0;
};

struct WeightFigures {
    double sum_of_squares = 0.0;
    std::string why_bad;  // where a number is none; "": nowhere
};

std::vector<RowsToRead> divided(std::span<const WeightSpec> all) {
    std::vector<RowsToRead> pieces;
    for (size_t i = 0; i < all.size(); ++i) {
        const int64_t n_piece = std::max<int64_t>(k_piece_numbers / all[i].cols, 1);
        for (int64_t first = 0; first < all[i].rows; first += n_piece)
            pieces.push_back({i, first, std::min(n_piece, all[i].rows - first)});
    }
    return pieces;
}

std::string expert_text(const WeightSpec& weight) {
    return weight.is_expert() ? format_text(" of expert {}", weight.expert) : std::string();
}

// Decodes the rows.
WeightFigures figures_of(const weights::Reader& reader, const WeightSpec& weight, const RowsToRead& rows) {
    WeightFigures figures;
    try {
        std::vector<std::byte> bytes(static_cast<size_t>(rows.count * weight.row_bytes));
        std::vector<float> values(static_cast<size_t>(rows.count * weight.cols));
        reader.read(weight, static_cast<uint64_t>(rows.first * weight.row_bytes), bytes);
        decode_rows(weight.format, bytes.data(), rows.count, weight.row_bytes, weight.cols, values.data());
        for (const float value : values)
            figures.sum_of_squares += static_cast<double>(value) * static_cast<double>(value);
        if (std::isfinite(figures.sum_of_squares)) return figures;
        const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
        const int64_t at = bad - values.begin();
        figures.why_bad = format_text("{} in row {}, column {}{}", std::isnan(*bad) ? "NaN" : "infinity",
                                      rows.first + at / weight.cols, at % weight.cols, expert_text(weight));
    } catch (const Error& error) {
        if (error.status() != Status::format || error.reason() == Reason::truncated) throw;
        figures.why_bad = error.what();  // scales of assembled matrices are checked while they are read
    }
    return figures;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// Compares the sizes of numbers of all matrices and experts of a role. `rms`: of each weight; negative: not known.
void compare_sizes(std::span<const WeightSpec> all, std::span<const double> rms, Report& report) {
    std::map<int32_t, std::vector<double>> of_role;
    for (size_t i = 0; i < all.size(); ++i)
        if (all[i].use != Use::vector && rms[i] > 0.0) of_role[all[i].role].push_back(rms[i]);
    std::map<int32_t, double> medians;
    for (const auto& [role, values] : of_role) medians[role] = median(values);
    for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].use == Use::vector || rms[i] < 0.0) continue;
        const std::string& name = all[i].source.tensor->name;
        const std::string what = all[i].is_expert() ? format_text("expert {}", all[i].expert) : "the matrix";
        if (rms[i] == 0.0) {
            report.fault(FaultClass::range, name, format_text("{} is zero", what));
            continue;
        }
        const double usual = medians[all[i].role];
        const double ratio = rms[i] / usual;
        if (ratio > k_largest_ratio || ratio < 1.0 / k_largest_ratio)
            report.fault(FaultClass::range, name,
                         format_text("the root mean square of {} is {:.3g}; others of its role have {:.3g}",
                                     what, rms[i], usual));
    }
}

}  // namespace

void check_weights(const Opened& opened, const Reading& reading, Report& report) {
    report.stages.emplace_back("weights");
    const std::span<const WeightSpec> all = opened.weights;
    const weights::Reader reader(opened.checkpoint);
    const std::vector<RowsToRead> pieces = divided(all);
    std::vector<WeightFigures> figures(all.size());
    std::mutex mutex;  // of `figures`
    const auto bytes = [&](int64_t i) {
        return static_cast<uint64_t>(pieces[i].count * all[pieces[i].weight].row_bytes);
    };
    run_in_groups(reading, std::ssize(pieces), bytes, [&](int64_t i) {
        const RowsToRead& rows = pieces[i];
        WeightFigures part = figures_of(reader, all[rows.weight], rows);
        const std::lock_guard lock(mutex);
        figures[rows.weight].sum_of_squares += part.sum_of_squares;
        if (figures[rows.weight].why_bad.empty()) figures[rows.weight].why_bad = std::move(part.why_bad);
    });

    std::vector<double> rms(all.size(), -1.0);
    const std::string* last_bad = nullptr;  // one fault for a tensor with several bad experts in a row
    for (size_t i = 0; i < all.size(); ++i) {
        std::string why = std::move(figures[i].why_bad);
        double factor = 1.0;
        try {
            factor = static_cast<double>(reader.factor(all[i]));
            if (why.empty() && !std::isfinite(factor)) why = format_text("a factor that is {}", factor);
        } catch (const Error& error) {
            if (error.status() != Status::format) throw;
            if (why.empty()) why = error.what();
        }
        const std::string& name = all[i].source.tensor->name;
        if (why.empty()) {
            const double mean = figures[i].sum_of_squares / static_cast<double>(all[i].rows * all[i].cols);
            rms[i] = std::abs(factor) * std::sqrt(mean);
        } else if (last_bad == nullptr || *last_bad != name) {
            report.fault(FaultClass::nan, name, format_text("has {}; weights are finite numbers", why));
            last_bad = &name;
        }
    }
    compare_sizes(all, rms, report);
}

}  // namespace minim::check
