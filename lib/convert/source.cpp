// SPDX-License-Identifier: Apache-2.0
#include "convert/source.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "checkpoint/printable.h"
#include "layouts/layout.h"
#include "model/bind.h"
#include "model/gguf_values.h"
#include "model/headers.h"
#include "model/roles.h"
#include "model/tensor_names.h"

namespace minim::convert {
namespace {

namespace names = model::names;
using checkpoint::Checkpoint;
using checkpoint::Tensor;
using model::Role;
using weights::WeightSpec;

constexpr std::string_view k_weight = ".weight";

// llama-quantize leaves out the same matrices.
bool stays_float(std::string_view name) {
    return name.ends_with(".ffn_gate_inp.weight") || name.ends_with(".indexer.q_proj.weight") ||
           name.ends_with(".indexer.k_proj.weight");
}

// Returns whether `quantize` encodes a tensor.
bool is_encoded(std::string_view name, size_t n_dims) {
    return name.ends_with(k_weight) && (n_dims == 2 || n_dims == 3) && !name.ends_with("norm.weight") &&
           !stays_float(name);
}

// A tensor of GGUF as matrices: those of a stack of three dimensions, else one.
SourceTensor of_gguf(const Checkpoint& checkpoint, const Tensor& tensor) {
    SourceTensor source;
    source.name = tensor.name;
    source.shape = tensor.shape;
    source.type_name = tensor.type_name;
    source.format = *tensor.format;
    source.n_columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    source.row_bytes = row_bytes(source.format, source.n_columns);
    const auto product = [&](auto begin, auto end) {
        return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
    };
    const size_t n_dims = tensor.shape.size();
    const int64_t n_rows = n_dims < 2 ? 1 : product(tensor.shape.begin(), tensor.shape.end() - 1);
    const int64_t n_matrices = n_dims == 3 && tensor.shape.front() > 0 ? tensor.shape.front() : 1;
    source.n_rows = n_rows / n_matrices;
    source.is_matrix = is_encoded(tensor.name, n_dims) && traits(source.format).decode_row != nullptr;
    source.stays_float = stays_float(tensor.name);
    const Tensor* factor = nullptr;
    if (source.is_matrix) {
        const std::string stem = tensor.name.substr(0, tensor.name.size() - k_weight.size());
        factor = checkpoint.find(stem + ".scale");
        if (factor != nullptr && factor->format != Format::f32) factor = nullptr;
    }
    const auto n_factors = factor == nullptr ? 0 : static_cast<int64_t>(factor->bytes / sizeof(float));
    if (n_factors > 1 && n_factors != n_matrices)
        fail_file(Reason::shape, "tensor {} has {} scales for {} matrices", shown(tensor.name), n_factors,
                  n_matrices);
    source.has_factors = n_factors > 0;
    for (int64_t i = 0; i < n_matrices; ++i) {
        WeightSpec spec;
        spec.format = source.format;
        spec.rows = source.n_rows;
        spec.cols = source.n_columns;
        spec.row_bytes = source.row_bytes;
        spec.source.tensor = &tensor;
        spec.source.offset = static_cast<uint64_t>(i * source.n_rows * source.row_bytes);
        spec.source.factor = n_factors > 0 ? factor : nullptr;
        spec.source.factor_index = n_factors > 1 ? i : 0;
        source.matrices.push_back(std::move(spec));
    }
    return source;
}

void add_gguf_tensors(Source& source) {
    const Checkpoint& checkpoint = source.checkpoint;
    source.part_counts.resize(checkpoint.files().size());
    for (const Tensor& tensor : checkpoint.tensors()) {
        ++source.part_counts[tensor.part];
        source.tensors.push_back(of_gguf(checkpoint, tensor));
    }
    for (const SourceTensor& tensor : source.tensors) {
        if (!tensor.has_factors) continue;
        const std::string& factors = tensor.matrices.front().source.factor->name;
        const auto found = std::ranges::find(source.tensors, factors, &SourceTensor::name);
        found->factors_of = tensor.name;
    }
}

std::string_view type_name_of(const WeightSpec& spec) {
    if (spec.source.assembled == nullptr) return spec.source.tensor->type_name;
    return spec.format == Format::fp8_e4m3_b128 ? "F8_E4M3" : traits(spec.format).name;
}

// Returns whether reader.factor() may be another number than 1.
bool may_have_factor(const WeightSpec& spec) {
    if (spec.source.factor != nullptr) return true;
    if (spec.source.assembled == nullptr) return false;
    // Integers with scales of BF16 have one too (layouts/integers.cpp).
    return spec.format == Format::nvfp4 || spec.source.assembled->method == layouts::Method::integers;
}

// The weights of a folder by role and layer.
class Weights {
  public:
    explicit Weights(std::vector<WeightSpec> all) {
        for (WeightSpec& spec : all) by_role_[{spec.role, spec.layer}].push_back(std::move(spec));
    }

