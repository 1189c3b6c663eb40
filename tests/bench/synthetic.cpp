#include "synthetic.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/place_weights.h"
#include "random_bytes.h"
#include "reference/reference_backend.h"

namespace minim::bench {
namespace {

using backend::Backend;
using backend::ExpertStack;
using backend::Matrix;
using backend::Vector;

// Of every matrix: a cache line on the host, a wide load on a GPU.
constexpr uint64_t k_alignment = 256;
// Of the random bytes that are on the host at a time.
constexpr uint64_t k_piece_bytes = uint64_t{16} << 20;
// Of what a layer adds to the residual stream: random bytes are numbers of one sign for the most part, and what they make
// of any token soon outweighs the token. Then nearly all tokens would choose the same experts.
constexpr float k_faint = 0x1p-64F;

uint64_t aligned_bytes(const Matrix& m) {
    return align_up(static_cast<uint64_t>(m.rows * m.row_bytes), k_alignment);
}

// Makes a row blind to what all tokens have in common: lower and upper bytes of 16 bits have a mean of their own.
void centre(std::span<float> row) {
    double sum[2] = {};
    for (size_t c = 0; c < row.size(); ++c) sum[c % 2] += row[c];
    for (size_t c = 0; c < row.size(); ++c)
        row[c] -= static_cast<float>(sum[c % 2] / (0.5 * static_cast<double>(row.size())));
}

// The weights of one share, one after another in a block of its device's memory.
class Maker {
  public:
    // Without a block nothing is made, only counted.
    Maker(const Backend& backend, bool packs, const model::ExpandedFormats& expanded, std::byte* block,
          std::mt19937& random)
        : backend_(backend), packs_(packs), expanded_(expanded), block_(block), random_(random) {}

    uint64_t used_bytes() const { return used_bytes_; }

    Matrix matrix(Format format, int64_t rows, int64_t cols) {
        Matrix m = rows_of(expanded_.held(format), rows, cols);
        m.packed = packs_ && backend_.packs(m.format);
        m.data = random_matrices(m, 1);
        return m;
    }

    // Read row by row: never packed.
    Matrix embedding(Format format, int64_t rows, int64_t cols) {
        Matrix m = rows_of(format, rows, cols);
        m.data = random_matrices(m, 1);
        return m;
    }

    ExpertStack stack(Format format, int64_t n_expert, int64_t rows, int64_t cols) {
        Matrix m = rows_of(expanded_.held(format), rows, cols);
        m.packed = packs_ && backend_.packs(m.format);
        const std::byte* data = random_matrices(m, n_expert);
        ExpertStack s;
        s.format = m.format;
        s.rows = rows;
        s.cols = cols;
        s.row_bytes = m.row_bytes;
        s.packed = m.packed;
        for (int64_t e = 0; e < n_expert; ++e) {
            s.expert.push_back(data);
            if (data != nullptr) data += aligned_bytes(m);
        }
        return s;
    }

    // Normal numbers: with bytes drawn evenly all scores would be alike.
    Matrix router(int64_t rows, int64_t cols) {
        Matrix m = rows_of(Format::f32, rows, cols);
        std::byte* data = take(aligned_bytes(m));
        m.data = data;
        if (data == nullptr) return m;
        std::vector<float> values(static_cast<size_t>(rows * cols));
        std::normal_distribution<float> normal(0.0F, 0.02F);
        for (float& value : values) value = normal(random_);
        for (int64_t row = 0; row < rows; ++row)
            centre(std::span(values).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)));
        write(data, values);
        return m;
    }

    Vector ones(int64_t size) {
        const std::vector<float> values(static_cast<size_t>(size), 1.0F);
        std::byte* data = take(align_up(values.size() * sizeof(float), k_alignment));
        if (data != nullptr) write(data, values);
        return {reinterpret_cast<const float*>(data), size};
    }

  private:
    using Kind = std::tuple<Format, int64_t, int64_t, int64_t, bool>;

    Matrix rows_of(Format format, int64_t rows, int64_t cols) const {
        uint64_t bytes = 0;
        if (!row_bytes(format, static_cast<uint64_t>(cols), bytes))
            fail(Status::invalid, "rows of {} are no whole blocks of {}", cols, traits(format).name);
        return {.format = format, .rows = rows, .cols = cols, .row_bytes = static_cast<int64_t>(bytes)};
    }

    std::byte* take(uint64_t bytes) {
        std::byte* place = block_ == nullptr ? nullptr : block_ + used_bytes_;
        used_bytes_ += bytes;
        return place;
    }

