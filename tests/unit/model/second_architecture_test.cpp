// SPDX-License-Identifier: Apache-2.0
// Another architecture on the same runtime: QK-norm for each head, a softmax router, and an expert that every row uses. No code
// outside this file knows of these, and the logits are those of plain loops.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kv/sequence.h"
#include "placement/backends.h"
#include "runtime/architecture.h"
#include "runtime/forward_pass.h"
#include "runtime/placement.h"
#include "runtime/step_space.h"
#include "support.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::ExpertStack;
using backend::LinearTask;
using backend::Matrix;
using backend::Vector;
using runtime::Activations;
using Row = std::vector<double>;

constexpr int64_t k_layers = 3;
constexpr int64_t k_hidden = 96;
constexpr int64_t k_head_dim = 32;
constexpr int64_t k_heads = 4;
constexpr int64_t k_kv_heads = 2;
constexpr int64_t k_rotary_dim = 16;
constexpr int64_t k_experts = 6;
constexpr int64_t k_used = 2;
constexpr int64_t k_ff = 64;
constexpr int64_t k_vocab = 80;
constexpr int64_t k_positions = 9;
constexpr float k_eps = 1e-5F;

constexpr backend::StepLimits k_shape = {.hidden = k_hidden,
                                         .n_head = k_heads,
                                         .n_head_kv = k_kv_heads,
                                         .head_dim = k_head_dim,
                                         .n_expert = k_experts,
                                         .n_expert_used = k_used,
                                         .expert_ff = k_ff,
                                         .dense_ff = k_ff,
                                         .n_vocab = k_vocab};

// A matrix in float32, row after row.
struct Values {
    int64_t rows = 1;
    int64_t cols = 0;
    std::vector<float> all;

    Matrix matrix() const {
        return {reinterpret_cast<const std::byte*>(all.data()), Format::f32, rows, cols,
                cols * static_cast<int64_t>(sizeof(float))};
    }
    Vector vector() const { return {all.data(), cols}; }
    Row times(const Row& x) const {
        Row y(static_cast<size_t>(rows), 0.0);
        for (size_t r = 0; r < y.size(); ++r)
            for (size_t c = 0; c < x.size(); ++c) y[r] += static_cast<double>(all[r * x.size() + c]) * x[c];
        return y;
    }
    // Returns the norm over the whole of x, or over each run of x that is as long as the weights.
    Row norm(const Row& x) const {
        Row y(x.size());
        for (size_t first = 0; first < x.size(); first += all.size()) {
            double sum = 0.0;
            for (size_t i = 0; i < all.size(); ++i) sum += x[first + i] * x[first + i];
            const double root = std::sqrt(sum / static_cast<double>(all.size()) + static_cast<double>(k_eps));
            for (size_t i = 0; i < all.size(); ++i)
                y[first + i] = static_cast<double>(all[i]) * x[first + i] / root;
        }
        return y;
    }
};

struct Expert {
    Values gate, up, down;

    Row output(const Row& h) const {
        Row inner = gate.times(h);
        const Row factor = up.times(h);
        for (size_t i = 0; i < inner.size(); ++i) inner[i] *= factor[i] / (1.0 + std::exp(-inner[i]));
        return down.times(inner);
    }
};

backend::ExpertWeights weights_of(const std::vector<Expert>& experts) {
    const auto stack = [&](Values Expert::*part) {
        ExpertStack all;
        const Matrix first = (experts.front().*part).matrix();
        all.rows = first.rows;
        all.cols = first.cols;
        all.row_bytes = first.row_bytes;
        for (const Expert& expert : experts) all.expert.push_back((expert.*part).matrix().data);
        return all;
    };
    return {stack(&Expert::gate), stack(&Expert::up), stack(&Expert::down)};
}

struct Layer {
    Values attn_norm, wq, wk, wv, q_norm, k_norm, wo, ffn_norm, router;
    std::vector<Expert> experts;
    std::vector<Expert> shared;  // one
    backend::ExpertWeights expert_weights, shared_weights;
};

struct Net {
    Values embedding, output_norm, output;
    std::vector<Layer> layers;
    std::vector<float> rope_frequency;

