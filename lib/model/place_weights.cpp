#include "model/place_weights.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory_info.h"
#include "checkpoint/load_counter.h"
#include "model/pack_weights.h"

namespace minim::model {
namespace {

using backend::Backend;
using backend::ExpertStack;
using backend::Matrix;
using backend::Vector;
using checkpoint::k_load_block_bytes;
using checkpoint::LoadCounter;

// Of every matrix in a device's memory: a cache line on the host, a wide load on a GPU.
constexpr uint64_t k_alignment = 256;

// Everything one device needs, part by part: visit(place of the pointer, bytes).
template <typename Visit>
void visit_matrix(Matrix& matrix, const Visit& visit) {
    visit(matrix.data, static_cast<uint64_t>(matrix.rows * matrix.row_bytes));
}

template <typename Visit>
void visit_vector(Vector& vector, const Visit& visit) {
    if (vector.size == 0) return;
    const auto* data = reinterpret_cast<const std::byte*>(vector.data);
    visit(data, static_cast<uint64_t>(vector.size) * sizeof(float));
    vector.data = reinterpret_cast<const float*>(data);
}

template <typename Visit>
void visit_stack(ExpertStack& stack, const Visit& visit) {
    for (const std::byte*& expert : stack.expert)
        visit(expert, static_cast<uint64_t>(stack.rows * stack.row_bytes));
}

template <typename Visit>
void visit_attention(LayerWeights& layer, const Visit& visit) {
    visit_vector(layer.attn_norm, visit);
    for (Matrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.router})
        visit_matrix(*matrix, visit);
    for (Vector* vector : {&layer.q_norm, &layer.k_norm, &layer.ffn_norm, &layer.router_bias})
        visit_vector(*vector, visit);
}

template <typename Visit>
void visit_experts(LayerWeights& layer, const Visit& visit) {
    for (ExpertStack* stack : {&layer.experts.gate, &layer.experts.up, &layer.experts.down})
        visit_stack(*stack, visit);
}

// Layer after layer, as files have them: visit(layer, whether the share has its attention, its experts).
template <typename Visit>
void visit_layers(const Share& share, Weights& weights, const Visit& visit) {
    size_t next = 0;  // of the expert layers
    for (int64_t i = 0; i < std::ssize(weights.layers); ++i) {
        const bool has_experts = next < share.expert_layers.size() && share.expert_layers[next] == i;
        if (has_experts) ++next;
        visit(weights.layers[static_cast<size_t>(i)], share.has_layer(i), has_experts);
    }
}

template <typename Visit>
void visit_share(const Share& share, Weights& weights, const Visit& visit) {
    if (share.has_embedding) visit_matrix(weights.embedding, visit);
    visit_layers(share, weights, [&](LayerWeights& layer, bool has_attention, bool has_experts) {
        if (has_attention) visit_attention(layer, visit);
        if (has_experts && !has_attention) visit_vector(layer.experts_norm, visit);
        if (has_experts) visit_experts(layer, visit);
    });
    if (share.has_output) {
        visit_vector(weights.output_norm, visit);
        visit_matrix(weights.output, visit);
    }
}

void check_formats(const Share& share, Weights& weights) {
    const auto check = [&](Format format) {
        if (!share.backend->runs(format))
            fail(Status::unsupported, "{} does not compute with weights of {}", share.backend->name(),
                 traits(format).name);
    };
    if (share.has_embedding) check(weights.embedding.format);
    if (share.has_output) check(weights.output.format);
    visit_layers(share, weights, [&](const LayerWeights& layer, bool has_attention, bool has_experts) {
        if (has_attention)
            for (const Matrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.router})
                check(matrix->format);
        if (has_experts)
            for (const ExpertStack* stack : {&layer.experts.gate, &layer.experts.up, &layer.experts.down})
                check(stack->format);
    });
}

// Weights that stay in their files come into memory before they are used, where there is room for them.
void read_ahead_of_host(std::span<const Share> shares, Weights& weights, const CancelToken* cancel) {
    if (host_weight_bytes(shares, weights) > available_memory_bytes()) return;
    for (const Share& share : shares) {
        if (!share.backend->uses_host_memory()) continue;
        visit_share(share, weights, [&](const std::byte* data, uint64_t bytes) {
            throw_if_cancelled(cancel, "loading");
            read_ahead({data, bytes});
        });
    }
}

// Part after part from the start of `memory` on, each at a multiple of k_alignment.
void upload_share(const Share& share, Weights& weights, std::byte* memory, const ReadWeights& read,
                  LoadCounter& counter) {
    UploadRing ring(*share.backend, memory, read, counter);
    std::byte* next = memory;
    visit_share(share, weights, [&](const std::byte*& data, uint64_t bytes) {
        const uint64_t whole = align_up(bytes, k_alignment);
        ring.append(data, bytes);
        ring.skip(whole - bytes);
        data = std::exchange(next, next + whole);
    });
    ring.finish();
}