    // Moves out a tensor that is there, with the name that it has in GGUF.
    void take(Role role, int64_t layer, std::string name, std::vector<SourceTensor>& to) {
        const auto found = by_role_.find({static_cast<int32_t>(role), static_cast<int32_t>(layer)});
        if (found == by_role_.end()) return;
        SourceTensor source;
        source.name = std::move(name);
        source.matrices = std::move(found->second);
        const WeightSpec& first = source.matrices.front();
        source.format = first.format;
        source.type_name = type_name_of(first);
        source.n_columns = first.cols;
        source.n_rows = first.rows;
        source.row_bytes = first.row_bytes;
        source.has_factors = may_have_factor(first);
        if (first.use == weights::Use::vector) {
            source.shape = {first.cols};
        } else if (first.is_expert()) {
            source.shape = {std::ssize(source.matrices), first.rows, first.cols};
        } else {
            source.shape = {first.rows, first.cols};
        }
        source.is_matrix = is_encoded(source.name, source.shape.size());
        source.stays_float = stays_float(source.name);
        to.push_back(std::move(source));
    }

  private:
    std::map<std::pair<int32_t, int32_t>, std::vector<WeightSpec>> by_role_;
};

// The order of llama.cpp's converter: as the folder's shards have them.
std::vector<SourceTensor> in_order_of_gguf(std::vector<WeightSpec> all, const model::Config& config) {
    Weights weights(std::move(all));
    std::vector<SourceTensor> tensors;
    weights.take(Role::output, -1, names::output()[0], tensors);
    weights.take(Role::embedding, -1, names::embedding()[0], tensors);
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
        const auto dense = [&](Role role, names::Part part) {
            weights.take(role, layer, names::layer(layer, part)[0], tensors);
        };
        const auto experts = [&](Role role, std::string_view part) {
            weights.take(role, layer, names::stacked_expert(layer, part), tensors);
        };
        const auto feed_forward = [&](Role role, names::ExpertPart part) {
            const auto spellings =
                config.has_experts(layer) ? names::shared_expert(layer, part) : names::dense(layer, part);
            weights.take(role, layer, spellings[0], tensors);
        };
        dense(Role::router_bias, names::Part::router_bias);
        experts(Role::gate, "gate");
        experts(Role::down, "down");
        experts(Role::up, "up");
        dense(Role::router, names::Part::router);
        feed_forward(Role::dense_down, names::ExpertPart::down);
        feed_forward(Role::dense_gate, names::ExpertPart::gate);
        feed_forward(Role::dense_up, names::ExpertPart::up);
        dense(Role::attn_norm, names::Part::attn_norm);
        dense(Role::ffn_norm, names::Part::ffn_norm);
        dense(Role::index_k_norm, names::Part::index_k_norm);
        dense(Role::index_k, names::Part::index_k);
        dense(Role::index_q_norm, names::Part::index_q_norm);
        dense(Role::index_q, names::Part::index_q);
        dense(Role::k_norm, names::Part::attn_k_norm);
        dense(Role::wk, names::Part::attn_k);
        dense(Role::wo, names::Part::attn_output);
        dense(Role::q_norm, names::Part::attn_q_norm);
        dense(Role::wq, names::Part::attn_q);
        dense(Role::wv, names::Part::attn_v);
    }
    weights.take(Role::output_norm, -1, names::output_norm()[0], tensors);
    return tensors;
}

bool is_norm(const WeightSpec& spec) {
    return spec.use == weights::Use::vector && spec.role != static_cast<int32_t>(Role::router_bias);
}

}  // namespace

std::string shown(std::string_view name) {
    const std::string quoted = checkpoint::printable(name, SIZE_MAX);
    const bool is_plain = std::string_view(quoted).substr(1, quoted.size() - 2) == name;
    return is_plain ? std::string(name) : quoted;
}

std::string Source::key(std::string_view name) const {
    return format_text("{}.{}", config.family == model::Family::m2 ? "minimax-m2" : "minimax-m3", name);
}

Source open_source(const std::string& path, const Logger& log, bool binds) {
    Source source{Checkpoint::open(path, log), {}, {}, {}};
    const Checkpoint& checkpoint = source.checkpoint;
    if (source.is_gguf() && !binds) {
        if (checkpoint.metadata().string("general.architecture") == "minimax-m3")
            source.config.family = model::Family::m3;
        const auto count = [&](std::string_view name) {
            return model::whole_number(checkpoint.metadata(), source.key(name)).value_or(0);
        };
        source.config.n_layer = count("block_count");
        source.config.n_dense_layer = count("leading_dense_block_count");
        add_gguf_tensors(source);
        return source;
    }
    source.config = model::read_config(checkpoint, log);
    std::vector<WeightSpec> weights = model::bind_weights(checkpoint, source.config, log);
    if (binds && source.config.family == model::Family::m3)
        for (WeightSpec& weight : weights)
            if (is_norm(weight)) weight.source.added -= 1.0F;
    source.tensors = in_order_of_gguf(std::move(weights), source.config);
    return source;
}

}  // namespace minim::convert
