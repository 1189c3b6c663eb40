// The weights of a stage, one after another, in an order that never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/stage.h"
#include "model/weights.h"

namespace minim::model {

struct StageOfWeights {
    size_t index;
    int64_t first_layer;
    int64_t n_layer;
    bool is_first;
    bool is_last;
};

inline std::vector<StageOfWeights> parts_of(std::span<const Stage> stages) {
    std::vector<StageOfWeights> parts;
    int64_t first_layer = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
        parts.push_back({i, first_layer, stages[i].n_layer, i == 0, i + 1 == stages.size()});
        first_layer += stages[i].n_layer;
    }
    return parts;
}

// What reads a matrix: one row at a time or in float (embedding, router), or linear() and experts(), for which it may
// be packed.
enum class MatrixUse { rows, product };

// visitor.matrix(Matrix&, MatrixUse), visitor.vector(Vector&) for those that are not empty, visitor.stack(ExpertStack&).
// `Layer` and `AnyWeights` are LayerWeights and Weights, const or not.
template <typename Layer, typename Visitor>
void visit_layer(Layer& layer, Visitor& visitor) {
    const auto vector = [&](auto& v) {
        if (v.size > 0) visitor.vector(v);
    };
    vector(layer.attn_norm);
    for (auto* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo})
        visitor.matrix(*matrix, MatrixUse::product);
    visitor.matrix(layer.router, MatrixUse::rows);
    for (auto* v : {&layer.q_norm, &layer.k_norm, &layer.ffn_norm, &layer.router_bias}) vector(*v);
    for (auto* stack : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) visitor.stack(*stack);
}

template <typename AnyWeights, typename Visitor>
void visit_stage(AnyWeights& weights, const StageOfWeights& stage, Visitor& visitor) {
    if (stage.is_first) visitor.matrix(weights.embedding, MatrixUse::rows);
    for (int64_t i = 0; i < stage.n_layer; ++i)
        visit_layer(weights.layers[static_cast<size_t>(stage.first_layer + i)], visitor);
    if (stage.is_last) {
        if (weights.output_norm.size > 0) visitor.vector(weights.output_norm);
        visitor.matrix(weights.output, MatrixUse::product);
    }
}

inline uint64_t bytes_of(const backend::Matrix& matrix) {
    return static_cast<uint64_t>(matrix.rows * matrix.row_bytes);
}

// The same as blocks of bytes: visit(place of the pointer, bytes).
template <typename Visit>
struct ByteVisitor {
    Visit visit;

    void matrix(backend::Matrix& matrix, MatrixUse) { visit(matrix.data, bytes_of(matrix)); }
    void vector(backend::Vector& vector) {
        const auto* data = reinterpret_cast<const std::byte*>(vector.data);
        visit(data, static_cast<uint64_t>(vector.size) * sizeof(float));
        vector.data = reinterpret_cast<const float*>(data);
    }
    void stack(backend::ExpertStack& stack) {
        for (const std::byte*& expert : stack.expert)
            visit(expert, static_cast<uint64_t>(stack.rows * stack.row_bytes));
    }
};

template <typename Visit>
void visit_bytes(Weights& weights, const StageOfWeights& stage, Visit visit) {
    ByteVisitor<Visit> visitor{std::move(visit)};
    visit_stage(weights, stage, visitor);
}

}  // namespace minim::model
