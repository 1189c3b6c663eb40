// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include "base/hash.h"
#include "model/roles.h"

namespace minim::model {
namespace {

using backend::ExpertStack;
using backend::Matrix;
using backend::Vector;
using runtime::Shard;
using weights::DeviceWeights;
using weights::WeightSpec;

Vector vector_of(const Matrix& matrix) {
    return {reinterpret_cast<const float*>(matrix.data), matrix.cols};
}

// Adds an expert to a stack. Those before it that are not added are absent.
void add_expert(int64_t expert, const Matrix& matrix, ExpertStack& stack) {
    stack.format = matrix.format;
    stack.rows = matrix.rows;
    stack.cols = matrix.cols;
    stack.row_bytes = matrix.row_bytes;
    stack.packed = matrix.packed;
    stack.expert.resize(expert);
    stack.scale.resize(expert, 1.0F);
    stack.expert.push_back(matrix.data);
    stack.scale.push_back(matrix.scale);
    if (matrix.blocks == nullptr) return;
    stack.blocks.resize(expert, matrix.blocks);  // kernels divide work by those of any expert
    stack.blocks.push_back(matrix.blocks);
}

void set_of_layer(const WeightSpec& weight, const Matrix& matrix, LayerWeights& layer) {
    const auto role = static_cast<Role>(weight.role);
    switch (role) {
        case Role::attn_norm:
            layer.attn_norm = vector_of(matrix);
            break;
        case Role::wq:
            layer.wq = matrix;
            break;
        case Role::wk:
            layer.wk = matrix;
            break;
        case Role::wv:
            layer.wv = matrix;
            break;
        case Role::index_q:
            layer.index_q = matrix;
            break;
        case Role::index_k:
            layer.index_k = matrix;
            break;
        case Role::index_q_norm:
            layer.index_q_norm = vector_of(matrix);
            break;
        case Role::index_k_norm:
            layer.index_k_norm = vector_of(matrix);
            break;
        case Role::wo:
            layer.wo = matrix;
            break;
        case Role::router:
            layer.router = matrix;
            break;
        case Role::q_norm:
            layer.q_norm = vector_of(matrix);
            break;
        case Role::k_norm:
            layer.k_norm = vector_of(matrix);
            break;
        case Role::ffn_norm:
            layer.ffn_norm = vector_of(matrix);
            break;
        case Role::router_bias:
            layer.router_bias = vector_of(matrix);
            break;
        case Role::experts_norm:
            layer.experts_norm = vector_of(matrix);
            break;
        case Role::gate:
            add_expert(weight.expert, matrix, layer.experts.gate);
            break;
        case Role::up:
            add_expert(weight.expert, matrix, layer.experts.up);
            break;
        case Role::down:
            add_expert(weight.expert, matrix, layer.experts.down);
            break;
        case Role::dense_gate:
            add_expert(0, matrix, layer.dense.gate);
            break;
        case Role::dense_up:
            add_expert(0, matrix, layer.dense.up);
            break;
        case Role::dense_down:
            add_expert(0, matrix, layer.dense.down);
            break;
        case Role::embedding:
        case Role::output_norm:
        case Role::output:
            break;  // of no layer
    }
}

void set(const WeightSpec& weight, const Matrix& matrix, Weights& all) {
    const auto role = static_cast<Role>(weight.role);
    if (weight.layer >= 0) return set_of_layer(weight, matrix, all.layers[weight.layer]);
    if (role == Role::embedding) all.embedding = matrix;
    if (role == Role::output_norm) all.output_norm = vector_of(matrix);
    if (role == Role::output) all.output = matrix;
}

// Returns whether all factors of a stack are 1; kernels then need none.
bool has_no_factors(const ExpertStack& stack) {
    for (const float scale : stack.scale)
        if (scale != 1.0F) return false;
    return true;
}

}  // namespace

bool has(const Shard& shard, const WeightSpec& weight) {
    const auto role = static_cast<Role>(weight.role);
    if (role == Role::embedding) return shard.has_embedding;
    if (weight.layer < 0) return shard.has_output;
    if (weight.is_expert()) return shard.has_experts_of(weight.layer);
    if (role == Role::experts_norm)
        return shard.has_experts_of(weight.layer) && !shard.has_layer(weight.layer);
    return shard.has_layer(weight.layer);
}

DeviceWeights part_of(const Shard& shard, std::span<const WeightSpec> weights) {
    DeviceWeights part{shard.backend.get(), {}, shard.backend->host()};
    for (const WeightSpec& weight : weights)
        if (has(shard, weight)) part.weights.push_back(&weight);
    return part;
}

std::vector<DeviceWeights> parts_of(const runtime::Placement& placement,
                                    std::span<const WeightSpec> weights) {
    std::vector<DeviceWeights> parts;
    for (const Shard& shard : placement.shards()) parts.push_back(part_of(shard, weights));
    return parts;
}

uint64_t hash_of(const Shard& shard) {
    const int64_t numbers[] = {shard.first_layer, shard.n_layer, shard.has_embedding ? 1 : 0,
                               shard.has_output ? 1 : 0};
    const int32_t share[] = {shard.share.rank, shard.share.tensor, shard.share.expert_groups,
                             shard.share.expert_parts};
    uint64_t hash = hash_bytes(std::as_bytes(std::span(shard.backend->name())));
    hash = hash_bytes(std::as_bytes(std::span(numbers)), hash);
    if (shard.share != runtime::RankShare()) hash = hash_bytes(std::as_bytes(std::span(share)), hash);
    if (shard.share.divides_dense())
        hash = hash_bytes(std::as_bytes(std::span(&shard.share.dense_parts, 1)), hash);
    return hash_bytes(std::as_bytes(std::span(shard.expert_layers)), hash);
}

Weights join(std::span<const DeviceWeights> parts, std::span<const weights::PlacedWeights> placed,
             const Config& config) {
    Weights all;
    all.layers.resize(config.n_layer);
    for (size_t p = 0; p < parts.size(); ++p)
        for (size_t i = 0; i < parts[p].weights.size(); ++i)
            set(*parts[p].weights[i], placed[p].weights.matrices[i], all);
    for (LayerWeights& layer : all.layers) {
        if (layer.experts_norm.size == 0) layer.experts_norm = layer.ffn_norm;
        for (backend::ExpertWeights* experts : {&layer.experts, &layer.dense}) {
            experts->activation = config.activation;
            for (ExpertStack* stack : {&experts->gate, &experts->up, &experts->down})
                if (has_no_factors(*stack)) stack->scale.clear();
        }
    }
    return all;
}

}  // namespace minim::model
