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
void visit_layer(LayerWeights& layer, const Visit& visit) {
    visit_vector(layer.attn_norm, visit);
    for (Matrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.router})
        visit_matrix(*matrix, visit);
    for (Vector* vector : {&layer.q_norm, &layer.k_norm, &layer.ffn_norm, &layer.router_bias})
        visit_vector(*vector, visit);
    for (ExpertStack* stack : {&layer.experts.gate, &layer.experts.up, &layer.experts.down})
        visit_stack(*stack, visit);
}

struct StageOfWeights {
    size_t index;
    int64_t first_layer;
    int64_t n_layer;
    bool is_first;
    bool is_last;
};

std::vector<StageOfWeights> parts_of(std::span<const Stage> stages) {
    std::vector<StageOfWeights> parts;
    int64_t first_layer = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
        parts.push_back({i, first_layer, stages[i].n_layer, i == 0, i + 1 == stages.size()});
        first_layer += stages[i].n_layer;
    }
    return parts;
}

template <typename Visit>
void visit_stage(Weights& weights, const StageOfWeights& stage, const Visit& visit) {
    if (stage.is_first) visit_matrix(weights.embedding, visit);
    for (int64_t i = 0; i < stage.n_layer; ++i)
        visit_layer(weights.layers[static_cast<size_t>(stage.first_layer + i)], visit);
    if (stage.is_last) {
        visit_vector(weights.output_norm, visit);
        visit_matrix(weights.output, visit);
    }
}

void check_formats(Weights& weights, const StageOfWeights& stage, const Backend& backend) {
    const auto check = [&](Format format) {
        if (!backend.runs(format))
            fail(Status::unsupported, "{} does not compute with weights of {}", backend.name(),
                 traits(format).name);
    };
    if (stage.is_first) check(weights.embedding.format);
    if (stage.is_last) check(weights.output.format);
    for (int64_t i = 0; i < stage.n_layer; ++i) {
        const LayerWeights& layer = weights.layers[static_cast<size_t>(stage.first_layer + i)];
        for (const Matrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.router})
            check(matrix->format);
        for (const ExpertStack* stack : {&layer.experts.gate, &layer.experts.up, &layer.experts.down})
            check(stack->format);
    }
}

// Weights that stay in their files come into memory before they are used, where there is room for them.
void read_ahead_of_host(std::span<const Stage> stages, std::span<const StageOfWeights> parts,
                        Weights& weights, const CancelToken* cancel) {
    if (host_weight_bytes(stages, weights) > available_memory_bytes()) return;
    for (const StageOfWeights& part : parts) {
        if (!stages[part.index].backend->uses_host_memory()) continue;
        visit_stage(weights, part, [&](const std::byte* data, uint64_t bytes) {
            throw_if_cancelled(cancel, "loading");
            read_ahead({data, bytes});
        });
    }
}

// Part after part from the start of `memory` on, each at a multiple of k_alignment.
void upload_stage(Weights& weights, const StageOfWeights& stage, const Backend& backend, std::byte* memory,
                  const ReadWeights& read, LoadCounter& counter) {
    UploadRing ring(backend, memory, read, counter);
    std::byte* next = memory;
    visit_stage(weights, stage, [&](const std::byte*& data, uint64_t bytes) {
        const uint64_t whole = align_up(bytes, k_alignment);
        ring.append(data, bytes);
        ring.skip(whole - bytes);
        data = std::exchange(next, next + whole);
    });
    ring.finish();
}

// The same where the device's memory is the host's.
void read_stage(Weights& weights, const StageOfWeights& stage, std::byte* memory, const ReadWeights& read,
                LoadCounter& counter) {
    std::byte* next = memory;
    visit_stage(weights, stage, [&](const std::byte*& data, uint64_t bytes) {
        for (uint64_t at = 0; at < bytes; at += k_load_block_bytes) {
            const uint64_t count = std::min(k_load_block_bytes, bytes - at);
            read(data + at, {next + at, count});
            counter.add(count);
        }
        data = std::exchange(next, next + align_up(bytes, k_alignment));
    });
}

}  // namespace

