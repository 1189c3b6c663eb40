#include "model/weights.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "checkpoint/printable.h"
#include "model/tensor_names.h"

namespace minim::model {
namespace {

using backend::ExpertStack;
using backend::Matrix;
using backend::Vector;
using checkpoint::Checkpoint;
using checkpoint::shape_text;
using checkpoint::Tensor;

// Finds tensors by name, checks their shapes, and remembers which were used.
class Binder {
  public:
    // Without data every shape and type is checked, but pointers stay null and nothing is read.
    Binder(const Checkpoint& checkpoint, Weights& weights, bool with_data)
        : checkpoint_(checkpoint), weights_(weights), with_data_(with_data) {}

    const Tensor* find(const std::string& name) {
        const Tensor* tensor = name.empty() ? nullptr : checkpoint_.find(name);
        if (tensor != nullptr) used_.insert(tensor);
        return tensor;
    }

    // The first of the names that exists.
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

    // Names the spelling of the checkpoint's own kind; GGUF's comes first.
    [[noreturn]] void fail_missing(std::span<const std::string> names) const {
        fail_file(Reason::value, "tensor {} is missing", names[is_gguf() || names.size() == 1 ? 0 : 1]);
    }

    bool is_gguf() const { return checkpoint_.kind() == Checkpoint::Kind::gguf; }
    bool was_used(const Tensor& tensor) const { return used_.contains(&tensor); }

    static void check_shape(const Tensor& tensor, std::span<const int64_t> wanted) {
        if (!std::ranges::equal(tensor.shape, wanted)) {
            fail_file(Reason::shape, "tensor {} has shape {}, the configuration asks for {}", tensor.name,
                      shape_text(tensor.shape), shape_text(wanted));
        }
    }

    // The format of a weight, with its row size.
    static Format weight_format(const Tensor& tensor, int64_t cols, int64_t& bytes_per_row) {
        uint64_t bytes = 0;
        if (!tensor.format || traits(*tensor.format).decode_row == nullptr) {
            fail(Status::unsupported, "tensor {} is of type {}, which holds no weights here", tensor.name,
                 tensor.type_name);
        }
        if (!row_bytes(*tensor.format, static_cast<uint64_t>(cols), bytes)) {
            fail_file(Reason::shape, "tensor {}: rows of {} are no whole blocks of {}", tensor.name, cols,
                      tensor.type_name);
        }
        bytes_per_row = static_cast<int64_t>(bytes);
        return *tensor.format;
    }

    // The weight of a linear, in one tensor or in several.
    Matrix linear(std::span<const std::string> names, int64_t rows, int64_t cols) {
        const FindTensor find_tensor = [this](const std::string& name) { return find(name); };
        for (const std::string& name : names) {
            if (const auto gathered = find_gathered(find_tensor, name, rows, cols)) return place(*gathered);
        }
        return matrix(required(names), rows, cols);
    }

    Matrix matrix(const Tensor& tensor, int64_t rows, int64_t cols) {
        const int64_t wanted[] = {rows, cols};
        check_shape(tensor, wanted);
        Matrix m;
        m.format = weight_format(tensor, cols, m.row_bytes);
        m.data = data(tensor);
        m.rows = rows;
        m.cols = cols;
        m.scale = companion_scale(tensor);
        return m;
    }

    // Norms and biases: float, or widened to float once.
    Vector vector(const Tensor& tensor, int64_t size) {
        const int64_t wanted[] = {size};
        check_shape(tensor, wanted);
        if (tensor.format != Format::f32 && tensor.format != Format::f16 && tensor.format != Format::bf16) {
            fail(Status::unsupported, "tensor {} is of type {}; norms and biases are F32, F16 or BF16",
                 tensor.name, tensor.type_name);
        }
        if (!with_data_) return {nullptr, size};
        const std::byte* stored = data(tensor);
        if (tensor.format == Format::f32 && reinterpret_cast<uintptr_t>(stored) % alignof(float) == 0) {
            return {reinterpret_cast<const float*>(stored), size};
        }
        std::vector<float>& values = weights_.widened.emplace_back(static_cast<size_t>(size));
        traits(*tensor.format).decode_row(stored, size, values.data());
        return {values.data(), size};
    }