    Net() {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        const auto make = [&](int64_t rows, int64_t cols) {
            Values values = {rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
            for (float& value : values.all) value = normal(random) / std::sqrt(static_cast<float>(cols));
            return values;
        };
        const auto gains = [&](int64_t size) {
            Values values = {1, size, std::vector<float>(static_cast<size_t>(size))};
            for (float& value : values.all) value = 1.0F + 0.3F * normal(random);
            return values;
        };
        const auto expert = [&] {
            return Expert{make(k_ff, k_hidden), make(k_ff, k_hidden), make(k_hidden, k_ff)};
        };
        embedding = make(k_vocab, k_hidden);
        for (int64_t i = 0; i < k_layers; ++i) {
            Layer& layer = layers.emplace_back();
            layer.attn_norm = gains(k_hidden);
            layer.wq = make(k_heads * k_head_dim, k_hidden);
            layer.wk = make(k_kv_heads * k_head_dim, k_hidden);
            layer.wv = make(k_kv_heads * k_head_dim, k_hidden);
            layer.q_norm = gains(k_head_dim);
            layer.k_norm = gains(k_head_dim);
            layer.wo = make(k_hidden, k_heads * k_head_dim);
            layer.ffn_norm = gains(k_hidden);
            layer.router = make(k_experts, k_hidden);
            for (int64_t e = 0; e < k_experts; ++e) layer.experts.push_back(expert());
            layer.shared.push_back(expert());
            layer.expert_weights = weights_of(layer.experts);
            layer.shared_weights = weights_of(layer.shared);
        }
        output_norm = gains(k_hidden);
        output = make(k_vocab, k_hidden);
        for (int64_t i = 0; i < k_rotary_dim / 2; ++i)
            rope_frequency.push_back(std::pow(10000.0F, -2.0F * static_cast<float>(i) / k_rotary_dim));
    }
};

// ---- plain loops ----

void rotate(const Net& net, Row& heads, size_t position) {
    for (size_t head = 0; head < heads.size(); head += k_head_dim) {
        for (size_t i = 0; i < net.rope_frequency.size(); ++i) {
            const double theta = static_cast<double>(position) * static_cast<double>(net.rope_frequency[i]);
            double& first = heads[head + i];
            double& second = heads[head + i + net.rope_frequency.size()];
            const double a = first;
            const double b = second;
            first = a * std::cos(theta) - b * std::sin(theta);
            second = b * std::cos(theta) + a * std::sin(theta);
        }
    }
}

Row attention(const Row& q, const std::vector<Row>& k, const std::vector<Row>& v) {
    Row out(q.size(), 0.0);
    for (size_t head = 0; head < k_heads; ++head) {
        const size_t kv_at = head / (k_heads / k_kv_heads) * k_head_dim;
        Row p(k.size(), 0.0);
        for (size_t t = 0; t < k.size(); ++t)
            for (size_t c = 0; c < k_head_dim; ++c) p[t] += q[head * k_head_dim + c] * k[t][kv_at + c];
        double sum = 0.0;
        for (double& score : p) sum += score = std::exp(score / std::sqrt(static_cast<double>(k_head_dim)));
        for (size_t t = 0; t < k.size(); ++t)
            for (size_t c = 0; c < k_head_dim; ++c)
                out[head * k_head_dim + c] += p[t] / sum * v[t][kv_at + c];
    }
    return out;
}

void add(Row& x, const Row& y, double factor = 1.0) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += factor * y[i];
}

void add_experts(const Layer& layer, Row& x) {
    const Row h = layer.ffn_norm.norm(x);
    Row p = layer.router.times(h);
    for (double& score : p) score = std::exp(score);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](size_t e) { return p[e]; });
    order.resize(k_used);
    double sum = 0.0;
    for (const size_t e : order) sum += p[e];
    for (const size_t e : order) add(x, layer.experts[e].output(h), p[e] / sum);
    add(x, layer.shared.front().output(h));
}

