#include "model/place_weights.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory_info.h"
#include "checkpoint/load_counter.h"
#include "model/host_weights.h"
#include "model/pack_weights.h"

namespace minim::model {
namespace {

using backend::Backend;
using backend::ExpertStack;
using backend::Matrix;
using checkpoint::LoadCounter;

// Of every matrix in a device's memory: a wide load on a GPU.
constexpr uint64_t k_alignment = 256;

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
        visit_bytes(weights, part, [&](const std::byte* data, uint64_t bytes) {
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
    visit_bytes(weights, stage, [&](const std::byte*& data, uint64_t bytes) {
        const uint64_t whole = align_up(bytes, k_alignment);
        ring.append(data, bytes);
        ring.skip(whole - bytes);
        data = std::exchange(next, next + whole);
    });
    ring.finish();
}

}  // namespace

uint64_t StageMemory::bytes() const noexcept {
    uint64_t total = device == nullptr ? 0 : device->size();
    for (const Buffer& buffer : host) total += buffer.size();
    return total;
}

uint64_t host_weight_bytes(std::span<const Stage> stages, Weights& weights) {
    uint64_t total = 0;
    for (const StageOfWeights& part : parts_of(stages)) {
        if (!stages[part.index].backend->uses_host_memory()) continue;
        visit_bytes(weights, part, [&](const std::byte*, uint64_t bytes) { total += bytes; });
    }
    return total;
}

std::vector<WeightBytes> weight_bytes(std::span<const Stage> stages, Weights& weights,
                                      std::span<const StageMemory> memory) {
    std::vector<WeightBytes> all(stages.size());
    for (const StageOfWeights& part : parts_of(stages)) {
        WeightBytes& bytes = all[part.index];
        for (int64_t i = 0; i < part.n_layer; ++i) {
            backend::ExpertWeights& experts =
                weights.layers[static_cast<size_t>(part.first_layer + i)].experts;
            for (ExpertStack* stack : {&experts.gate, &experts.up, &experts.down})
                bytes.experts += static_cast<uint64_t>(stack->n_expert() * stack->rows * stack->row_bytes);
        }
        bytes.is_mapped = memory.empty() || memory[part.index].bytes() == 0;
        if (!bytes.is_mapped) {
            bytes.total = memory[part.index].bytes();
            continue;
        }
        visit_bytes(weights, part, [&](const std::byte*, uint64_t count) { bytes.total += count; });
        const bool shares_head =
            part.is_first && part.is_last && weights.output.data == weights.embedding.data;
        if (shares_head) bytes.total -= static_cast<uint64_t>(weights.output.rows * weights.output.row_bytes);
    }
    return all;
}

std::vector<StageMemory> place_weights(std::span<const Stage> stages, bool copies_host,
                                       const ReadWeights& read, Weights& weights,
                                       const checkpoint::Progress& progress, const CancelToken* cancel) {
    std::vector<StageOfWeights> parts = parts_of(stages);
    if (!copies_host) read_ahead_of_host(stages, parts, weights, cancel);
    std::erase_if(parts, [&](const StageOfWeights& part) {
        return !copies_host && stages[part.index].backend->uses_host_memory();
    });
    // All memory first: a model that does not fit is known before anything is read. Where embedding and head are one
    // tensor, they may lie on two devices, or twice on one.
    uint64_t total = 0;
    std::vector<StageMemory> memory(stages.size());
    std::vector<std::unique_ptr<HostWeights>> on_host(stages.size());
    for (const StageOfWeights& part : parts) {
        const Backend& backend = *stages[part.index].backend;
        check_formats(weights, part, backend);
        if (backend.uses_host_memory()) {
            on_host[part.index] = std::make_unique<HostWeights>(weights, part, backend);
            total += on_host[part.index]->bytes();
            continue;
        }
        uint64_t block_bytes = 0;
        visit_bytes(weights, part, [&](const std::byte*, uint64_t bytes) {
            total += bytes;
            block_bytes += align_up(bytes, k_alignment);
        });
        memory[part.index].device = backend.allocate(block_bytes, "weights", backend::MemoryUse::weights);
    }

    LoadCounter counter(total, progress, cancel);
    for (const StageOfWeights& part : parts) {
        const Backend& backend = *stages[part.index].backend;
        if (HostWeights* host = on_host[part.index].get()) {
            host->read(read, counter);
            memory[part.index].host = host->take_buffers();
            continue;
        }
        upload_stage(weights, part, backend, memory[part.index].device->data(), read, counter);
    }
    for (const StageOfWeights& part : parts)
        if (memory[part.index].device != nullptr)
            pack_stage(*stages[part.index].backend, weights, part, cancel);
    return memory;
}

}  // namespace minim::model
