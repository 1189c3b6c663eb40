// SPDX-License-Identifier: Apache-2.0
#include "engine/importance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "base/utf8.h"
#include "checkpoint/printable.h"

namespace minim::engine {
namespace {

using checkpoint::ImportanceData;
using checkpoint::ImportanceEntry;
using runtime::Input;
using runtime::InputSums;

constexpr float k_few_rows = 16.0F;
constexpr int64_t k_max_chunk = int64_t{1} << 30;

// Appends a name of a file, which may be any bytes, as a JSON string.
void append_name(std::string& out, std::string_view name) {
    size_t at = 0;
    size_t length = 1;
    while (at < name.size() && (length = utf8_sequence_length(name.substr(at))) > 0) at += length;
    json::append_quoted(out, length > 0 ? std::string(name) : checkpoint::printable(name));
}

// Returns the weights of a layer that an input goes to.
std::span<const std::string_view> weights_with(Input input, const model::Config& config, int64_t layer) {
    static constexpr std::string_view k_attention[] = {"attn_k", "attn_q", "attn_v"};
    static constexpr std::string_view k_sparse[] = {"attn_k", "attn_q", "attn_v", "indexer.k_proj",
                                                    "indexer.q_proj"};
    static constexpr std::string_view k_projection[] = {"attn_output"};
    static constexpr std::string_view k_experts[] = {"ffn_gate_exps", "ffn_up_exps"};
    static constexpr std::string_view k_middle[] = {"ffn_down_exps"};
    static constexpr std::string_view k_shared[] = {"ffn_gate_shexp", "ffn_up_shexp"};
    static constexpr std::string_view k_shared_middle[] = {"ffn_down_shexp"};
    static constexpr std::string_view k_dense[] = {"ffn_gate", "ffn_up"};
    static constexpr std::string_view k_dense_middle[] = {"ffn_down"};
    const bool has_experts = config.has_experts(layer);
    switch (input) {
        case Input::attention:
            if (config.is_sparse(layer)) return k_sparse;
            return k_attention;
        case Input::projection:
            return k_projection;
        case Input::experts:
            return k_experts;
        case Input::middle:
            return k_middle;
        case Input::dense:
            if (has_experts) return k_shared;
            return k_dense;
        case Input::dense_middle:
            if (has_experts) return k_shared_middle;
            return k_dense_middle;
        case Input::head:
            break;
    }
    return {};
}

ImportanceEntry entry_of(std::string name, const InputSums& sums) {
    ImportanceEntry entry;
    entry.name = std::move(name);
    entry.columns = sums.columns;
    entry.matrices = sums.matrices();
    const auto to_float = [](auto value) { return static_cast<float>(value); };
    std::ranges::transform(sums.squares, std::back_inserter(entry.sums), to_float);
    std::ranges::transform(sums.rows, std::back_inserter(entry.counts), to_float);
    std::ranges::transform(sums.norms, std::back_inserter(entry.out_norm), to_float);
    entry.in_max = sums.peaks;
    return entry;
}

// Returns the mean squares of an entry: 0 for matrices without rows.
std::vector<float> normalised(const ImportanceEntry& entry) {
    std::vector<float> values = entry.sums;
    for (int64_t m = 0; m < entry.matrices; ++m) {
        const float count = entry.has_counts() ? entry.counts[m] : static_cast<float>(entry.calls);
        for (int64_t i = m * entry.columns; i < (m + 1) * entry.columns; ++i)
            values[i] /= std::max(count, 1.0F);
    }
    return values;
}

// Returns the share of the values, from the largest on, that have 90 % of the sum.
double share_of_90_percent(std::vector<float> values, double sum) {
    std::ranges::sort(values, std::greater());
    double so_far = 0.0;
    size_t n = 0;
    while (n < values.size() && so_far < 0.9 * sum) so_far += static_cast<double>(values[n++]);
    return static_cast<double>(n) / static_cast<double>(values.size());
}

std::string tensor_json(const ImportanceEntry& entry) {
    const std::vector<float> values = normalised(entry);
    double sum = 0.0;
    for (const float value : values) sum += static_cast<double>(value);
    std::string name;
    append_name(name, entry.name);
    std::string rows = "null";
    if (entry.has_counts()) {
        std::vector<float> counts = entry.counts;
        std::ranges::sort(counts);
        const auto few = std::ranges::lower_bound(counts, k_few_rows) - counts.begin();
        rows = format_text(R"({{"least": {}, "median": {}, "most": {}, "below_16": {}}})", counts.front(),
                           counts[counts.size() / 2], counts.back(), few);
    }
    return format_text(
        R"({{"name": {}, "columns": {}, "matrices": {}, "without_data": {}, "mean": {}, "max": {}, )"
        R"("share_90": {}, "rows": {}}})",
        name, entry.columns, entry.matrices, std::ranges::count(entry.counts, 0.0F),
        sum / static_cast<double>(values.size()), *std::ranges::max_element(values),
        share_of_90_percent(values, sum), rows);
}

}  // namespace

Importance::Importance(std::shared_ptr<const model::Model> model, const ImportanceParams& params)
    : model_(std::move(model)), params_(params) {
    if (params.chunk_size < 1 || params.chunk_size > k_max_chunk)
        fail(Status::invalid, "a chunk of {} tokens is not possible", params.chunk_size);
    model_->forward().refuse_observing();
    const model::Config& config = model_->config();
    std::vector<runtime::LayerFeedForwards> layers;
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
        const bool has_experts = config.has_experts(layer);
        layers.push_back({has_experts, has_experts ? config.shared_ff : config.dense_ff});
    }
    inputs_ = std::make_shared<runtime::ObservedInputs>(model_->shape(), layers, params.with_head,
                                                        params.chunk_size, model_->host_backend());
}

