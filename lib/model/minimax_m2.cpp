#include "model/minimax_m2.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace minim::model {

using backend::LinearTask;

std::vector<float> rope_frequencies(const Config& config) {
    std::vector<float> frequency(static_cast<size_t>(config.rotary_dim / 2));
    for (size_t i = 0; i < frequency.size(); ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.rotary_dim);
        frequency[i] = static_cast<float>(std::pow(config.rope_theta, exponent));
    }
    return frequency;
}

StepSpace::StepSpace(const backend::Backend& backend, const Config& config, int64_t n_rows, int64_t n_context)
    : n_rows_(n_rows) {
    backend::StepLimits limits;
    limits.n_rows = n_rows;
    limits.n_context = n_context;
    limits.hidden = config.hidden;
    limits.n_head = config.n_head;
    limits.n_head_kv = config.n_head_kv;
    limits.head_dim = config.head_dim;
    limits.n_expert = config.n_expert;
    limits.n_expert_used = config.n_expert_used;
    limits.expert_ff = config.expert_ff;
    limits.n_vocab = config.n_vocab;
    scratch_ = backend.reserve(limits);

    const int64_t q_width = config.n_head * config.head_dim;
    const int64_t kv_width = config.n_head_kv * config.head_dim;
    const int64_t row_floats = 2 * config.hidden + 2 * q_width + 2 * kv_width + 2 * config.n_expert_used;
    uint64_t bytes = 0;
    if (!checked_mul(static_cast<uint64_t>(n_rows), static_cast<uint64_t>(row_floats) * sizeof(float),
                     bytes)) {
        fail_out_of_memory("activations", UINT64_MAX, 0);
    }
    memory_ = Buffer(bytes, "activations");
    auto* next = memory_.as<float>();
    const auto take = [&next, n_rows](int64_t row_width) {
        return std::exchange(next, next + n_rows * row_width);
    };
    x_ = take(config.hidden);
    h_ = take(config.hidden);
    q_ = take(q_width);
    o_ = take(q_width);
    k_ = take(kv_width);
    v_ = take(kv_width);
    gates_ = take(config.n_expert_used);
    ids_ = reinterpret_cast<int32_t*>(take(config.n_expert_used));
    tokens_.resize(static_cast<size_t>(n_rows));
    rows_.resize(static_cast<size_t>(n_rows));
}

ForwardPass::ForwardPass(const backend::Backend& backend, const Config& config, const Weights& weights)
    : backend_(backend), config_(config), weights_(weights), rope_frequency_(rope_frequencies(config)) {}

// o = attention of the normalised x; x itself is untouched.
void ForwardPass::attention(const LayerWeights& layer, int64_t index, int64_t n, StepSpace& space) const {
    backend_.norm(*space.scratch_, space.x_, n, layer.attn_norm, config_.norm_eps, space.h_);
    const LinearTask qkv[] = {
        {&layer.wq, space.q_, false}, {&layer.wk, space.k_, false}, {&layer.wv, space.v_, false}};
    backend_.linear(*space.scratch_, space.h_, n, qkv);
    backend::AttendArgs args;
    args.n = n;
    args.q = space.q_;
    args.k = space.k_;
    args.v = space.v_;
    args.o = space.o_;
    args.rows = std::span(space.rows_).first(static_cast<size_t>(n));
    args.layer = index;
    args.n_head = config_.n_head;
    args.n_head_kv = config_.n_head_kv;
    args.head_dim = config_.head_dim;
    args.q_norm = layer.q_norm;
    args.k_norm = layer.k_norm;
    args.norm_eps = config_.norm_eps;
    args.rope_frequency = rope_frequency_;
    backend_.attend(*space.scratch_, args);
}

// After the last attention only rows whose logits are asked for matter: moves their x and o to the front.
void ForwardPass::keep_wanted_rows(std::span<const StepRow> rows, StepSpace& space) const {
    const int64_t width = config_.n_head * config_.head_dim;
    int64_t kept = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
        if (!rows[i].wants_logits) continue;
        const auto from = static_cast<int64_t>(i);
        if (kept != from) {
            std::copy_n(space.x_ + from * config_.hidden, config_.hidden, space.x_ + kept * config_.hidden);
            std::copy_n(space.o_ + from * width, width, space.o_ + kept * width);
        }
        ++kept;
    }
}

void ForwardPass::step(std::span<const StepRow> rows, StepSpace& space, float* logits,
                       const CancelToken* cancel, const LayerObserver& observer) const {
    auto n = static_cast<int64_t>(rows.size());
    if (n > space.n_rows_) fail_internal("a step of {} rows in space for {}", n, space.n_rows_);
    const auto n_wanted =
        std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.wants_logits; });
    for (size_t i = 0; i < rows.size(); ++i) {
        space.tokens_[i] = rows[i].token;
        space.rows_[i] = rows[i].at;
    }
    backend::Scratch& scratch = *space.scratch_;
    float* x = space.x_;
    float* h = space.h_;

    backend_.embed(scratch, weights_.embedding, std::span(space.tokens_).first(rows.size()), x);
    for (int64_t index = 0; index < config_.n_layer; ++index) {
        throw_if_cancelled(cancel, "evaluation");
        const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
        attention(layer, index, n, space);
        if (index + 1 == config_.n_layer && !observer && n_wanted < n) {
            keep_wanted_rows(rows, space);
            n = n_wanted;
            if (n == 0) return;
        }
        const LinearTask output = {&layer.wo, x, true};
        backend_.linear(scratch, space.o_, n, {&output, 1});

        backend_.norm(scratch, x, n, layer.ffn_norm, config_.norm_eps, h);
        backend_.route(scratch, h, n, layer.router, layer.router_bias, config_.n_expert_used, space.ids_,
                       space.gates_);
        if (config_.expert_weights_scale != 1.0F) {
            for (int64_t i = 0; i < n * config_.n_expert_used; ++i) {
                space.gates_[i] *= config_.expert_weights_scale;
            }
        }
        throw_if_cancelled(cancel, "evaluation");
        backend_.experts(scratch, h, n, space.ids_, space.gates_, config_.n_expert_used, layer.experts, x);
        if (observer) observer(index, n, x, space.ids_, space.gates_);
    }
    if (n_wanted == 0) return;
    if (n_wanted < n) keep_wanted_rows(rows, space);
    backend_.norm(scratch, x, n_wanted, weights_.output_norm, config_.norm_eps, h);
    const LinearTask head = {&weights_.output, logits, false};
    backend_.linear(scratch, h, n_wanted, {&head, 1});
}

}  // namespace minim::model
