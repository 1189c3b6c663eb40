// SPDX-License-Identifier: Apache-2.0
#include "synthetic.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/expert_pools.h"
#include "model/m3_config.h"
#include "model/roles.h"
#include "random_bytes.h"
#include "reference/reference_backend.h"
#include "support/upload_places.h"

namespace minim::bench {
namespace {

using backend::Backend;
using backend::Matrix;
using model::Role;
using weights::Use;
using weights::WeightSpec;

// The alignment of every matrix: for a cache line on the host, for a wide load on a GPU.
constexpr uint64_t k_alignment = 256;
// The maximum number of random bytes that are on the host at a time.
constexpr uint64_t k_piece_bytes = uint64_t{16} << 20;
// The scale of what a layer adds to the residual stream. Random bytes are mostly numbers of one sign, and without the
// scale, what layers add would soon outweigh the token. Then nearly all tokens would choose the same experts.
constexpr float k_faint = 0x1p-64F;

// Subtracts the means of a row, so that what all tokens have in common does not change its product. Even and odd
// columns have means of their own, as lower and upper bytes of 16 bits do.
void centre(std::span<float> row) {
    double sum[2] = {};
    for (size_t c = 0; c < row.size(); ++c) sum[c % 2] += row[c];
    for (size_t c = 0; c < row.size(); ++c)
        row[c] -= static_cast<float>(sum[c % 2] / (0.5 * static_cast<double>(row.size())));
}

uint64_t aligned_bytes(const WeightSpec& weight, Format format) {
    return align_up(static_cast<uint64_t>(weight.rows * row_bytes(format, weight.cols)), k_alignment);
}

// The weights of a model of this shape, as a checkpoint would list them.
class Specs {
  public:
    explicit Specs(const SyntheticShape& shape) : shape_(shape) {}

    std::vector<WeightSpec> make() {
        const int64_t q_width = shape_.n_head * shape_.head_dim;
        const int64_t kv_width = shape_.n_head_kv * shape_.head_dim;
        const int64_t hidden = shape_.hidden;
        add(Role::embedding, Use::rows, shape_.head_format, shape_.n_vocab, hidden);
        for (layer_ = 0; layer_ < shape_.n_layer; ++layer_) {
            const bool is_m3 = shape_.family == model::Family::m3;  // with norms of single heads
            vector(Role::attn_norm, hidden);
            add(Role::wq, Use::product, shape_.dense_format, q_width, hidden);
            add(Role::wk, Use::product, shape_.dense_format, kv_width, hidden);
            add(Role::wv, Use::product, shape_.dense_format, kv_width, hidden);
            if (is_m3 && shape_.has_experts(layer_)) {
                add(Role::index_q, Use::product, shape_.dense_format, shape_.index.n_head * shape_.index.dim,
                    hidden);
                add(Role::index_k, Use::product, shape_.dense_format, shape_.index.dim, hidden);
                vector(Role::index_q_norm, shape_.index.dim);
                vector(Role::index_k_norm, shape_.index.dim);
            }
            add(Role::wo, Use::product, shape_.dense_format, hidden, q_width);
            vector(Role::q_norm, is_m3 ? shape_.head_dim : q_width);
            vector(Role::k_norm, is_m3 ? shape_.head_dim : kv_width);
            vector(Role::ffn_norm, hidden);
            if (!shape_.has_experts(layer_)) {
                dense(shape_.dense_ff);
                continue;
            }
            add(Role::router, Use::rows, Format::f32, shape_.n_expert, hidden);
            if (shape_.has_router_bias) vector(Role::router_bias, shape_.n_expert);
            vector(Role::experts_norm, hidden);
            if (shape_.shared_ff > 0) dense(shape_.shared_ff);
            experts(Role::gate, shape_.gate_format, shape_.expert_ff, hidden);
            experts(Role::up, shape_.up_format, shape_.expert_ff, hidden);
            experts(Role::down, shape_.down_format, hidden, shape_.expert_ff);
        }
        layer_ = -1;
        vector(Role::output_norm, hidden);
        add(Role::output, Use::product, shape_.head_format, shape_.n_vocab, hidden);
        return std::move(all_);
    }

