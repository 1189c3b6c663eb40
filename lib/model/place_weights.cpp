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

using backend::ExpertStack;
using backend::Matrix;
using checkpoint::LoadCounter;

// Of every matrix in a device's memory: a wide load on a GPU.
constexpr uint64_t k_alignment = 256;

// Weights that stay in their files come into memory before they are used, where there is room for them.
void read_ahead_of_host(std::span<const Share> shares, Weights& weights, const CancelToken* cancel) {
    if (host_weight_bytes(shares, weights) > available_memory_bytes()) return;
    for (const Share& share : shares) {
        if (!share.backend->uses_host_memory()) continue;
        visit_bytes(share, weights, [&](const std::byte* data, uint64_t bytes) {
            throw_if_cancelled(cancel, "loading");
            read_ahead({data, bytes});
        });
    }
}

struct WeightCounter {
    WeightBytes& bytes;

    void matrix(const Matrix& matrix, MatrixUse) { bytes.total += bytes_of(matrix); }
    void vector(const backend::Vector& vector) {
        bytes.total += static_cast<uint64_t>(vector.size) * sizeof(float);
    }
    void stack(const ExpertStack& stack) {
        const auto count = static_cast<uint64_t>(stack.n_expert() * stack.rows * stack.row_bytes);
        bytes.total += count;
        bytes.experts += count;
    }
};

// Part after part from the start of `memory` on, each at a multiple of k_alignment.
void upload_share(const Share& share, Weights& weights, std::byte* memory, const ReadWeights& read,
                  LoadCounter& counter) {
    UploadRing ring(*share.backend, memory, read, counter);
    std::byte* next = memory;
    visit_bytes(share, weights, [&](const std::byte*& data, uint64_t bytes) {
        const uint64_t whole = align_up(bytes, k_alignment);
        ring.append(data, bytes);
        ring.skip(whole - bytes);
        data = std::exchange(next, next + whole);
    });
    ring.finish();
}

// The host's weights on their way into a packed file, or found in one.
struct ToPack {
    std::unique_ptr<HostWeights> weights;
    std::optional<PackedFile> file;        // that is there and holds them,
    std::unique_ptr<PackedWriter> writer;  // or of that which is to be made

    ToPack(const Share& share, const PlaceOptions& options, Weights& shapes, const Logger& log)
        : file(PackedFile::open(options.packed_file, options.origin, log)) {
        const auto hold = [&](const ExpandedFormats& expanded) {
            weights = std::make_unique<HostWeights>(share, shapes, expanded, HostWeights::Place::file);
        };
        const bool as_in_file = file && options.expand == Expand::automatic;
        hold(as_in_file ? file->expanded() : choose_expanded(share, shapes, options.expand, log));
        if (file && !weights->fits(*file)) {
            log.warning("{}: holds other weights of this model, or holds them otherwise, and is made anew",
                        options.packed_file);
            file.reset();
            if (as_in_file) hold(choose_expanded(share, shapes, options.expand, log));
        }
        if (options.checks_packed) check_room();
        if (!file) writer = weights->begin_file(options.packed_file);
    }

    // For all of them, which are read.
    void check_room() const {
        const uint64_t available = available_memory_bytes();
        if (weights->held_bytes() > available)
            fail_out_of_memory("packed weights", weights->held_bytes(), available);
    }

    uint64_t bytes_to_read(const PlaceOptions& options) const {
        if (!file) return weights->bytes();
        return options.checks_packed ? weights->held_bytes() : 0;
    }

    PackedFile finish(const PlaceOptions& options, const ReadWeights& read, LoadCounter& counter,
                      const Logger& log) {
        if (!file) {
            weights->write(*writer, options.origin, read, counter);
            writer.reset();
            file = PackedFile::open(options.packed_file, options.origin, log);
            if (!file || !weights->fits(*file))
                fail(Status::io, "{}: another file took its place while it was being made",
                     options.packed_file);
            log.info("{}: made, {} bytes of packed weights", options.packed_file, file->bytes().size());
        } else if (options.checks_packed) {
            weights->check(*file, counter);
        }
        weights->map(*file);
        return std::move(*file);
    }
};

}  // namespace

