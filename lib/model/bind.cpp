// SPDX-License-Identifier: Apache-2.0
// One long file: a binder records which tensors were used over all spellings and layouts, so that leftovers can be
// refused.
#include "model/bind.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "checkpoint/printable.h"
#include "layouts/layout.h"
#include "model/roles.h"
#include "model/tensor_names.h"
#include "weights/narrow.h"

namespace minim::model {
namespace {

using checkpoint::Checkpoint;
using checkpoint::shape_text;
using checkpoint::Tensor;
using weights::Use;
using weights::WeightSpec;

// Throws unsupported if a tensor's name shows a quantisation that is not supported.
void refuse_other_quantisations(const Checkpoint& checkpoint) {
    if (checkpoint.container() == checkpoint::Container::gguf) return;
    for (const Tensor& tensor : checkpoint.tensors()) {
        const std::string_view what = layouts::quantisation_of_tensor(tensor.name);
        if (!what.empty())
            fail(Status::unsupported, "a folder quantised by {} (tensor {}) is not supported", what,
                 checkpoint::printable(tensor.name));
    }
}

// Returns the prefix that a folder's names of the language model have. Throws format if some have another one.
names::Prefix prefix_of(const Checkpoint& checkpoint) {
    names::Prefix prefix = names::Prefix::none;
    const Tensor* first = nullptr;
    for (const Tensor& tensor : checkpoint.tensors()) {
        const names::Prefix own = names::without_prefix(tensor.name).second;
        if (own == names::Prefix::none) continue;
        if (first != nullptr && own != prefix)
            fail_file(Reason::value, "tensors {} and {} have different prefixes",
                      checkpoint::printable(first->name), checkpoint::printable(tensor.name));
        first = &tensor;
        prefix = own;
    }
    return prefix;
}

// Finds tensors by name, without the prefix that the folder has, checks their shapes, and remembers which were used.
class Binder {
  public:
    Binder(const Checkpoint& checkpoint, const Config& config)
        : checkpoint_(checkpoint),
          packing_(config.packing),
          norm_added_(config.adds_one_to_norms ? 1.0F : 0.0F),
          prefix_(config.family == Family::m3 ? prefix_of(checkpoint) : names::Prefix::none) {}

    const Tensor* find(const std::string& name) {
        const Tensor* tensor = name.empty() ? nullptr : checkpoint_.find(names::with_prefix(name, prefix_));
        if (tensor != nullptr) used_.insert(tensor);
        return tensor;
    }

    // Returns the first tensor that has one of the names; null if there is none.
    const Tensor* find_any(std::span<const std::string> names) {
        for (const std::string& name : names) {
            if (const Tensor* tensor = find(name)) return tensor;
        }
        return nullptr;
    }

    const Tensor& required(std::span<const std::string> names) {
        if (const Tensor* tensor = find_any(names)) return *tensor;
        fail_missing(names);
    }

    // Throws an error that names the first spelling of the checkpoint's own kind.
    [[noreturn]] void fail_missing(std::span<const std::string> spellings) const {
        refuse_other_quantisations(checkpoint_);
        const auto own = std::ranges::find_if(spellings, [&](const std::string& name) {
            return (name.starts_with("model.") || name.starts_with("lm_head.")) != is_gguf();
        });
        const std::string& name = own == spellings.end() ? spellings.front() : *own;
        fail_file(Reason::value, "tensor {} is missing", names::with_prefix(name, prefix_));
    }

    // Returns the rows of a matrix; 0 if the tensor is none.
    int64_t rows_of(const Tensor& tensor) const {
        const size_t n = tensor.shape.size();
        if (n >= 2 && is_gguf() && without_ones(tensor.shape).size() <= 2) return tensor.shape[n - 2];
        if (n == 1 && is_gguf()) return 1;
        return n == 0 ? 0 : tensor.shape.front();
    }

    bool is_gguf() const { return checkpoint_.container() == checkpoint::Container::gguf; }
    bool was_used(const Tensor& tensor) const { return used_.contains(&tensor); }

    // GGUF files may state dimensions of 1 at the outer end, or leave them out.
    static std::span<const int64_t> without_ones(std::span<const int64_t> shape) {
        while (!shape.empty() && shape.front() == 1) shape = shape.subspan(1);
        return shape;
    }