std::vector<double> plain_logits(const Net& net, const std::vector<int32_t>& ids) {
    std::vector<Row> rows;
    for (const int32_t id : ids) {
        const float* row = net.embedding.all.data() + id * k_hidden;
        rows.emplace_back(row, row + k_hidden);
    }
    for (const Layer& layer : net.layers) {
        std::vector<Row> k, v;
        for (size_t t = 0; t < rows.size(); ++t) {
            const Row h = layer.attn_norm.norm(rows[t]);
            Row q = layer.q_norm.norm(layer.wq.times(h));
            k.push_back(layer.k_norm.norm(layer.wk.times(h)));
            v.push_back(layer.wv.times(h));
            rotate(net, q, t);
            rotate(net, k.back(), t);
            add(rows[t], layer.wo.times(attention(q, k, v)));
        }
        for (Row& row : rows) add_experts(layer, row);
    }
    std::vector<double> logits;
    for (const Row& row : rows) {
        const Row y = net.output.times(net.output_norm.norm(row));
        logits.insert(logits.end(), y.begin(), y.end());
    }
    return logits;
}

// ---- the same equations, driven by the runtime ----

// Works only on backends that compute synchronously in host memory.
void choose_by_softmax(const Layer& layer, const Activations& a) {
    a.backend.norm(a.scratch, a.x, a.n, layer.ffn_norm.vector(), k_eps, a.h);
    std::vector<float> scores(static_cast<size_t>(a.n * k_experts));
    const Matrix router = layer.router.matrix();
    const LinearTask task = {&router, scores.data(), false};
    a.backend.linear(a.scratch, a.h, a.n, {&task, 1});
    for (int64_t row = 0; row < a.n; ++row) {
        const float* score = scores.data() + row * k_experts;
        std::array<int32_t, k_experts> order = {};
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, std::greater(), [&](int32_t e) { return score[e]; });
        float sum = 0.0F;
        for (int64_t i = 0; i < k_used; ++i) sum += std::exp(score[order[static_cast<size_t>(i)]]);
        for (int64_t i = 0; i < k_used; ++i) {
            const int32_t expert = order[static_cast<size_t>(i)];
            a.ids[row * k_used + i] = expert;
            a.gates[row * k_used + i] = std::exp(score[expert]) / sum;
        }
    }
}

void attend(const Net& net, const Layer& layer, int64_t kv_layer, const Activations& a) {
    a.backend.norm(a.scratch, a.x, a.n, layer.attn_norm.vector(), k_eps, a.h);
    const std::array weights = {layer.wq.matrix(), layer.wk.matrix(), layer.wv.matrix()};
    const LinearTask qkv[] = {
        {&weights[0], a.q, false}, {&weights[1], a.k, false}, {&weights[2], a.v, false}};
    a.backend.linear(a.scratch, a.h, a.n, qkv);
    a.backend.attend(a.scratch, {.n = a.n,
                                 .q = a.q,
                                 .k = a.k,
                                 .v = a.v,
                                 .o = a.o,
                                 .rows = a.places,
                                 .layer = kv_layer,
                                 .n_head = k_heads,
                                 .n_head_kv = k_kv_heads,
                                 .head_dim = k_head_dim,
                                 .q_norm = layer.q_norm.vector(),
                                 .k_norm = layer.k_norm.vector(),
                                 .norm_eps = k_eps,
                                 .rope_frequency = net.rope_frequency});
}

