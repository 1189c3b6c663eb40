// SPDX-License-Identifier: Apache-2.0
#include "convert/importance.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace minim::convert {
namespace {

using checkpoint::ImportanceEntry;

// Rows of the mean of all experts that are added to those of each expert.
constexpr double k_prior_rows = 16;

uint64_t hash_of_file(const std::string& path) {
    const File file(path);
    std::vector<std::byte> bytes(file.size());
    file.read_at(0, bytes);
    return hash_bytes(bytes);
}

// Returns the mean square of each column over the rows of all matrices; zeros without rows.
std::vector<double> mean_of_all(const ImportanceEntry& entry) {
    std::vector<double> mean(entry.columns);
    double n_rows = 0;
    for (int64_t m = 0; m < entry.matrices; ++m) {
        n_rows += static_cast<double>(entry.counts[m]);
        for (int64_t c = 0; c < entry.columns; ++c)
            mean[c] += static_cast<double>(entry.sums[m * entry.columns + c]);
    }
    if (n_rows > 0)
        for (double& value : mean) value /= n_rows;
    return mean;
}

}  // namespace

Importance::Importance(const std::string& path, std::vector<std::string> include,
                       std::vector<std::string> exclude)
    : file_name_(std::filesystem::path(path).filename().string()),
      include_(std::move(include)),
      exclude_(std::move(exclude)),
      data_(checkpoint::read_importance(path)),
      hash_(hash_of_file(path)) {
    for (const auto* texts : {&include_, &exclude_}) {
        hash_ = hash_bytes({}, hash_);
        for (const std::string& text : *texts) hash_ = hash_bytes(std::as_bytes(std::span(text)), hash_);
    }
}

const ImportanceEntry* Importance::find(std::string_view tensor) const {
    const auto has_one_of = [&](const std::vector<std::string>& texts) {
        return std::ranges::any_of(
            texts, [&](const std::string& text) { return tensor.find(text) != std::string_view::npos; });
    };
    if ((!include_.empty() && !has_one_of(include_)) || has_one_of(exclude_)) return nullptr;
    return data_.find(tensor);
}

void Importance::check(const SourceTensor& tensor) const {
    if (const ImportanceEntry* entry = find(tensor.name))
        checkpoint::check_importance_size(*entry, tensor.n_columns, tensor.n_matrices_of_stack());
}

std::vector<float> Importance::of_matrix(const SourceTensor& tensor, int64_t matrix) const {
    const ImportanceEntry* entry = find(tensor.name);
    if (entry == nullptr) return {};
    const int64_t n_columns = tensor.n_columns;
    // An entry with the values of one matrix is for all of them.
    const bool is_shared = std::ssize(entry->sums) == n_columns;
    const int64_t number = is_shared ? 0 : tensor.number_in_stack(matrix);
    const float* sums = entry->sums.data() + number * n_columns;
    if (!entry->has_counts()) return {sums, sums + n_columns};
    const std::vector<double> mean = mean_of_all(*entry);
    const double n_rows = static_cast<double>(entry->counts[number]);
    std::vector<float> weights(n_columns);
    for (int64_t c = 0; c < n_columns; ++c)
        weights[c] = static_cast<float>((static_cast<double>(sums[c]) + k_prior_rows * mean[c]) /
                                        (n_rows + k_prior_rows));
    if (std::ranges::all_of(weights, [](float weight) { return weight == 0.0F; })) return {};
    return weights;
}

float Importance::input_peak(const SourceTensor& tensor, int64_t matrix) const {
    const ImportanceEntry* entry = find(tensor.name);
    if (entry == nullptr || entry->in_max.empty()) return 0.0F;
    const auto number = static_cast<size_t>(tensor.number_in_stack(matrix));
    const float own = entry->in_max[entry->in_max.size() == 1 ? 0 : number];
    return own > 0.0F ? own : std::ranges::max(entry->in_max);
}

std::vector<double> Importance::expert_norms(std::string_view stack, int64_t n_expert) const {
    const ImportanceEntry* entry = data_.find(stack);
    if (entry == nullptr || entry->out_norm.empty() || !entry->has_counts())
        fail(Status::invalid,
             "the importance data {} has no norms of the outputs of {}: collect it with `minim imatrix`",
             file_name_, shown(stack));
    if (std::ssize(entry->out_norm) != n_expert || std::ssize(entry->counts) != n_expert)
        fail(Status::invalid, "the importance data {} has the norms of {} experts of {}; the model has {}",
             file_name_, entry->out_norm.size(), shown(stack), n_expert);
    std::vector<double> means;
    for (int64_t e = 0; e < n_expert; ++e) {
        const auto n_rows = static_cast<double>(entry->counts[e]);
        means.push_back(n_rows > 0 ? static_cast<double>(entry->out_norm[e]) / n_rows : -1.0);
    }
    return means;
}

std::string Importance::dataset() const {
    return data_.datasets.empty() ? std::string() : data_.datasets.front();
}

}  // namespace minim::convert
