#include "synthetic.h"

#include <random>

#include "base/error.h"

namespace minim::bench {
namespace {

// Every 16 bits are a small normal number as F16, BF16 or the upper half of an F32: no scale is infinite, NaN
// or subnormal.
void fill_weights(const Buffer& buffer) {
    uint64_t state = 0x9E3779B97F4A7C15U;
    for (uint64_t i = 0; i < buffer.size() / 8; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        buffer.as<uint64_t>()[i] = ((state ^ (state >> 29)) & 0x0FFF0FFF0FFF0FFFU) | 0x2000200020002000U;
    }
}

class Maker {
  public:
    explicit Maker(SyntheticModel& made) : made_(made) {}

    backend::Matrix matrix(Format format, int64_t rows, int64_t cols) {
        backend::Matrix m = {.data = nullptr, .format = format, .rows = rows, .cols = cols};
        m.row_bytes = row_size(format, cols);
        m.data = take(static_cast<uint64_t>(rows * m.row_bytes));
        return m;
    }

    backend::ExpertStack stack(Format format, int64_t n_expert, int64_t rows, int64_t cols) {
        backend::ExpertStack s;
        s.format = format;
        s.rows = rows;
        s.cols = cols;
        s.row_bytes = row_size(format, cols);
        const std::byte* data = take(static_cast<uint64_t>(n_expert * rows * s.row_bytes));
        for (int64_t e = 0; e < n_expert; ++e) s.expert.push_back(data + e * rows * s.row_bytes);
        return s;
    }

    backend::Vector ones(int64_t size) {
        std::vector<float>& values = made_.weights.widened.emplace_back(static_cast<size_t>(size), 1.0F);
        return {values.data(), size};
    }

    // Normal numbers: with bytes drawn evenly all scores would be alike.
    backend::Matrix router(int64_t rows, int64_t cols) {
        const Buffer& buffer =
            made_.memory.emplace_back(static_cast<uint64_t>(rows * cols) * sizeof(float), "router");
        std::normal_distribution<float> normal(0.0F, 0.02F);
        for (int64_t i = 0; i < rows * cols; ++i) buffer.as<float>()[i] = normal(random_);
        return {.data = buffer.data(),
                .format = Format::f32,
                .rows = rows,
                .cols = cols,
                .row_bytes = cols * static_cast<int64_t>(sizeof(float))};
    }

  private:
    static int64_t row_size(Format format, int64_t cols) {
        uint64_t bytes = 0;
        if (!row_bytes(format, static_cast<uint64_t>(cols), bytes)) {
            fail(Status::invalid, "rows of {} are no whole blocks of {}", cols, traits(format).name);
        }
        return static_cast<int64_t>(bytes);
    }

    const std::byte* take(uint64_t bytes) {
        const Buffer& buffer = made_.memory.emplace_back((bytes + 7) / 8 * 8, "synthetic weights");
        fill_weights(buffer);
        return buffer.data();
    }

    SyntheticModel& made_;
    std::mt19937 random_{1};
};

}  // namespace

SyntheticModel make_synthetic(const SyntheticShape& shape) {
    SyntheticModel made;
    model::Config& config = made.config;
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

    Maker maker(made);
    const int64_t q_width = shape.n_head * shape.head_dim;
    const int64_t kv_width = shape.n_head_kv * shape.head_dim;
    made.weights.embedding = maker.matrix(shape.dense_format, shape.n_vocab, shape.hidden);
    for (int64_t i = 0; i < shape.n_layer; ++i) {
        model::LayerWeights& layer = made.weights.layers.emplace_back();
        layer.attn_norm = maker.ones(shape.hidden);
        layer.wq = maker.matrix(shape.dense_format, q_width, shape.hidden);
        layer.wk = maker.matrix(shape.dense_format, kv_width, shape.hidden);
        layer.wv = maker.matrix(shape.dense_format, kv_width, shape.hidden);
        layer.q_norm = maker.ones(q_width);
        layer.k_norm = maker.ones(kv_width);
        layer.wo = maker.matrix(shape.dense_format, shape.hidden, q_width);
        layer.ffn_norm = maker.ones(shape.hidden);
        layer.router = maker.router(shape.n_expert, shape.hidden);
        layer.experts.gate = maker.stack(shape.experts_format, shape.n_expert, shape.expert_ff, shape.hidden);
        layer.experts.up = maker.stack(shape.experts_format, shape.n_expert, shape.expert_ff, shape.hidden);
        layer.experts.down = maker.stack(shape.experts_format, shape.n_expert, shape.hidden, shape.expert_ff);
    }
    made.weights.output_norm = maker.ones(shape.hidden);
    made.weights.output = maker.matrix(shape.dense_format, shape.n_vocab, shape.hidden);
    return made;
}

}  // namespace minim::bench