uint64_t host_weight_bytes(std::span<const Stage> stages, Weights& weights) {
    uint64_t total = 0;
    for (const StageOfWeights& part : parts_of(stages)) {
        if (!stages[part.index].backend->uses_host_memory()) continue;
        visit_stage(weights, part, [&](const std::byte*, uint64_t bytes) { total += bytes; });
    }
    return total;
}

std::vector<WeightBytes> weight_bytes(std::span<const Stage> stages, Weights& weights,
                                      std::span<const std::unique_ptr<backend::Memory>> memory) {
    std::vector<WeightBytes> all(stages.size());
    for (const StageOfWeights& part : parts_of(stages)) {
        WeightBytes& bytes = all[part.index];
        for (int64_t i = 0; i < part.n_layer; ++i) {
            backend::ExpertWeights& experts =
                weights.layers[static_cast<size_t>(part.first_layer + i)].experts;
            for (ExpertStack* stack : {&experts.gate, &experts.up, &experts.down})
                visit_stack(*stack, [&](const std::byte*, uint64_t count) { bytes.experts += count; });
        }
        if (!memory.empty() && memory[part.index] != nullptr) {
            bytes.total = memory[part.index]->size();
            continue;
        }
        visit_stage(weights, part, [&](const std::byte*, uint64_t count) { bytes.total += count; });
        const bool shares_head =
            part.is_first && part.is_last && weights.output.data == weights.embedding.data;
        if (shares_head) bytes.total -= static_cast<uint64_t>(weights.output.rows * weights.output.row_bytes);
    }
    return all;
}

std::vector<std::unique_ptr<backend::Memory>> place_weights(std::span<const Stage> stages, bool copies_host,
                                                            const ReadWeights& read, Weights& weights,
                                                            const checkpoint::Progress& progress,
                                                            const CancelToken* cancel) {
    std::vector<StageOfWeights> parts = parts_of(stages);
    if (!copies_host) read_ahead_of_host(stages, parts, weights, cancel);
    std::erase_if(parts, [&](const StageOfWeights& part) {
        return !copies_host && stages[part.index].backend->uses_host_memory();
    });
    uint64_t total = 0;
    std::vector<uint64_t> block_bytes(stages.size());
    for (const StageOfWeights& part : parts) {
        check_formats(weights, part, *stages[part.index].backend);
        visit_stage(weights, part, [&](const std::byte*, uint64_t bytes) {
            total += bytes;
            block_bytes[part.index] += align_up(bytes, k_alignment);
        });
    }
    // All memory first: a model that does not fit is known before anything is read.
    std::vector<std::unique_ptr<backend::Memory>> memory(stages.size());
    for (const StageOfWeights& part : parts)
        memory[part.index] = stages[part.index].backend->allocate(block_bytes[part.index], "weights",
                                                                  backend::MemoryUse::weights);

    // Where embedding and head are one tensor, they may lie on two devices, or twice on one.
    LoadCounter counter(total, progress, cancel);
    for (const StageOfWeights& part : parts) {
        const Backend& backend = *stages[part.index].backend;
        std::byte* data = memory[part.index]->data();
        if (backend.uses_host_memory()) {
            read_stage(weights, part, data, read, counter);
        } else {
            upload_stage(weights, part, backend, data, read, counter);
        }
    }
    for (const StageOfWeights& part : parts) {
        const auto everything = [](const std::byte* place) { return const_cast<std::byte*>(place); };
        for (int64_t i = 0; i < part.n_layer; ++i) {
            LayerWeights& layer = weights.layers[static_cast<size_t>(part.first_layer + i)];
            pack_layer(*stages[part.index].backend, everything, layer, cancel);
        }
        if (part.is_last) pack_matrix(*stages[part.index].backend, everything, weights.output, cancel);
    }
    return memory;
}

}  // namespace minim::model