// The same where the device's memory is the host's.
void read_share(const Share& share, Weights& weights, std::byte* memory, const ReadWeights& read,
                LoadCounter& counter) {
    std::byte* next = memory;
    visit_share(share, weights, [&](const std::byte*& data, uint64_t bytes) {
        for (uint64_t at = 0; at < bytes; at += k_load_block_bytes) {
            const uint64_t count = std::min(k_load_block_bytes, bytes - at);
            read(data + at, {next + at, count});
            counter.add(count);
        }
        data = std::exchange(next, next + align_up(bytes, k_alignment));
    });
}

void pack_share(const Share& share, Weights& weights, const CancelToken* cancel) {
    const auto everything = [](const std::byte* place) { return const_cast<std::byte*>(place); };
    visit_layers(share, weights, [&](LayerWeights& layer, bool has_attention, bool has_experts) {
        if (has_attention) pack_attention(*share.backend, everything, layer, cancel);
        if (has_experts) pack_experts(*share.backend, everything, layer, cancel);
    });
    if (share.has_output) pack_matrix(*share.backend, everything, weights.output, cancel);
}

}  // namespace

uint64_t host_weight_bytes(std::span<const Share> shares, Weights& weights) {
    uint64_t total = 0;
    for (const Share& share : shares) {
        if (!share.backend->uses_host_memory()) continue;
        visit_share(share, weights, [&](const std::byte*, uint64_t bytes) { total += bytes; });
    }
    return total;
}

std::vector<WeightBytes> weight_bytes(std::span<const Share> shares, Weights& weights,
                                      std::span<const std::unique_ptr<backend::Memory>> memory) {
    std::vector<WeightBytes> all(shares.size());
    for (size_t i = 0; i < shares.size(); ++i) {
        const Share& share = shares[i];
        WeightBytes& bytes = all[i];
        visit_layers(share, weights, [&](LayerWeights& layer, bool, bool has_experts) {
            if (!has_experts) return;
            visit_experts(layer, [&](const std::byte*, uint64_t count) { bytes.experts += count; });
        });
        if (!memory.empty() && memory[i] != nullptr) {
            bytes.total = memory[i]->size();
            continue;
        }
        visit_share(share, weights, [&](const std::byte*, uint64_t count) { bytes.total += count; });
        const bool shares_head =
            share.has_embedding && share.has_output && weights.output.data == weights.embedding.data;
        if (shares_head) bytes.total -= static_cast<uint64_t>(weights.output.rows * weights.output.row_bytes);
    }
    return all;
}

uint64_t block_bytes(const Share& share, Weights& weights) {
    uint64_t total = 0;
    visit_share(share, weights,
                [&](const std::byte*, uint64_t bytes) { total += align_up(bytes, k_alignment); });
    return total;
}

std::vector<std::unique_ptr<backend::Memory>> place_weights(std::span<const Share> shares, bool copies_host,
                                                            const ReadWeights& read, Weights& weights,
                                                            const checkpoint::Progress& progress,
                                                            const CancelToken* cancel) {
    if (!copies_host) read_ahead_of_host(shares, weights, cancel);
    const auto stays = [&](const Share& share) { return !copies_host && share.backend->uses_host_memory(); };
    uint64_t total = 0;
    for (const Share& share : shares) {
        if (stays(share)) continue;
        check_formats(share, weights);
        visit_share(share, weights, [&](const std::byte*, uint64_t bytes) { total += bytes; });
    }
    // All memory first: a model that does not fit is known before anything is read.
    std::vector<std::unique_ptr<backend::Memory>> memory;
    for (const Share& share : shares)
        memory.push_back(stays(share) ? nullptr
                                      : share.backend->allocate(block_bytes(share, weights), "weights",
                                                                backend::MemoryUse::weights));

    // Where embedding and head are one tensor, they may lie on two devices, or twice on one.
    LoadCounter counter(total, progress, cancel);
    for (size_t i = 0; i < shares.size(); ++i) {
        if (memory[i] == nullptr) continue;
        if (shares[i].backend->uses_host_memory()) {
            read_share(shares[i], weights, memory[i]->data(), read, counter);
        } else {
            upload_share(shares[i], weights, memory[i]->data(), read, counter);
        }
    }
    for (size_t i = 0; i < shares.size(); ++i)
        if (memory[i] != nullptr) pack_share(shares[i], weights, cancel);
    return memory;
}

}  // namespace minim::model