    void check_shape(const Tensor& tensor, std::span<const int64_t> wanted) const {
        const bool fits = is_gguf() ? std::ranges::equal(without_ones(tensor.shape), without_ones(wanted))
                                    : std::ranges::equal(tensor.shape, wanted);
        if (!fits) {
            fail_file(Reason::shape, "tensor {} has shape {}, the configuration asks for {}", tensor.name,
                      shape_text(tensor.shape), shape_text(wanted));
        }
    }

    // Returns the format of a weight, and the size of its rows in bytes_per_row.
    static Format weight_format(const Tensor& tensor, int64_t cols, int64_t& bytes_per_row) {
        uint64_t bytes = 0;
        if (!tensor.format || traits(*tensor.format).decode_row == nullptr) {
            fail(Status::unsupported, "tensor {} is of type {}, which holds no weights here", tensor.name,
                 tensor.type_name);
        }
        if (!row_bytes(*tensor.format, static_cast<uint64_t>(cols), bytes)) {
            fail_file(Reason::shape, "tensor {}: rows of {} are not whole blocks of {}", tensor.name, cols,
                      tensor.type_name);
        }
        bytes_per_row = static_cast<int64_t>(bytes);
        return *tensor.format;
    }

    // Returns the weight of linear(), stored in one tensor or in several; nothing if none of the names exists.
    std::optional<WeightSpec> find_linear(std::span<const std::string> names, int64_t rows, int64_t cols) {
        for (const std::string& name : names) {
            if (auto assembled = layouts::find_assembled(finder(), name, rows, cols, packing_))
                return of_assembled(std::move(*assembled));
        }
        if (const Tensor* tensor = find_any(names)) return matrix(*tensor, rows, cols);
        return std::nullopt;
    }

    WeightSpec linear(std::span<const std::string> names, int64_t rows, int64_t cols) {
        if (auto found = find_linear(names, rows, cols)) return *found;
        fail_missing(names);
    }

    // Returns the experts of a stack of a safetensors folder, in order. A plain stack whose last dimension is the
    // inputs is used as it is; every other one is assembled.
    std::vector<WeightSpec> stacked_experts(const Tensor& tensor, layouts::StackPart part, int64_t rows,
                                            int64_t cols) {
        std::vector<WeightSpec> experts;
        for (part.index = 0; part.index < part.n; ++part.index) {
            auto assembled = layouts::find_stacked(finder(), tensor.name, rows, cols, part, packing_);
            if (!assembled) return expert_stack(tensor, part.n, part.stack_rows, part.first_row, rows, cols);
            experts.push_back(of_assembled(std::move(*assembled)));
        }
        return experts;
    }

    WeightSpec matrix(const Tensor& tensor, int64_t rows, int64_t cols) {
        const int64_t wanted[] = {rows, cols};
        check_shape(tensor, wanted);
        WeightSpec spec;
        spec.use = Use::product;
        spec.format = weight_format(tensor, cols, spec.row_bytes);
        spec.rows = rows;
        spec.cols = cols;
        spec.source.tensor = &tensor;
        spec.source.factor = companion_scale(tensor, 1);
        return spec;
    }

    // Returns the weight of a norm or a bias, which is float or is widened to float when it is read.
    WeightSpec vector(const Tensor& tensor, int64_t size) {
        const int64_t wanted[] = {size};
        check_shape(tensor, wanted);
        if (tensor.format != Format::f32 && tensor.format != Format::f16 && tensor.format != Format::bf16) {
            fail(Status::unsupported, "tensor {} is of type {}; norms and biases are F32, F16 or BF16",
                 tensor.name, tensor.type_name);
        }
        WeightSpec spec;
        spec.use = Use::vector;
        spec.rows = 1;
        spec.cols = size;
        spec.row_bytes = size * static_cast<int64_t>(sizeof(float));
        spec.source.tensor = &tensor;
        return spec;
    }

    // Returns the weight of a norm, as norms multiply by it.
    WeightSpec norm(const Tensor& tensor, int64_t size) {
        WeightSpec spec = vector(tensor, size);
        spec.source.added = norm_added_;
        return spec;
    }