  private:
    void add(Role role, Use use, Format format, int64_t rows, int64_t cols, int64_t expert = -1) {
        uint64_t bytes = 0;
        if (!row_bytes(format, static_cast<uint64_t>(cols), bytes))
            fail(Status::invalid, "rows of {} are not whole blocks of {}", cols, traits(format).name);
        all_.push_back({.role = static_cast<int32_t>(role),
                        .layer = static_cast<int32_t>(layer_),
                        .expert = static_cast<int32_t>(expert),
                        .use = use,
                        .format = format,
                        .rows = rows,
                        .cols = cols,
                        .row_bytes = static_cast<int64_t>(bytes)});
    }
    void vector(Role role, int64_t size) { add(role, Use::vector, Format::f32, 1, size); }
    void dense(int64_t ff) {
        add(Role::dense_gate, Use::product, shape_.dense_format, ff, shape_.hidden);
        add(Role::dense_up, Use::product, shape_.dense_format, ff, shape_.hidden);
        add(Role::dense_down, Use::product, shape_.dense_format, shape_.hidden, ff);
    }
    void experts(Role role, Format format, int64_t rows, int64_t cols) {
        for (int64_t e = 0; e < shape_.n_expert; ++e) add(role, Use::product, format, rows, cols, e);
    }

    const SyntheticShape& shape_;
    int64_t layer_ = -1;
    std::vector<WeightSpec> all_;
};

// Returns the bytes of a part with some formats expanded.
uint64_t part_bytes(const weights::DeviceWeights& part, const weights::UnpackedFormats& unpacked) {
    uint64_t total = 0;
    for (const WeightSpec* weight : part.weights)
        total += aligned_bytes(
            *weight, weight->use == Use::product ? unpacked.stored_format(weight->format) : weight->format);
    return total;
}

// Makes the weights of one part, one after another in a block of its device's memory.
class Maker {
  public:
    Maker(const Backend& backend, bool packs, const weights::UnpackedFormats& unpacked, std::byte* block,
          std::mt19937& random)
        : backend_(backend), packs_(packs), unpacked_(unpacked), next_(block), random_(random) {}

    std::vector<Matrix> make(const weights::DeviceWeights& part) {
        std::vector<Matrix> matrices;
        for (const WeightSpec* weight : part.weights) matrices.push_back(matrix(*weight));
        return matrices;
    }

  private:
    // The key of a weight in the first layer that has it. Other layers have the same bytes.
    using Kind = std::tuple<int32_t, int32_t, int64_t>;  // role, expert, columns

    Matrix matrix(const WeightSpec& weight) {
        const bool is_product = weight.use == Use::product;
        Matrix m = {.format = is_product ? unpacked_.stored_format(weight.format) : weight.format,
                    .rows = weight.rows,
                    .cols = weight.cols};
        m.row_bytes = row_bytes(m.format, m.cols);
        m.packed = is_product && packs_ && backend_.packs(m.format);
        const auto role = static_cast<Role>(weight.role);
        if (role == Role::wo || role == Role::down || role == Role::dense_down) m.scale = k_faint;
        const uint64_t bytes = aligned_bytes(weight, m.format);
        std::byte* data = std::exchange(next_, next_ + bytes);
        m.data = data;
        if (role == Role::router) {
            make_router(weight, data);
            return m;
        }
        const auto [first, is_new] = first_of_.try_emplace({weight.role, weight.expert, weight.cols}, data);
        if (!is_new) {
            backend_.copy(data, first->second, bytes);
        } else if (weight.use == Use::vector) {
            const float value = role == Role::router_bias ? 0.0F : 1.0F;
            write(data, std::vector<float>(static_cast<size_t>(weight.cols), value));
        } else {
            write_random(data, bytes, m.format);
            if (m.packed) backend_.pack({&data, 1}, m);
        }
        return m;
    }

    // Writes normally distributed weights: with uniform random bytes all scores would be alike. Each layer has weights
    // of its own, and so its own choices.
    void make_router(const WeightSpec& weight, std::byte* to) {
        std::vector<float> values(static_cast<size_t>(weight.rows * weight.cols));
        std::normal_distribution<float> normal(0.0F, k_router_deviation);
        for (float& value : values) value = normal(random_);
        const auto cols = static_cast<size_t>(weight.cols);
        for (int64_t row = 0; row < weight.rows; ++row)
            centre(std::span(values).subspan(static_cast<size_t>(row) * cols, cols));
        write(to, values);
    }

    void write(std::byte* to, const std::vector<float>& values) const {
        backend_.write(to, reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float));
    }

    void write_random(std::byte* to, uint64_t bytes, Format format) {
        const Buffer piece(std::min(bytes, k_piece_bytes), "random weights");
        RandomBytes random(format, random_());
        for (uint64_t at = 0; at < bytes; at += k_piece_bytes) {
            const uint64_t count = std::min(k_piece_bytes, bytes - at);
            random.fill({piece.data(), count});
            backend_.write(to + at, piece.data(), count);
        }
    }