Importance::Importance(ImportanceData data, int64_t chunk_size) : read_(std::move(data)) {
    if (chunk_size > 0) checkpoint::give_counts(read_, chunk_size);
}

ImportanceData Importance::collected() const {
    ImportanceData data;
    if (!params_.dataset.empty()) data.datasets.push_back(params_.dataset);
    data.chunk_size = params_.chunk_size;
    data.chunks = inputs_->n_rows() / params_.chunk_size;
    data.text_hash = params_.text_hash;
    data.model_hash = model_->fingerprint();
    inputs_->for_each([&](int64_t layer, Input input, const InputSums& sums) {
        if (input == Input::head) data.entries.push_back(entry_of("output.weight", sums));
        for (const std::string_view weight : weights_with(input, model_->config(), layer))
            data.entries.push_back(entry_of(format_text("blk.{}.{}.weight", layer, weight), sums));
    });
    std::ranges::sort(data.entries, {}, &ImportanceEntry::name);
    return data;
}

ImportanceData Importance::data() const {
    const std::lock_guard lock(mutex_);
    if (inputs_ == nullptr) return read_;
    ImportanceData all = collected();
    if (!read_.entries.empty()) checkpoint::merge_importance(all, read_);
    return all;
}

void Importance::merge(const Importance& other) {
    ImportanceData more = other.data();
    ImportanceData sum;
    if (inputs_ != nullptr) {  // refuses here what data() could not merge
        const std::lock_guard lock(mutex_);
        sum = collected();
        checkpoint::merge_importance(sum, more);
    }
    const std::lock_guard lock(mutex_);
    if (read_.entries.empty()) {
        for (const ImportanceEntry& entry : more.entries) {
            if (!entry.has_counts())
                fail(Status::invalid,
                     "importance entry {} has no counts: say the chunk size of the older file",
                     checkpoint::printable(entry.name));
        }
        read_ = std::move(more);
    } else {
        checkpoint::merge_importance(read_, more);
    }
}

void Importance::save(const std::string& path, checkpoint::ImportanceForm form) const {
    checkpoint::write_importance(path, data(), form);
}

std::string to_json(const ImportanceData& data) {
    const auto hash = [](uint64_t value) {
        return value == 0 ? std::string("null") : format_text(R"("{:016x}")", value);
    };
    std::string datasets;
    for (const std::string& dataset : data.datasets) {
        if (!datasets.empty()) datasets += ", ";
        append_name(datasets, dataset);
    }
    std::string tensors;
    for (const ImportanceEntry& entry : data.entries) {
        if (!tensors.empty()) tensors += ",\n  ";
        tensors += tensor_json(entry);
    }
    return format_text(
        R"({{"format": "{}", "datasets": [{}], "chunks": {}, "chunk_size": {}, "text_hash": {}, )"
        "\"model_hash\": {}, \"tensors\": [\n  {}]}}\n",
        data.form == checkpoint::ImportanceForm::gguf ? "gguf" : "dat", datasets, data.chunks,
        data.chunk_size == 0 ? std::string("null") : format_text("{}", data.chunk_size), hash(data.text_hash),
        hash(data.model_hash), tensors);
}

}  // namespace minim::engine