    // Returns rows [first_row, first_row + rows) of every expert of a stack [n_expert, stack_rows, cols], one weight
    // per expert.
    std::vector<WeightSpec> expert_stack(const Tensor& tensor, int64_t n_expert, int64_t stack_rows,
                                         int64_t first_row, int64_t rows, int64_t cols) {
        const int64_t wanted[] = {n_expert, stack_rows, cols};
        check_shape(tensor, wanted);
        WeightSpec spec;
        spec.use = Use::product;
        spec.format = weight_format(tensor, cols, spec.row_bytes);
        spec.rows = rows;
        spec.cols = cols;
        spec.source.tensor = &tensor;
        spec.source.factor = companion_scale(tensor, n_expert);
        const bool is_per_expert = spec.source.factor != nullptr && spec.source.factor->bytes > sizeof(float);
        std::vector<WeightSpec> experts;
        for (int64_t e = 0; e < n_expert; ++e) {
            spec.source.offset = static_cast<uint64_t>((e * stack_rows + first_row) * spec.row_bytes);
            spec.source.factor_index = is_per_expert ? e : 0;
            experts.push_back(spec);
        }
        return experts;
    }

    // Returns the experts of a layer with one tensor per expert, as in safetensors checkpoints.
    std::vector<WeightSpec> single_experts(int64_t layer, names::ExpertPart part, int64_t n_expert,
                                           int64_t rows, int64_t cols) {
        std::vector<WeightSpec> experts;
        for (int64_t e = 0; e < n_expert; ++e) {
            const auto spellings = names::single_expert(layer, e, part);
            WeightSpec spec = linear(spellings, rows, cols);
            if (e > 0 && spec.format != experts.front().format) {
                fail(Status::unsupported, "tensor {} is of type {}, expert 0 of type {}", spellings[0],
                     traits(spec.format).name, traits(experts.front().format).name);
            }
            experts.push_back(std::move(spec));
        }
        return experts;
    }

  private:
    layouts::FindTensor finder() {
        return [this](const std::string& name) { return find(name); };
    }

    // Returns the optional factors beside a packed tensor: X.scale for X.weight, one value or one per expert. Null:
    // there are none.
    const Tensor* companion_scale(const Tensor& tensor, int64_t n_expert) {
        constexpr std::string_view k_suffix = ".weight";
        if (!tensor.name.ends_with(k_suffix)) return nullptr;
        const std::string stem = tensor.name.substr(0, tensor.name.size() - k_suffix.size());
        find(stem + ".input_scale");  // for activation quantisation only
        const Tensor* scale = find(stem + ".scale");
        if (scale == nullptr) return nullptr;
        if (scale->format != Format::f32) {
            fail(Status::unsupported, "tensor {} is of type {}, not F32", scale->name, scale->type_name);
        }
        if (scale->bytes == 0) fail_file(Reason::shape, "tensor {} is empty", scale->name);
        const auto n_scales = static_cast<int64_t>(scale->bytes / sizeof(float));
        if (n_scales > 1 && n_expert == 1)
            fail_file(Reason::shape, "tensor {} has {} scales beside it", tensor.name, n_scales);
        if (n_scales > 1 && n_scales != n_expert) {
            fail_file(Reason::shape, "tensor {} has {} scales for {} experts", tensor.name, n_scales,
                      n_expert);
        }
        return scale;
    }

    static WeightSpec of_assembled(layouts::AssembledRows matrix) {
        WeightSpec spec;
        spec.use = Use::product;
        spec.format = matrix.format;
        spec.rows = matrix.rows;
        spec.cols = matrix.cols;
        spec.row_bytes = matrix.row_bytes;
        spec.source.tensor = matrix.codes;
        spec.source.assembled = std::make_shared<const layouts::AssembledRows>(std::move(matrix));
        return spec;
    }

    const Checkpoint& checkpoint_;
    const layouts::PackingHints& packing_;
    const float norm_added_;
    const names::Prefix prefix_;
    std::unordered_set<const Tensor*> used_;
};

// The weights found so far, in their order.
struct Found {
    std::vector<WeightSpec> all;