runtime::Architecture architecture(const Net& net) {
    const auto layer_at = [&net](int64_t layer) -> const Layer& {
        return net.layers[static_cast<size_t>(layer)];
    };
    runtime::Architecture second;
    second.shape = k_shape;
    second.n_layer = k_layers;
    second.embed = [&net](const Activations& a, std::span<const int32_t> tokens) {
        a.backend.embed(a.scratch, net.embedding.matrix(), tokens, a.x);
    };
    second.attend = [&net, layer_at](const Activations& a, int64_t layer, int64_t kv_layer) {
        attend(net, layer_at(layer), kv_layer, a);
    };
    second.add_attention = [layer_at](const Activations& a, int64_t layer) {
        const Matrix wo = layer_at(layer).wo.matrix();
        const LinearTask task = {&wo, a.x, true};
        a.backend.linear(a.scratch, a.o, a.n, {&task, 1});
    };
    second.choose_experts = [layer_at](const Activations& a, int64_t layer) {
        choose_by_softmax(layer_at(layer), a);
    };
    second.normalise_on_another_stage = [layer_at](const backend::Backend& device, backend::Scratch& scratch,
                                                   const float* x, int64_t n, int64_t layer, float* h) {
        device.norm(scratch, x, n, layer_at(layer).ffn_norm.vector(), k_eps, h);
    };
    second.experts = [layer_at](int64_t layer) -> const backend::ExpertWeights& {
        return layer_at(layer).expert_weights;
    };
    second.dense = [layer_at](int64_t layer) -> const backend::ExpertWeights& {
        return layer_at(layer).shared_weights;
    };
    second.normalise_output = [&net](const Activations& a) {
        a.backend.norm(a.scratch, a.x, a.n, net.output_norm.vector(), k_eps, a.h);
    };
    second.project = [&net](const backend::Backend& device, backend::Scratch& scratch, const float* h,
                            int64_t n, float* logits) {
        const Matrix head = net.output.matrix();
        const LinearTask task = {&head, logits, false};
        device.linear(scratch, h, n, {&task, 1});
    };
    return second;
}

// Returns the logits of every position, evaluated in steps of `chunk` rows.
std::vector<float> logits_on(const std::vector<runtime::Stage>& stages, const Net& net,
                             const std::vector<int32_t>& ids, size_t chunk) {
    std::vector<kv::DeviceLayers> parts;
    for (const runtime::Stage& stage : stages) parts.push_back({stage.backend, stage.n_layer});
    const auto pool = std::make_shared<kv::PagePool>(
        backend::KvLayout{k_layers, k_kv_heads, k_head_dim, Format::f32, Format::f32}, std::move(parts));
    const auto n = static_cast<int64_t>(ids.size());
    kv::Sequence sequence(pool, n);
    sequence.hold(0, n);
    runtime::StepSpace space(stages, k_shape, static_cast<int64_t>(chunk), n);
    const runtime::ForwardPass forward(stages, architecture(net));
    std::vector<float> logits(ids.size() * k_vocab);
    for (size_t first = 0; first < ids.size(); first += chunk) {
        std::vector<runtime::StepRow> rows;
        for (size_t i = first; i < std::min(first + chunk, ids.size()); ++i)
            rows.push_back({ids[i], {&sequence.view(), static_cast<int64_t>(i)}, true});
        forward.step(rows, space, logits.data() + first * k_vocab, nullptr);
    }
    return logits;
}

std::shared_ptr<const backend::Backend> backend_named(const char* name) {
    return placement::make_backend(name, std::make_shared<ThreadPool>(2), active_cpu_level());
}

std::vector<int32_t> some_tokens() {
    std::vector<int32_t> ids(k_positions);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((17 * i + 5) % k_vocab);
    return ids;
}

}  // namespace

TEST_CASE(
    "an architecture with a softmax router, a norm for each head and a shared expert equals plain loops") {
    const Net net;
    const std::vector<int32_t> ids = some_tokens();
    const std::vector<double> expected = plain_logits(net, ids);
    for (const char* name : {"reference", "cpu"}) {
        INFO(name);
        const auto device = backend_named(name);
        const auto whole = logits_on({{device, k_layers}}, net, ids, k_positions);
        CHECK(relative_rms(whole, expected) < 1e-5);
        CHECK(relative_rms(logits_on({{device, k_layers}}, net, ids, 1), expected) < 1e-5);
    }
}

TEST_CASE("the layers and experts of another architecture lie on several devices and give the same bits") {
    const Net net;
    const std::vector<int32_t> ids = some_tokens();
    const auto first = backend_named("cpu");
    const auto second = backend_named("cpu");
    const auto whole = logits_on({{first, k_layers}}, net, ids, k_positions);
    const auto cut = logits_on({{first, 1}, {second, k_layers - 1}}, net, ids, 4);
    CHECK(same_bits(cut, whole));
    const auto offloaded = logits_on({{first, k_layers, {second, first, second}}}, net, ids, 4);
    CHECK(same_bits(offloaded, whole));
}

}  // namespace minim::test