    void write(std::byte* to, const std::vector<float>& values) const {
        backend_.write(to, reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float));
    }

    // n matrices of one shape, one after another.
    const std::byte* random_matrices(const Matrix& m, int64_t n) {
        const uint64_t bytes = static_cast<uint64_t>(n) * aligned_bytes(m);
        std::byte* data = take(bytes);
        if (data == nullptr) return nullptr;
        const auto [first, is_new] = first_of_.try_emplace({m.format, m.rows, m.cols, n, m.packed}, data);
        if (!is_new) {
            backend_.copy(data, first->second, bytes);
            return data;
        }
        write_random(data, bytes, m.format);
        if (!m.packed) return data;
        std::vector<std::byte*> places;
        for (int64_t i = 0; i < n; ++i) places.push_back(data + static_cast<uint64_t>(i) * aligned_bytes(m));
        backend_.pack(places, m);
        return data;
    }

    void write_random(std::byte* to, uint64_t bytes, Format format) const {
        const Buffer piece(std::min(bytes, k_piece_bytes), "random weights");
        RandomBytes random(format);
        for (uint64_t at = 0; at < bytes; at += k_piece_bytes) {
            const uint64_t count = std::min(k_piece_bytes, bytes - at);
            random.fill({piece.data(), count});
            backend_.write(to + at, piece.data(), count);
        }
    }

    const Backend& backend_;
    const bool packs_;
    const model::ExpandedFormats expanded_;
    std::byte* const block_;
    std::mt19937& random_;
    uint64_t used_bytes_ = 0;
    std::map<Kind, const std::byte*> first_of_;
};

void make_attention(const SyntheticShape& shape, Maker& maker, model::LayerWeights& layer) {
    const int64_t q_width = shape.n_head * shape.head_dim;
    const int64_t kv_width = shape.n_head_kv * shape.head_dim;
    layer.attn_norm = maker.ones(shape.hidden);
    layer.wq = maker.matrix(shape.dense_format, q_width, shape.hidden);
    layer.wk = maker.matrix(shape.dense_format, kv_width, shape.hidden);
    layer.wv = maker.matrix(shape.dense_format, kv_width, shape.hidden);
    layer.q_norm = maker.ones(q_width);
    layer.k_norm = maker.ones(kv_width);
    layer.wo = maker.matrix(shape.dense_format, shape.hidden, q_width);
    layer.ffn_norm = maker.ones(shape.hidden);
    layer.router = maker.router(shape.n_expert, shape.hidden);
    layer.wo.scale = k_faint;
}

void make_experts(const SyntheticShape& shape, Maker& maker, model::LayerWeights& layer) {
    layer.experts.gate = maker.stack(shape.gate_format, shape.n_expert, shape.expert_ff, shape.hidden);
    layer.experts.up = maker.stack(shape.up_format, shape.n_expert, shape.expert_ff, shape.hidden);
    layer.experts.down = maker.stack(shape.down_format, shape.n_expert, shape.hidden, shape.expert_ff);
    layer.experts.down.scale.assign(static_cast<size_t>(shape.n_expert), k_faint);
}

void make_share(const SyntheticShape& shape, const model::Share& share, Maker& maker,
                model::Weights& weights) {
    if (share.has_embedding)
        weights.embedding = maker.embedding(shape.head_format, shape.n_vocab, shape.hidden);
    for (int64_t i = 0; i < shape.n_layer; ++i) {
        model::LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
        const bool has_experts = std::ranges::binary_search(share.expert_layers, i);
        if (share.has_layer(i)) make_attention(shape, maker, layer);
        if (has_experts && !share.has_layer(i)) layer.experts_norm = maker.ones(shape.hidden);
        if (has_experts) make_experts(shape, maker, layer);
    }
    if (!share.has_output) return;
    weights.output_norm = maker.ones(shape.hidden);
    weights.output = maker.matrix(shape.head_format, shape.n_vocab, shape.hidden);
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
    return config;
}

}  // namespace

SyntheticModel make_synthetic(const SyntheticShape& shape, const model::Model::Split& split, bool packs,
                              model::Expand expand) {
    SyntheticModel made;
    made.config = config_of(shape);
    made.weights.layers.resize(static_cast<size_t>(shape.n_layer));
    std::mt19937 random(1);
    // Layers are split by their sizes.
    const model::Stage whole = {reference::make_reference_backend(), shape.n_layer};
    Maker shapes(*whole.backend, packs, {}, nullptr, random);
    make_share(shape, model::shares_of({&whole, 1}).front(), shapes, made.weights);
    made.stages = split(made.config, made.weights);
    made.shares = model::shares_of(made.stages);
    std::vector<model::ExpandedFormats> expanded(made.shares.size());
    for (size_t i = 0; i < made.shares.size(); ++i) {
        const model::Share& share = made.shares[i];
        model::check_formats(share, made.weights);
        if (packs && share.backend->uses_host_memory())
            expanded[i] = model::choose_expanded(share, made.weights, expand, Logger());
    }
    // All memory first: a model that does not fit is known before anything is made.
    for (const bool makes : {false, true}) {
        for (size_t i = 0; i < made.shares.size(); ++i) {
            const Backend& backend = *made.shares[i].backend;
            Maker maker(backend, packs, expanded[i], makes ? made.memory[i]->data() : nullptr, random);
            make_share(shape, made.shares[i], maker, made.weights);
            if (!makes)
                made.memory.push_back(
                    backend.allocate(maker.used_bytes(), "weights", backend::MemoryUse::weights));
        }
    }
    return made;
}

}  // namespace minim::bench