    void add(Role role, int64_t layer, WeightSpec spec) {
        spec.role = static_cast<int32_t>(role);
        spec.layer = static_cast<int32_t>(layer);
        all.push_back(std::move(spec));
    }
    void add_experts(Role role, int64_t layer, std::vector<WeightSpec> experts) {
        int32_t expert = 0;
        for (WeightSpec& spec : experts) {
            spec.expert = expert++;
            add(role, layer, std::move(spec));
        }
    }
};

// Returns the weight for use one row at a time or in float.
WeightSpec as_rows(WeightSpec spec) {
    spec.use = Use::rows;
    return spec;
}

const Tensor& required(Binder& binder, int64_t layer, names::Part part) {
    return binder.required(names::layer(layer, part));
}

void bind_qkv(Binder& binder, const Config& config, int64_t layer, Found& found) {
    const int64_t q_rows = config.n_head * config.head_dim;
    const int64_t kv_rows = config.n_head_kv * config.head_dim;
    if (const auto qkv = binder.find_linear(names::fused_qkv(layer), q_rows + 2 * kv_rows, config.hidden)) {
        found.add(Role::wq, layer, weights::rows_of(*qkv, {0, q_rows}));
        found.add(Role::wk, layer, weights::rows_of(*qkv, {q_rows, kv_rows}));
        found.add(Role::wv, layer, weights::rows_of(*qkv, {q_rows + kv_rows, kv_rows}));
        return;
    }
    const auto linear = [&](names::Part part, int64_t rows) {
        return binder.linear(names::layer(layer, part), rows, config.hidden);
    };
    found.add(Role::wq, layer, linear(names::Part::attn_q, q_rows));
    found.add(Role::wk, layer, linear(names::Part::attn_k, kv_rows));
    found.add(Role::wv, layer, linear(names::Part::attn_v, kv_rows));
}

// Takes the number of experts of the layer from the rows of its router: a pruned model may keep fewer in some layers.
WeightSpec bind_router(Binder& binder, const Config& config, int64_t layer) {
    const Tensor& router = required(binder, layer, names::Part::router);
    const int64_t n_expert = binder.rows_of(router);
    if (n_expert < config.n_expert_used || n_expert > config.n_expert) {
        fail_file(Reason::shape, "tensor {} has {} rows; the configuration has {} experts, {} of them used",
                  router.name, n_expert, config.n_expert, config.n_expert_used);
    }
    return as_rows(binder.matrix(router, n_expert, config.hidden));
}

// Binds the stacks of a safetensors folder: [n, 2 ff, hidden] and [n, hidden, ff], or, with inputs before outputs, [n,
// hidden, 2 ff] and [n, ff, hidden]. If 2 ff equals hidden, only the second tensor shows which of the two it is.
void bind_stacks(Binder& binder, const Config& config, int64_t layer, int64_t n_expert, const Tensor& gate_up,
                 Found& found) {
    const int64_t ff = config.expert_ff;
    const int64_t hidden = config.hidden;
    const Tensor& down = binder.required(names::fused_down_hf(layer));
    const auto has_shape = [](const Tensor& tensor, int64_t middle, int64_t last) {
        return tensor.shape.size() == 3 && tensor.shape[1] == middle && tensor.shape[2] == last;
    };
    const bool transposed =
        2 * ff != hidden ? has_shape(gate_up, hidden, 2 * ff) : has_shape(down, ff, hidden);
    const auto add = [&](Role role, const Tensor& tensor, int64_t stack_rows, int64_t first, int64_t rows,
                         int64_t cols) {
        found.add_experts(
            role, layer,
            binder.stacked_experts(tensor, {n_expert, 0, stack_rows, first, transposed}, rows, cols));
    };
    add(Role::gate, gate_up, 2 * ff, 0, ff, hidden);
    add(Role::up, gate_up, 2 * ff, ff, ff, hidden);
    add(Role::down, down, hidden, 0, hidden, ff);
}

void bind_experts(Binder& binder, const Config& config, int64_t layer, int64_t n_expert, Found& found) {
    const int64_t ff = config.expert_ff;
    const auto add_stack = [&](Role role, const Tensor& tensor, int64_t stack_rows, int64_t first,
                               int64_t rows, int64_t cols) {
        found.add_experts(role, layer, binder.expert_stack(tensor, n_expert, stack_rows, first, rows, cols));
    };
    if (const Tensor* hf = binder.find_any(names::fused_gate_up_hf(layer)))
        return bind_stacks(binder, config, layer, n_expert, *hf, found);
    if (const Tensor* fused = binder.find(names::fused_gate_up_gguf(layer))) {
        add_stack(Role::gate, *fused, 2 * ff, 0, ff, config.hidden);
        add_stack(Role::up, *fused, 2 * ff, ff, ff, config.hidden);
    } else if (const Tensor* gate = binder.find(names::stacked_expert(layer, "gate"))) {
        const std::string up = names::stacked_expert(layer, "up");
        add_stack(Role::gate, *gate, ff, 0, ff, config.hidden);
        add_stack(Role::up, binder.required({&up, 1}), ff, 0, ff, config.hidden);
    } else if (binder.is_gguf()) {
        const std::string missing = names::stacked_expert(layer, "gate");
        binder.fail_missing({&missing, 1});
    } else {
        const auto add_single = [&](Role role, names::ExpertPart part, int64_t rows, int64_t cols) {
            found.add_experts(role, layer, binder.single_experts(layer, part, n_expert, rows, cols));
        };
        add_single(Role::gate, names::ExpertPart::gate, ff, config.hidden);
        add_single(Role::up, names::ExpertPart::up, ff, config.hidden);
        return add_single(Role::down, names::ExpertPart::down, config.hidden, ff);
    }
    const std::string down = names::stacked_expert(layer, "down");
    add_stack(Role::down, binder.required({&down, 1}), config.hidden, 0, config.hidden, ff);
}

// Binds a feed-forward that every row takes. `fused`: the spellings of gate rows and up rows in one tensor.
void bind_dense(Binder& binder, const Config& config, int64_t layer, int64_t ff,
                const names::Spellings& fused, names::Spellings (*part)(int64_t, names::ExpertPart),
                Found& found) {
    if (const auto gate_up = binder.find_linear(fused, 2 * ff, config.hidden)) {
        found.add(Role::dense_gate, layer, weights::rows_of(*gate_up, {0, ff}));
        found.add(Role::dense_up, layer, weights::rows_of(*gate_up, {ff, ff}));
    } else {
        const auto linear = [&](names::ExpertPart which) {
            return binder.linear(part(layer, which), ff, config.hidden);
        };
        found.add(Role::dense_gate, layer, linear(names::ExpertPart::gate));
        found.add(Role::dense_up, layer, linear(names::ExpertPart::up));
    }
    found.add(Role::dense_down, layer,
              binder.linear(part(layer, names::ExpertPart::down), config.hidden, ff));
}

// Binds the weights of a layer. Returns the number of its experts.
int64_t bind_layer(Binder& binder, const Config& config, int64_t layer, Found& found) {
    const int64_t q_rows = config.n_head * config.head_dim;
    const int64_t kv_rows = config.n_head_kv * config.head_dim;
    const bool is_m3 = config.family == Family::m3;  // with norms of single heads
    const auto norm = [&](names::Part part, int64_t size) {
        return binder.norm(required(binder, layer, part), size);
    };
    const auto linear = [&](names::Part part, int64_t rows, int64_t cols) {
        return binder.linear(names::layer(layer, part), rows, cols);
    };
    found.add(Role::attn_norm, layer, norm(names::Part::attn_norm, config.hidden));
    bind_qkv(binder, config, layer, found);
    const WeightSpec q_norm = norm(names::Part::attn_q_norm, is_m3 ? config.head_dim : q_rows);
    const WeightSpec k_norm = norm(names::Part::attn_k_norm, is_m3 ? config.head_dim : kv_rows);
    const backend::SparseAttention& sparse = config.sparse_attention;
    if (config.is_sparse(layer)) {
        found.add(Role::index_q, layer,
                  linear(names::Part::index_q, sparse.n_head * sparse.dim, config.hidden));
        found.add(Role::index_k, layer, linear(names::Part::index_k, sparse.dim, config.hidden));
    }
    found.add(Role::wo, layer, linear(names::Part::attn_output, config.hidden, q_rows));
    const WeightSpec ffn_norm = norm(names::Part::ffn_norm, config.hidden);
    std::optional<WeightSpec> router;
    if (config.has_experts(layer)) {
        router = bind_router(binder, config, layer);
        found.add(Role::router, layer, *router);
    }
    found.add(Role::q_norm, layer, q_norm);
    found.add(Role::k_norm, layer, k_norm);
    if (config.is_sparse(layer)) {
        found.add(Role::index_q_norm, layer, norm(names::Part::index_q_norm, sparse.dim));
        found.add(Role::index_k_norm, layer, norm(names::Part::index_k_norm, sparse.dim));
    }
    found.add(Role::ffn_norm, layer, ffn_norm);
    if (!router) {
        bind_dense(binder, config, layer, config.dense_ff, names::fused_gate_up_dense(layer), names::dense,
                   found);
        return 0;
    }
    if (const Tensor* bias = binder.find_any(names::layer(layer, names::Part::router_bias)))
        found.add(Role::router_bias, layer, binder.vector(*bias, router->rows));
    found.add(Role::experts_norm, layer, ffn_norm);
    if (config.shared_ff > 0)
        bind_dense(binder, config, layer, config.shared_ff, names::fused_gate_up_shared(layer),
                   names::shared_expert, found);
    bind_experts(binder, config, layer, router->rows, found);
    return router->rows;
}

// Checks that all layers have a correction bias, or that none has and the configuration does not need it. Without it a
// layer chooses other experts.
void check_router_biases(const Binder& binder, const Config& config, const Found& found) {
    std::vector<bool> has_bias(config.n_layer);
    for (const WeightSpec& weight : found.all)
        if (weight.role == static_cast<int32_t>(Role::router_bias)) has_bias[weight.layer] = true;
    if (!config.needs_router_bias && std::ranges::count(has_bias, true) == 0) return;
    const auto without = std::find(has_bias.begin() + config.n_dense_layer, has_bias.end(), false);
    if (without == has_bias.end()) return;
    binder.fail_missing(names::layer(without - has_bias.begin(), names::Part::router_bias));
}

// Throws unsupported for a tensor that was not used, and names it: it may change what the model computes (a bias, rope
// factors).
void check_leftovers(const Checkpoint& checkpoint, const Binder& binder, const Config& config,
                     const Logger& log) {
    const bool is_m3 = config.family == Family::m3;
    int64_t n_mtp = 0;
    int64_t n_vision = 0;
    for (const Tensor& tensor : checkpoint.tensors()) {
        if (binder.was_used(tensor) || names::is_ignored(tensor.name)) continue;
        if (is_m3 && names::is_vision(tensor.name)) {
            ++n_vision;
            continue;
        }
        const std::string name = is_m3 ? names::without_prefix(tensor.name).first : tensor.name;
        if (names::is_mtp(name, config.n_layer, config.n_mtp_layer)) {
            ++n_mtp;
            continue;
        }
        refuse_other_quantisations(checkpoint);
        fail(Status::unsupported, "tensor {} ({} {}) has no place in a MiniMax-{} model",
             checkpoint::printable(tensor.name), tensor.type_name, shape_text(tensor.shape),
             is_m3 ? "M3" : "M2");
    }
    if (n_vision > 0) log.info("{} tensors of the vision tower left out", n_vision);
    if (n_mtp > 0) log.info("{} tensors of multi-token-prediction layers skipped", n_mtp);
}

}  // namespace

std::vector<WeightSpec> bind_weights(const Checkpoint& checkpoint, Config& config, const Logger& log) {
    Binder binder(checkpoint, config);
    Found found;
    const Tensor& embedding = binder.required(names::embedding());
    const int64_t n_vocab = binder.rows_of(embedding);
    if (n_vocab < 1 || n_vocab > INT32_MAX || (config.n_vocab != 0 && n_vocab != config.n_vocab)) {
        fail_file(Reason::shape, "tensor {} has {} rows, the configuration {} tokens", embedding.name,
                  n_vocab, config.n_vocab);
    }
    config.n_vocab = n_vocab;
    found.add(Role::embedding, -1, as_rows(binder.matrix(embedding, config.n_vocab, config.hidden)));
    const WeightSpec output_norm = binder.norm(binder.required(names::output_norm()), config.hidden);
    const WeightSpec output = binder.linear(names::output(), config.n_vocab, config.hidden);
    int64_t most_experts = 0;
    for (int64_t layer = 0; layer < config.n_layer; ++layer)
        most_experts = std::max(most_experts, bind_layer(binder, config, layer, found));
    found.add(Role::output_norm, -1, output_norm);
    found.add(Role::output, -1, output);
    config.n_expert = most_experts;
    check_router_biases(binder, config, found);
    check_leftovers(checkpoint, binder, config, log);
    return std::move(found.all);
}

int64_t parameter_count(std::span<const WeightSpec> weights) {
    int64_t total = 0;
    for (const WeightSpec& weight : weights)
        if (weight.role != static_cast<int32_t>(Role::experts_norm)) total += weight.rows * weight.cols;
    return total;
}

}  // namespace minim::model
