// SPDX-License-Identifier: Apache-2.0
#include "convert/experts.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/format_text.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/printable.h"
#include "checkpoint/text_file.h"
#include "model/gguf_values.h"
#include "model/tensor_names.h"

namespace minim::convert {
namespace {

constexpr std::string_view k_experts_mark = "_exps.";
constexpr std::string_view k_router_name = ".ffn_gate_inp.weight";
constexpr std::string_view k_bias_name = ".exp_probs_b.bias";

struct ExpertCounts {
    int64_t n_layer = 0;
    int64_t n_dense_layer = 0;
    int64_t n_expert = 0;
    int64_t n_used = 0;
};

// A GGUF file that is not bound has them in its metadata alone.
ExpertCounts counts_of(const Source& source) {
    const model::Config& config = source.config;
    if (config.n_expert > 0)
        return {config.n_layer, config.n_dense_layer, config.n_expert, config.n_expert_used};
    const auto count = [&](std::string_view name) {
        return model::whole_number(source.checkpoint.metadata(), source.key(name)).value_or(0);
    };
    return {config.n_layer, config.n_dense_layer, count("expert_count"), count("expert_used_count")};
}

// ---- which

std::optional<int64_t> number_in(std::string_view text) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

std::vector<std::vector<int64_t>> layers_in_file(const std::string& path, const ExpertCounts& counts) {
    constexpr uint64_t k_largest_list = uint64_t{64} << 20;
    const std::string shown_path = checkpoint::printable(path);
    const json::Value file =
        json::parse(checkpoint::read_text_file(path, k_largest_list), shown_path, json::Source::file);
    const json::Value* layers = json::find(&file, "layers");
    if (layers == nullptr || !layers->is_array())
        fail_file(Reason::format, "{}: there is no list 'layers' of the experts of each layer", shown_path);
    if (std::ssize(layers->items) != counts.n_layer)
        fail(Status::invalid, "{} lists the experts of {} layers; the model has {}", shown_path,
             layers->items.size(), counts.n_layer);
    std::vector<std::vector<int64_t>> kept;
    for (const json::Value& list : layers->items) {
        std::vector<int64_t> ids;
        for (const json::Value& item : list.items) {
            const std::optional<int64_t> id = item.is_integer() ? json::to_int64(item) : std::nullopt;
            if (!id || *id < 0 || *id >= counts.n_expert)
                fail(Status::invalid, "{}: layer {} keeps the expert {}; the model has {}", shown_path,
                     kept.size(), json::to_text(item), counts.n_expert);
            ids.push_back(*id);
        }
        std::ranges::sort(ids);
        if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end())
            fail(Status::invalid, "{}: layer {} keeps the expert {} twice", shown_path, kept.size(), *twice);
        const auto layer = std::ssize(kept);
        if (layer < counts.n_dense_layer && !ids.empty())
            fail(Status::invalid, "{}: layer {} keeps {} experts; it has none", shown_path, layer,
                 ids.size());
        if (layer > counts.n_dense_layer && ids.size() != kept.back().size())
            fail(Status::invalid, "{}: layer {} keeps {} experts, layer {} {}; all must keep as many",
                 shown_path, layer, ids.size(), counts.n_dense_layer, kept.back().size());
        kept.push_back(std::move(ids));
    }
    return kept;
}

// Returns the `n_kept` most useful experts of a layer in ascending order.
std::vector<int64_t> best_of_layer(const Importance& importance, int64_t layer, int64_t n_expert,
                                   int64_t n_kept) {
    const std::string name = model::names::stacked_expert(layer, "down");
    const std::vector<double> usefulness = importance.expert_norms(name, n_expert);
    std::vector<int64_t> ids(n_expert);
    std::iota(ids.begin(), ids.end(), int64_t{0});
    std::ranges::stable_sort(ids, std::greater<>(), [&](int64_t id) { return usefulness[id]; });
    ids.resize(n_kept);
    std::ranges::sort(ids);
    return ids;
}

// ---- cuts

// Returns some rows of a matrix, or elements of a vector, as matrices of one row each.
SourceTensor some_rows(const SourceTensor& whole, const std::vector<int64_t>& ids, bool is_vector) {
    SourceTensor part = whole;
    part.matrices.clear();
    part.n_rows = 1;
    const weights::WeightSpec& all = whole.matrices.front();
    if (is_vector) {
        part.n_columns = 1;
        part.row_bytes = row_bytes(whole.format, 1);
    }
    for (const int64_t id : ids) {
        weights::WeightSpec one = all;
        one.rows = 1;
        one.cols = part.n_columns;
        one.row_bytes = part.row_bytes;
        // Vectors may have another type in the file.
        const int64_t stored_bytes = is_vector ? row_bytes(*all.source.tensor->format, 1) : whole.row_bytes;
        one.source.offset += static_cast<uint64_t>(id * stored_bytes);
        part.matrices.push_back(std::move(one));
    }
    return part;
}

SourceTensor some_matrices(const SourceTensor& stack, const std::vector<int64_t>& ids) {
    SourceTensor part = stack;
    part.matrices.clear();
    for (const int64_t id : ids) part.matrices.push_back(stack.matrices[id]);
    return part;
}

int64_t n_experts_in(const SourceTensor& tensor) {
    return tensor.shape.empty() ? 0 : tensor.shape.front();
}

bool is_of_experts(const SourceTensor& tensor) {
    return tensor.name.find(k_experts_mark) != std::string::npos || tensor.name.ends_with(k_router_name) ||
           tensor.name.ends_with(k_bias_name);
}

}  // namespace

