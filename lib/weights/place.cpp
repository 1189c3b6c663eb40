// SPDX-License-Identifier: Apache-2.0
#include "weights/place.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/memory_info.h"
#include "checkpoint/load_counter.h"
#include "weights/device_target.h"
#include "weights/host_room.h"
#include "weights/host_target.h"
#include "weights/load.h"
#include "weights/mapped.h"
#include "weights/packed_target.h"
#include "weights/reader.h"

namespace minim::weights {
namespace {

using checkpoint::LoadCounter;

bool locks(const Part& part) {
    return part.host != nullptr && part.host->host_memory().locks();
}

bool prefaults(const Part& part, const PlaceOptions& options) {
    return options.prefault || locks(part);
}

uint64_t sum(std::span<const uint64_t> bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

// Places one part: the constructor allocates the memory, read() reads the bytes.
class Placing {
  public:
    Placing(const Part& part, Storage storage, const PackedOptions& packed, const PlaceOptions& options,
            const Reader& reader, const Logger& log)
        : part_(part), storage_(storage), options_(options), reader_(reader), packed_options_(packed) {
        switch (storage) {
            case Storage::device:
                check_formats(part);
                device_.emplace(part.weights, *part.backend, part.table_bytes);
                break;
            case Storage::memory:
                check_formats(part);
                layout_.emplace(part.weights, part.host,
                                LayoutOptions{.splits_nodes = true,
                                              .expanded = choose_expanded(*part.host, part.weights,
                                                                          options.expand, log)});
                check_host_room(part, sum(layout_->buffer_bytes()), available_memory_bytes());
                host_.emplace(*layout_, *part.host);
                break;
            case Storage::packed:
                check_formats(part);
                packed_.emplace(part.weights, *part.host, packed_options_, log);
                break;
            case Storage::mapped:
                placed_.weights = map_weights(part.weights, reader, placed_.widened);
                if (prefaults(part, options))
                    check_room(mapped_blocks(part.weights, placed_.weights.matrices));
                reads_ahead_ = part.bytes() <= available_memory_bytes();
                break;
        }
    }

    uint64_t bytes_to_read() const {
        switch (storage_) {
            case Storage::device:
                return device_->bytes_to_read();
            case Storage::memory:
                return layout_->read_bytes();
            case Storage::packed:
                return packed_->bytes_to_read();
            case Storage::mapped:
                return mapped_bytes();
        }
        return 0;
    }

    void read(LoadCounter& counter) {
        switch (storage_) {
            case Storage::device:
                device_->fill(reader_, options_.host, counter);
                break;
            case Storage::memory:
                load(*layout_, reader_, part_.host, host_->target(), counter);
                placed_.weights = layout_->placed([&](const Run& run) { return host_->place(run); });
                placed_.host = host_->take_buffers();
                break;
            case Storage::packed:
                packed_->finish(reader_, counter);
                placed_.weights = packed_->placed();
                placed_.packed = packed_->take_file();
                break;
            case Storage::mapped:
                if (prefaults(part_, options_)) {
                    prefault(mapped_blocks(part_.weights, placed_.weights.matrices), *part_.host, counter);
                } else if (reads_ahead_) {
                    read_ahead(part_.weights, reader_, counter);
                }
                break;
        }
    }

    PlacedPart finish() {
        if (storage_ == Storage::device) {
            device_->pack(options_.cancel);
            placed_.weights = device_->take_placed();
            placed_.device = device_->take_memory();
        }
        for (size_t i = 0; i < part_.weights.size(); ++i)
            placed_.weights.matrices[i].scale = reader_.factor(*part_.weights[i]);
        placed_.storage = storage_;
        return std::move(placed_);
    }

  private:
    uint64_t mapped_bytes() const {
        if (!prefaults(part_, options_)) return reads_ahead_ ? part_.bytes() : 0;
        uint64_t total = 0;
        for (const Block block : mapped_blocks(part_.weights, placed_.weights.matrices))
            total += block.size();
        return total;
    }

    const Part& part_;
    const Storage storage_;
    const PlaceOptions& options_;
    const Reader& reader_;
    const PackedOptions packed_options_;
    PlacedPart placed_;
    std::optional<Layout> layout_;
    std::optional<HostTarget> host_;
    std::optional<PackedTarget> packed_;
    std::optional<DeviceTarget> device_;
    bool reads_ahead_ = false;
};

// Warns that mapped weights cannot be placed on NUMA nodes.
void warn_of_nodes(std::span<const Part> parts, std::span<const Storage> storage, const Logger& log) {
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

WeightBytes PlacedPart::bytes(const Part& part) const {
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

void check_formats(const Part& part) {
    for (const WeightSpec* weight : part.weights)
        if (weight->use != Use::vector && !part.backend->runs(weight->format))
            fail_on_device(part.backend->name(), Status::unsupported, "does not compute with weights of {}",
                           traits(weight->format).name);
}

std::vector<PlacedPart> place(std::span<const Part> parts, std::span<const Storage> storage,
                              const PlaceOptions& options, const checkpoint::Checkpoint& checkpoint,
                              const Logger& log) {
    const Reader reader(checkpoint);
    warn_of_nodes(parts, storage, log);
    std::deque<Placing> all;
    uint64_t total = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        PackedOptions packed;
        if (storage[i] == Storage::packed)
            packed = {options.packed_file, options.origin, options.part_hashes[i], options.expand,
                      prefaults(parts[i], options)};
        all.emplace_back(parts[i], storage[i], packed, options, reader, log);
        total += all.back().bytes_to_read();
    }
    const bool reads = std::ranges::any_of(storage, [](Storage one) { return one != Storage::mapped; });
    if (reads)
        for (const File& file : checkpoint.files()) file.expect_reads_in_order();
    LoadCounter counter(total, options.progress, options.cancel);
    for (Placing& part : all) part.read(counter);
    std::vector<PlacedPart> placed;
    for (Placing& part : all) placed.push_back(part.finish());
    // All of a packed file has been written or checked by now. Its pages are prefaulted and locked like those of mapped
    // weights.
    const checkpoint::Progress none;
    LoadCounter silent(0, none, options.cancel);
    for (size_t i = 0; i < parts.size(); ++i)
        if (storage[i] == Storage::packed && prefaults(parts[i], options))
            prefault(mapped_blocks(parts[i].weights, placed[i].weights.matrices), *parts[i].host, silent);
    return placed;
}

}  // namespace minim::weights