    const Backend& backend_;
    const bool packs_;
    const weights::UnpackedFormats unpacked_;
    std::byte* next_;
    std::mt19937& random_;
    std::map<Kind, const std::byte*> first_of_;
};

// Adds the tables by which devices find the experts of a layer.
void add_expert_tables(SyntheticModel& made) {
    for (const runtime::Shard& shard : made.placement.shards()) {
        if (shard.backend->uses_host_memory()) continue;
        const auto add_table = [&](backend::ExpertWeights& experts) {
            if (experts.gate.expert.empty()) return;
            made.expert_tables.push_back(test::upload_places(*shard.backend, experts));
            experts.places = reinterpret_cast<const backend::ExpertPlace*>(made.expert_tables.back()->data());
        };
        for (const int64_t layer : shard.expert_layers) add_table(made.weights.layers[layer].experts);
        for (int64_t i = 0; i < shard.n_layer; ++i)
            add_table(made.weights.layers[shard.first_layer + i].dense);
    }
}

model::Config config_of(const SyntheticShape& shape) {
    model::Config config;
    config.name = "synthetic";
    config.n_layer = shape.n_layer;
    config.hidden = shape.hidden;
    config.n_head = shape.n_head;
    config.n_head_kv = shape.n_head_kv;
    config.head_dim = shape.head_dim;
    config.rotary_dim = shape.rotary_dim;
    config.n_expert = shape.n_expert;
    config.n_expert_used = shape.n_expert_used;
    config.expert_ff = shape.expert_ff;
    config.n_vocab = shape.n_vocab;
    config.n_context_train = 196608;
    config.rope_theta = 5e6;
    config.norm_eps = 1e-6F;
    if (shape.family == model::Family::m2) return config;
    config.family = shape.family;
    config.n_dense_layer = shape.n_dense_layer;
    config.dense_ff = shape.dense_ff;
    config.shared_ff = shape.shared_ff;
    config.activation = model::k_m3_activation;
    config.expert_weights_scale = 2.0F;
    config.sparse_attention = shape.index;
    config.first_sparse_layer = shape.n_dense_layer;
    config.n_context_train = 1048576;
    return config;
}

}  // namespace

SyntheticShape m3_shape() {
    SyntheticShape shape;
    shape.n_layer = 3;
    shape.hidden = 6144;
    shape.n_head = 64;
    shape.n_head_kv = 4;
    shape.n_expert = 128;
    shape.n_expert_used = 4;
    shape.expert_ff = 3072;
    shape.family = model::Family::m3;
    shape.n_dense_layer = 1;
    shape.dense_ff = 12288;
    shape.shared_ff = 3072;
    shape.index = {.n_head = 4, .dim = 128, .block = 128, .top = 16, .local = 1, .init = 0};
    return shape;
}

std::unique_ptr<const SyntheticModel> make_synthetic(const SyntheticShape& shape,
                                                     const model::Model::Place& place,
                                                     const SyntheticOptions& options) {
    auto model = std::make_unique<SyntheticModel>();
    SyntheticModel& made = *model;
    made.config = config_of(shape);
    made.specs = Specs(shape).make();
    made.placement = place(made.config, made.specs);
    const std::vector<weights::DeviceWeights> parts = model::parts_of(made.placement, made.specs);
    const bool has_cache =
        std::ranges::any_of(made.placement.stages(), [](const auto& stage) { return stage.cache_bytes > 0; });
    const weights::Expand expand = has_cache ? weights::Expand::off : options.expand;
    // Allocates all memory first, so that a model that does not fit fails before anything is made.
    std::vector<weights::UnpackedFormats> unpacked(parts.size());
    made.placed.resize(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
        const Backend& backend = *parts[i].backend;
        weights::check_formats(parts[i]);
        if (options.packs && backend.host() != nullptr)
            unpacked[i] = weights::choose_unpacked(*backend.host(), parts[i].weights, expand, Logger());
        made.placed[i].device =
            backend.allocate(part_bytes(parts[i], unpacked[i]), "weights", backend::MemoryUse::weights);
    }
    std::mt19937 random(1);
    for (size_t i = 0; i < parts.size(); ++i) {
        Maker maker(*parts[i].backend, options.packs, unpacked[i], made.placed[i].device->data(), random);
        made.placed[i].weights.matrices = maker.make(parts[i]);
    }
    made.weights = model::join(parts, made.placed, made.config);
    add_expert_tables(made);
    std::vector<std::span<const std::byte>> host_memory;
    for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i].backend->uses_host_memory())
            host_memory.emplace_back(made.placed[i].device->data(), made.placed[i].device->size());
    made.pools = model::make_expert_pools(
        made.placement, {made.specs, made.weights, made.reader, host_memory}, options.moves, {}, Logger());
    return model;
}

}  // namespace minim::bench
