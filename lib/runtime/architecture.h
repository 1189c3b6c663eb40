// SPDX-License-Identifier: Apache-2.0
// A model's architecture as the runtime drives it: its equations as functions that call a device's operations. The
// runtime decides where and when each of them runs, and knows nothing else of a model.
//
// A step calls, for rows of one device:
//
//     embed
//     for each layer:  attend, add_attention, choose_experts, experts and dense feed-forward of the layer; or, if a layer has no
//                      experts, attend, add_attention, normalise_dense, dense feed-forward of the layer
//     normalise_output, project
//
// After the last attend() the runtime may leave out the rows whose logits nobody requests. A function issues the same
// operations for the same layer and number of rows in every step, so that a device can record them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "backend/backend.h"
#include "backend/group.h"

namespace minim::runtime {

// The rows of a step on one device, in its memory.
struct Activations {
    const backend::Backend& backend;
    backend::Scratch& scratch;
    int64_t n;             // rows
    float *x, *h;          // [n, hidden]: the residual stream, and the input of the next operation
    float *q, *k, *v, *o;  // [n, n_head * head_dim], [n, n_head_kv * head_dim] twice, o like q
    int32_t* ids;          // [n, n_expert_used]: the experts chosen
    float* gates;          // [n, n_expert_used]: their weights
    std::span<const backend::KvRow> places;  // of each row in the KV cache; valid until attend()
    // The ranks that compute the same layers; null: this device computes them alone.
    backend::Group* group = nullptr;
    float* squares = nullptr;  // [n, 2]: of a group that shares heads
    // Of layers with block-sparse attention: index queries [n, heads * dim] and keys [n, dim].
    float* index_q = nullptr;
    float* index_k = nullptr;
    // Of dense feed-forwards, the choice of expert 0 with the gate 1 by each row: [n] each.
    const int32_t* dense_ids = nullptr;
    const float* dense_gates = nullptr;
};

// Everything that the functions refer to must outlive them.
struct Architecture {
    backend::StepLimits shape;  // without n_rows and n_context
    int64_t n_layer = 0;

    // x = embedding of the tokens.
    std::function<void(const Activations&, std::span<const int32_t> tokens)> embed;
    // o = attention of x. Stores K and V as the cache's layer `kv_layer`. x is unchanged.
    std::function<void(const Activations&, int64_t layer, int64_t kv_layer)> attend;
    // x += projection of o. The ranks of a group that share heads each add their part.
    std::function<void(const Activations&, int64_t layer)> add_attention;
    // Returns whether a layer has experts; empty: every layer has.
    std::function<bool(int64_t layer)> has_experts;
    // h = input of the experts, ids and gates = the chosen ones. x is unchanged.
    std::function<void(const Activations&, int64_t layer)> choose_experts;
    // h = input of the experts, on a device that has a layer's experts but not its attention.
    std::function<void(const backend::Backend&, backend::Scratch&, const float* x, int64_t n, int64_t layer,
                       float* h)>
        normalise_on_another_stage;
    // The weights of a layer's experts, wherever they are.
    std::function<const backend::ExpertWeights&(int64_t layer)> experts;
    // The weights of the feed-forward that every row takes: beside its chosen experts, with their input, or alone in a layer without
    // experts. Empty: no layer has one.
    std::function<const backend::ExpertWeights&(int64_t layer)> dense;
    // h = input of the dense feed-forward of a layer without experts. x is unchanged.
    std::function<void(const Activations&, int64_t layer)> normalise_dense;
    // h = input of project().
    std::function<void(const Activations&)> normalise_output;
    // logits [n, n_vocab] = projection of n rows of h.
    std::function<void(const backend::Backend&, backend::Scratch&, const float* h, int64_t n, float* logits)>
        project;
};

}  // namespace minim::runtime