    // The optional factors beside a packed tensor: X.weight has X.scale, one value or one an expert.
    std::vector<float> companion_scales(const Tensor& tensor) {
        constexpr std::string_view k_suffix = ".weight";
        if (!tensor.name.ends_with(k_suffix)) return {};
        const std::string stem = tensor.name.substr(0, tensor.name.size() - k_suffix.size());
        find(stem + ".input_scale");  // for activation quantisation only
        const Tensor* scale = find(stem + ".scale");
        if (scale == nullptr) return {};
        if (scale->format != Format::f32) {
            fail(Status::unsupported, "tensor {} is of type {}, not F32", scale->name, scale->type_name);
        }
        if (scale->bytes == 0) fail_file(Reason::shape, "tensor {} is empty", scale->name);
        std::vector<float> values(static_cast<size_t>(scale->bytes / sizeof(float)), 1.0F);
        if (with_data_)
            traits(Format::f32).decode_row(data(*scale), static_cast<int64_t>(values.size()), values.data());
        return values;
    }

    float companion_scale(const Tensor& tensor) {
        const std::vector<float> scales = companion_scales(tensor);
        if (scales.size() > 1)
            fail_file(Reason::shape, "tensor {} has {} scales beside it", tensor.name, scales.size());
        return scales.empty() ? 1.0F : scales.front();
    }

    // Rows [first_row, first_row + rows) of every expert of a stack [n_expert, stack_rows, cols].
    ExpertStack expert_stack(const Tensor& tensor, int64_t n_expert, int64_t stack_rows, int64_t first_row,
                             int64_t rows, int64_t cols) {
        const int64_t wanted[] = {n_expert, stack_rows, cols};
        check_shape(tensor, wanted);
        ExpertStack stack;
        stack.format = weight_format(tensor, cols, stack.row_bytes);
        stack.rows = rows;
        stack.cols = cols;
        for (int64_t e = 0; e < n_expert; ++e) {
            const std::byte* stored = data(tensor);
            stack.expert.push_back(
                stored == nullptr ? nullptr : stored + (e * stack_rows + first_row) * stack.row_bytes);
        }
        stack.scale = companion_scales(tensor);
        if (stack.scale.size() == 1) stack.scale.assign(static_cast<size_t>(n_expert), stack.scale.front());
        if (!stack.scale.empty() && stack.scale.size() != static_cast<size_t>(n_expert)) {
            fail_file(Reason::shape, "tensor {} has {} scales for {} experts", tensor.name,
                      stack.scale.size(), n_expert);
        }
        return stack;
    }

    // One tensor an expert, as safetensors checkpoints keep them.
    ExpertStack single_experts(int64_t layer, const char* part, int64_t n_expert, int64_t rows,
                               int64_t cols) {
        ExpertStack stack;
        for (int64_t e = 0; e < n_expert; ++e) {
            const std::string name = names::single_expert(layer, e, part);
            const Matrix m = linear({&name, 1}, rows, cols);
            if (e > 0 && m.format != stack.format) {
                fail(Status::unsupported, "tensor {} is of type {}, expert 0 of type {}", name,
                     traits(m.format).name, traits(stack.format).name);
            }
            stack.format = m.format;
            stack.rows = rows;
            stack.cols = cols;
            stack.row_bytes = m.row_bytes;
            stack.expert.push_back(m.data);
            stack.scale.push_back(m.scale);
        }
        return stack;
    }

  private:
    Matrix place(const GatheredMatrix& gathered) {
        Matrix m = {.format = gathered.format,
                    .rows = gathered.rows,
                    .cols = gathered.cols,
                    .row_bytes = gathered.row_bytes};
        if (weights_.gathered == nullptr) weights_.gathered = std::make_shared<GatheredWeights>(checkpoint_);
        if (!with_data_) return m;
        m.data = weights_.gathered->add(gathered);
        m.scale = weights_.gathered->factor(gathered);
        return m;
    }

    const std::byte* data(const Tensor& tensor) const {
        return with_data_ ? checkpoint_.data(tensor) : nullptr;
    }