std::string KeptExperts::text() const {
    return format_text("{} of {}", n_kept(), n_before);
}

KeptExperts choose_experts(const std::string& number_or_file, const Source& source,
                           const Importance* importance) {
    const ExpertCounts counts = counts_of(source);
    KeptExperts kept{{}, counts.n_expert};
    if (const std::optional<int64_t> number = number_in(number_or_file)) {
        if (*number < 1 || *number > counts.n_expert)
            fail(Status::invalid, "{} experts cannot be kept; the model has {}", *number, counts.n_expert);
        if (importance == nullptr)
            fail(Status::invalid,
                 "which {} experts are kept is decided by importance data, and there is none", *number);
        kept.layers.resize(std::min(counts.n_dense_layer, counts.n_layer));
        for (int64_t layer = std::ssize(kept.layers); layer < counts.n_layer; ++layer)
            kept.layers.push_back(best_of_layer(*importance, layer, counts.n_expert, *number));
    } else {
        kept.layers = layers_in_file(number_or_file, counts);
    }
    if (kept.n_kept() < std::max<int64_t>(counts.n_used, 1))
        fail(Status::invalid, "{} experts are too few: a token uses {}", kept.n_kept(), counts.n_used);
    return kept;
}

void cut_experts(const KeptExperts& kept, Source& source) {
    for (SourceTensor& tensor : source.tensors) {
        const int64_t layer = model::names::layer_of(tensor.name);
        if (layer < 0 || layer >= std::ssize(kept.layers) || !is_of_experts(tensor)) continue;
        const std::vector<int64_t>& ids = kept.layers[layer];
        const int64_t n_expert = n_experts_in(tensor);
        if (n_expert != kept.n_before)
            fail(Status::unsupported, "tensor {} is of {} experts, the model has {}: it cannot be cut",
                 shown(tensor.name), n_expert, kept.n_before);
        const size_t n_dims = tensor.shape.size();
        tensor = n_dims == 3 ? some_matrices(tensor, ids) : some_rows(tensor, ids, n_dims == 1);
        tensor.shape.front() = std::ssize(ids);
        tensor.experts = ids;
        tensor.n_stacked = n_expert;
    }
    if (source.config.n_expert > 0) source.config.n_expert = kept.n_kept();
    source.kept_experts = kept.text();
    for (const std::vector<int64_t>& ids : kept.layers)
        source.kept_hash = hash_bytes(std::as_bytes(std::span(ids)), source.kept_hash);
}

}  // namespace minim::convert
