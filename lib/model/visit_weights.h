// The weights that one device has, one after another, in an order that never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/stage.h"
#include "model/weights.h"

namespace minim::model {

// What reads a matrix: one row at a time or in float (embedding, router), or linear() and experts(), for which it may
// be packed.
enum class MatrixUse { rows, product };

// visitor.matrix(Matrix&, MatrixUse), visitor.vector(Vector&) for those that are not empty, visitor.stack(ExpertStack&).
// Layers and weights may be const or not.
template <typename AnyVector, typename Visitor>
void visit_vector(AnyVector& vector, Visitor& visitor) {
    if (vector.size > 0) visitor.vector(vector);
}

template <typename Layer, typename Visitor>
void visit_attention(Layer& layer, Visitor& visitor) {
    visit_vector(layer.attn_norm, visitor);
    for (auto* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo})
        visitor.matrix(*matrix, MatrixUse::product);
    visitor.matrix(layer.router, MatrixUse::rows);
    for (auto* vector : {&layer.q_norm, &layer.k_norm, &layer.ffn_norm, &layer.router_bias})
        visit_vector(*vector, visitor);
}

template <typename Layer, typename Visitor>
void visit_experts(Layer& layer, Visitor& visitor) {
    for (auto* stack : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) visitor.stack(*stack);
}

// Layer after layer, as files have them: visit(layer, whether the share has its attention, its experts).
template <typename AnyWeights, typename Visit>
void visit_layers(const Share& share, AnyWeights& weights, const Visit& visit) {
    size_t next = 0;  // of the expert layers
    for (int64_t i = 0; i < std::ssize(weights.layers); ++i) {
        const bool has_experts = next < share.expert_layers.size() && share.expert_layers[next] == i;
        if (has_experts) ++next;
        visit(weights.layers[static_cast<size_t>(i)], share.has_layer(i), has_experts);
    }
}

template <typename AnyWeights, typename Visitor>
void visit_share(const Share& share, AnyWeights& weights, Visitor& visitor) {
    if (share.has_embedding) visitor.matrix(weights.embedding, MatrixUse::rows);
    visit_layers(share, weights, [&](auto& layer, bool has_attention, bool has_experts) {
        if (has_attention) visit_attention(layer, visitor);
        if (has_experts && !has_attention) visit_vector(layer.experts_norm, visitor);
        if (has_experts) visit_experts(layer, visitor);
    });
    if (share.has_output) {
        visit_vector(weights.output_norm, visitor);
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
void visit_bytes(const Share& share, Weights& weights, Visit visit) {
    ByteVisitor<Visit> visitor{std::move(visit)};
    visit_share(share, weights, visitor);
}

}  // namespace minim::model