    const Checkpoint& checkpoint_;
    Weights& weights_;
    bool with_data_;
    std::unordered_set<const Tensor*> used_;
};

Matrix rows_of(const Matrix& whole, int64_t first, int64_t count) {
    Matrix part = whole;
    if (part.data != nullptr) part.data += first * whole.row_bytes;
    part.rows = count;
    return part;
}

void bind_attention(Binder& binder, const Config& config, int64_t layer, LayerWeights& w) {
    const int64_t q_rows = config.n_head * config.head_dim;
    const int64_t kv_rows = config.n_head_kv * config.head_dim;
    w.attn_norm = binder.vector(binder.required(names::layer(layer, names::Part::attn_norm)), config.hidden);
    if (const Tensor* fused = binder.find(names::fused_qkv(layer))) {
        const Matrix qkv = binder.matrix(*fused, q_rows + 2 * kv_rows, config.hidden);
        w.wq = rows_of(qkv, 0, q_rows);
        w.wk = rows_of(qkv, q_rows, kv_rows);
        w.wv = rows_of(qkv, q_rows + kv_rows, kv_rows);
    } else {
        w.wq = binder.linear(names::layer(layer, names::Part::attn_q), q_rows, config.hidden);
        w.wk = binder.linear(names::layer(layer, names::Part::attn_k), kv_rows, config.hidden);
        w.wv = binder.linear(names::layer(layer, names::Part::attn_v), kv_rows, config.hidden);
    }
    w.q_norm = binder.vector(binder.required(names::layer(layer, names::Part::attn_q_norm)), q_rows);
    w.k_norm = binder.vector(binder.required(names::layer(layer, names::Part::attn_k_norm)), kv_rows);
    w.wo = binder.linear(names::layer(layer, names::Part::attn_output), config.hidden, q_rows);
}

// The number of experts is the router's row count, layer by layer: a pruned model may keep fewer.
void bind_experts(Binder& binder, const Config& config, int64_t layer, LayerWeights& w) {
    w.ffn_norm = binder.vector(binder.required(names::layer(layer, names::Part::ffn_norm)), config.hidden);
    w.experts_norm = w.ffn_norm;
    const Tensor& router = binder.required(names::layer(layer, names::Part::router));
    const int64_t n_expert = router.shape.empty() ? 0 : router.shape.front();
    if (n_expert < config.n_expert_used || n_expert > config.n_expert) {
        fail_file(Reason::shape, "tensor {} has {} rows; the configuration has {} experts, {} of them used",
                  router.name, n_expert, config.n_expert, config.n_expert_used);
    }
    w.router = binder.matrix(router, n_expert, config.hidden);
    if (const Tensor* bias = binder.find_any(names::layer(layer, names::Part::router_bias))) {
        w.router_bias = binder.vector(*bias, n_expert);
    }
    const int64_t ff = config.expert_ff;
    const auto stack = [&](const Tensor& t, int64_t stack_rows, int64_t first, int64_t rows, int64_t cols) {
        return binder.expert_stack(t, n_expert, stack_rows, first, rows, cols);
    };
    if (const Tensor* fused = binder.find(names::fused_gate_up_gguf(layer))) {
        w.experts.gate = stack(*fused, 2 * ff, 0, ff, config.hidden);
        w.experts.up = stack(*fused, 2 * ff, ff, ff, config.hidden);
    } else if (const Tensor* hf = binder.find(names::fused_gate_up_hf(layer))) {
        w.experts.gate = stack(*hf, 2 * ff, 0, ff, config.hidden);
        w.experts.up = stack(*hf, 2 * ff, ff, ff, config.hidden);
    } else if (const Tensor* gate = binder.find(names::stacked_expert(layer, "gate"))) {
        const std::string up = names::stacked_expert(layer, "up");
        w.experts.gate = stack(*gate, ff, 0, ff, config.hidden);
        w.experts.up = stack(binder.required({&up, 1}), ff, 0, ff, config.hidden);
    } else if (binder.is_gguf()) {
        const std::string missing = names::stacked_expert(layer, "gate");
        binder.fail_missing({&missing, 1});
    } else {
        w.experts.gate = binder.single_experts(layer, "w1", n_expert, ff, config.hidden);
        w.experts.up = binder.single_experts(layer, "w3", n_expert, ff, config.hidden);
        w.experts.down = binder.single_experts(layer, "w2", n_expert, config.hidden, ff);
        return;
    }
    const std::string down[] = {names::stacked_expert(layer, "down"), names::fused_down_hf(layer)};
    w.experts.down = stack(binder.required(down), config.hidden, 0, config.hidden, ff);
}

// A correction bias in all layers or in none: without it a layer chooses other experts.
void check_router_biases(const Binder& binder, const Config& config, const Weights& weights) {
    const auto has_bias = [](const LayerWeights& w) { return w.router_bias.size > 0; };
    if (!config.needs_router_bias && std::ranges::none_of(weights.layers, has_bias)) return;
    const auto without = std::ranges::find_if_not(weights.layers, has_bias);
    if (without == weights.layers.end()) return;
    binder.fail_missing(names::layer(without - weights.layers.begin(), names::Part::router_bias));
}

// GGUF layers beyond the model's own that have a tensor of multi-token prediction.
std::set<int64_t> gguf_mtp_layers(const Checkpoint& checkpoint, const Config& config) {
    std::set<int64_t> layers;
    for (const Tensor& tensor : checkpoint.tensors()) {
        const int64_t layer = names::gguf_layer(tensor.name);
        if (layer >= 0 && names::is_mtp(tensor.name, config.n_layer, config.n_mtp_layer))
            layers.insert(layer);
    }
    return layers;
}

// A tensor nobody asked for may change what the model computes (a bias, rope factors): refuse it by name.
void check_leftovers(const Checkpoint& checkpoint, const Binder& binder, const Config& config,
                     const Logger& log) {
    const std::set<int64_t> mtp_layers = gguf_mtp_layers(checkpoint, config);
    int64_t n_mtp = 0;
    for (const Tensor& tensor : checkpoint.tensors()) {
        if (binder.was_used(tensor) || names::is_ignored(tensor.name)) continue;
        if (names::is_mtp(tensor.name, config.n_layer, config.n_mtp_layer) ||
            mtp_layers.contains(names::gguf_layer(tensor.name))) {
            ++n_mtp;
            continue;
        }
        fail(Status::unsupported, "tensor {} ({} {}) has no place in a MiniMax-M2 model",
             checkpoint::printable(tensor.name), tensor.type_name, shape_text(tensor.shape));
    }
    if (n_mtp > 0) log.info("{} tensors of multi-token-prediction layers skipped", n_mtp);
}

Weights bind(const Checkpoint& checkpoint, Config& config, bool with_data, const Logger& log) {
    Weights weights;
    Binder binder(checkpoint, weights, with_data);
    const Tensor& embedding = binder.required(names::embedding());
    const int64_t n_vocab = embedding.shape.empty() ? 0 : embedding.shape.front();
    if (n_vocab < 1 || n_vocab > INT32_MAX || (config.n_vocab != 0 && n_vocab != config.n_vocab)) {
        fail_file(Reason::shape, "tensor {} has {} rows, the configuration {} tokens", embedding.name,
                  n_vocab, config.n_vocab);
    }
    config.n_vocab = n_vocab;
    weights.embedding = binder.matrix(embedding, config.n_vocab, config.hidden);
    weights.output_norm = binder.vector(binder.required(names::output_norm()), config.hidden);
    weights.output = binder.linear(names::output(), config.n_vocab, config.hidden);
    int64_t most_experts = 0;
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
        LayerWeights& w = weights.layers.emplace_back();
        bind_attention(binder, config, layer, w);
        bind_experts(binder, config, layer, w);
        most_experts = std::max(most_experts, w.router.rows);
    }
    config.n_expert = most_experts;
    check_router_biases(binder, config, weights);
    check_leftovers(checkpoint, binder, config, log);
    return weights;
}

}  // namespace

Weights bind_weights(const Checkpoint& checkpoint, Config& config, const Logger& log) {
    return bind(checkpoint, config, true, log);
}

Weights check_weights(const Checkpoint& checkpoint, Config& config) {
    const Logger silent;
    return bind(checkpoint, config, false, silent);
}

}  // namespace minim::model
