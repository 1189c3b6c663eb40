// SPDX-License-Identifier: Apache-2.0
#include "weights/place.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "checkpoint/load_counter.h"
#include "weights/reader.h"
#include "weights/target.h"

namespace minim::weights {
namespace {

using checkpoint::LoadCounter;

bool locks(const DeviceWeights& part) {
    return part.host != nullptr && part.host->host_memory().locks();
}

std::unique_ptr<Target> target_of(const DeviceWeights& part, Storage storage, uint64_t part_hash,
                                  const Reader& reader, const PlaceOptions& options, const Logger& log) {
    if (storage == Storage::mapped) return mapped_target(part, reader, options);
    check_formats(part);
    if (storage == Storage::device) return device_target(part, reader, options);
    if (storage == Storage::memory) return host_target(part, reader, options, log);
    return packed_target(part, part_hash, reader, options, log);
}

// Warns that mapped weights cannot be placed on NUMA nodes.
void warn_of_nodes(std::span<const DeviceWeights> parts, std::span<const Storage> storage,
                   const Logger& log) {
    for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].host == nullptr) continue;
        const HostMemory& memory = parts[i].host->host_memory();
        const bool is_mapped = storage[i] == Storage::mapped || storage[i] == Storage::packed;
        if (is_mapped && memory.is_placed())
            log.warning("numa {}: mapped weights lie where the system has put the pages of their files",
                        to_string(memory.plan()->mode));
    }
}

}  // namespace

bool prefaults(const DeviceWeights& part, const PlaceOptions& options) {
    return options.prefault || locks(part);
}

WeightBytes PlacedWeights::bytes(const DeviceWeights& part) const {
    WeightBytes bytes;
    for (size_t i = 0; i < part.weights.size(); ++i) {
        const backend::Matrix& matrix = weights.matrices[i];
        const auto count = static_cast<uint64_t>(matrix.rows * matrix.row_bytes);
        bytes.total += count;
        if (part.weights[i]->is_expert()) bytes.experts += count;
    }
    if (storage == Storage::device) bytes.experts += part.table_bytes;
    bytes.is_locked = locks(part);
    bytes.is_mapped = storage == Storage::mapped || storage == Storage::packed;
    uint64_t taken = device == nullptr ? 0 : device->size();
    for (const Buffer& buffer : host) taken += buffer.size();
    if (taken > 0) bytes.total = taken;
    return bytes;
}

void check_formats(const DeviceWeights& part) {
    for (const WeightSpec* weight : part.weights)
        if (weight->use != Use::vector && !part.backend->runs(weight->format))
            fail_on_device(part.backend->name(), Status::unsupported, "does not compute with weights of {}",
                           traits(weight->format).name);
}

std::vector<PlacedWeights> place(std::span<const DeviceWeights> parts, std::span<const Storage> storage,
                                 const PlaceOptions& options, const checkpoint::Checkpoint& checkpoint,
                                 const Logger& log) {
    const Reader reader(checkpoint);
    warn_of_nodes(parts, storage, log);
    std::vector<std::unique_ptr<Target>> all;
    uint64_t total = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        const uint64_t hash = storage[i] == Storage::packed ? options.part_hashes[i] : 0;
        all.push_back(target_of(parts[i], storage[i], hash, reader, options, log));
        total += all.back()->bytes_to_read();
    }
    const bool reads = std::ranges::any_of(storage, [](Storage one) { return one != Storage::mapped; });
    if (reads)
        for (const File& file : checkpoint.files()) file.expect_reads_in_order();
    LoadCounter counter(total, options.progress, options.cancel);
    for (const auto& target : all) target->read(counter);
    std::vector<PlacedWeights> placed;
    for (size_t i = 0; i < parts.size(); ++i) {
        placed.push_back(all[i]->finish());
        placed[i].storage = storage[i];
        for (size_t k = 0; k < parts[i].weights.size(); ++k)
            placed[i].weights.matrices[k].scale = reader.factor(*parts[i].weights[k]);
    }
    return placed;
}

}  // namespace minim::weights