uint64_t WeightMemory::bytes() const noexcept {
    uint64_t total = device == nullptr ? 0 : device->size();
    for (const Buffer& buffer : host) total += buffer.size();
    return total;
}

uint64_t host_weight_bytes(std::span<const Share> shares, Weights& weights) {
    uint64_t total = 0;
    for (const Share& share : shares) {
        if (!share.backend->uses_host_memory()) continue;
        visit_bytes(share, weights, [&](const std::byte*, uint64_t bytes) { total += bytes; });
    }
    return total;
}

std::vector<WeightBytes> weight_bytes(std::span<const Share> shares, Weights& weights,
                                      std::span<const WeightMemory> memory) {
    std::vector<WeightBytes> all(shares.size());
    for (size_t i = 0; i < shares.size(); ++i) {
        const Share& share = shares[i];
        WeightBytes& bytes = all[i];
        WeightCounter counter{bytes};
        visit_share(share, weights, counter);
        bytes.is_mapped = memory.empty() || memory[i].bytes() == 0;
        const bool shares_head =
            share.has_embedding && share.has_output && weights.output.data == weights.embedding.data;
        if (!bytes.is_mapped)
            bytes.total = memory[i].bytes();
        else if (shares_head)
            bytes.total -= bytes_of(weights.output);
    }
    return all;
}

void check_formats(const Share& share, Weights& weights) {
    const auto check = [&](Format format) {
        if (!share.backend->runs(format))
            fail_on_device(share.backend->name(), Status::unsupported, "does not compute with weights of {}",
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

uint64_t block_bytes(const Share& share, Weights& weights) {
    uint64_t total = 0;
    visit_bytes(share, weights,
                [&](const std::byte*, uint64_t bytes) { total += align_up(bytes, k_alignment); });
    return total;
}

std::vector<WeightMemory> place_weights(std::span<const Share> shares, const PlaceOptions& options,
                                        const ReadWeights& read, Weights& weights, const Logger& log) {
    const bool packs_to_file = !options.packed_file.empty();
    if (!options.copies_host && !packs_to_file) read_ahead_of_host(shares, weights, options.cancel);
    // All memory first: a model that does not fit is known before anything is read. Where embedding and head are one
    // tensor, they may lie on two devices, or twice on one.
    uint64_t total = 0;
    std::vector<WeightMemory> memory(shares.size());
    std::vector<std::unique_ptr<HostWeights>> on_host(shares.size());
    std::vector<std::optional<ToPack>> to_pack(shares.size());
    for (size_t i = 0; i < shares.size(); ++i) {
        const Share& share = shares[i];
        const bool is_host = share.backend->uses_host_memory();
        if (is_host && !options.copies_host && !packs_to_file) continue;
        check_formats(share, weights);
        if (is_host && packs_to_file) {
            total += to_pack[i].emplace(share, options, weights, log).bytes_to_read(options);
            continue;
        }
        if (is_host) {
            const ExpandedFormats expanded = choose_expanded(share, weights, options.expand, log);
            on_host[i] = std::make_unique<HostWeights>(share, weights, expanded, HostWeights::Place::memory);
            total += on_host[i]->bytes();
            continue;
        }
        visit_bytes(share, weights, [&](const std::byte*, uint64_t bytes) { total += bytes; });
        memory[i].device =
            share.backend->allocate(block_bytes(share, weights), "weights", backend::MemoryUse::weights);
    }

    LoadCounter counter(total, options.progress, options.cancel);
    for (size_t i = 0; i < shares.size(); ++i) {
        if (to_pack[i]) {
            memory[i].packed = to_pack[i]->finish(options, read, counter, log);
        } else if (on_host[i] != nullptr) {
            on_host[i]->read(read, counter);
            memory[i].host = on_host[i]->take_buffers();
        } else if (memory[i].device != nullptr) {
            upload_share(shares[i], weights, memory[i].device->data(), read, counter);
        }
    }
    for (size_t i = 0; i < shares.size(); ++i)
        if (memory[i].device != nullptr) pack_share(shares[i], weights, options.cancel);
    return memory;
}

}  // namespace minim::model
