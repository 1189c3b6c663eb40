// SPDX-License-Identifier: Apache-2.0
#include "weights/choose_storage.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory_info.h"

namespace minim::weights {
namespace {

using checkpoint::HostStorage;

bool is_on_host(const DeviceWeights& part) {
    return part.host != nullptr;
}

bool packs_any(const DeviceWeights& part) {
    return std::ranges::any_of(part.weights, [&](const WeightSpec* weight) {
        return weight->use == Use::product && part.backend->packs(weight->format);
    });
}

// Returns whether no file has some of the weights as kernels read them.
bool has_made(const DeviceWeights& part) {
    return std::ranges::any_of(part.weights,
                               [](const WeightSpec* weight) { return !weight->is_contiguous(); });
}

bool has_cut(const DeviceWeights& part) {
    return std::ranges::any_of(part.weights,
                               [](const WeightSpec* weight) { return weight->source.columns.has_value(); });
}

void check_packed_file(std::span<const DeviceWeights> parts, std::optional<HostStorage> residence,
                       const std::string& packed_file) {
    const auto n_host = std::ranges::count_if(parts, is_on_host);
    if (n_host == 0) fail(Status::invalid, "packed_file {}: no weights stay on the host", packed_file);
    if (n_host > 1)
        fail(Status::invalid,
             "packed_file {}: {} backends compute on the host, and a file has the weights of one",
             packed_file, n_host);
    if (residence == HostStorage::owned)
        fail(Status::invalid, "packed_file {}: it is mapped, and the weights are to be copied into memory",
             packed_file);
}

Storage host_storage(std::span<const DeviceWeights> parts, std::optional<HostStorage> residence,
                     const Logger& log) {
    uint64_t bytes = 0;
    bool packs = false;
    bool makes = false;
    bool cuts = false;
    for (const DeviceWeights& part : parts) {
        if (!is_on_host(part)) continue;
        bytes += part.bytes();
        packs |= packs_any(part);
        makes |= has_made(part);
        cuts |= has_cut(part);
    }
    if (makes) {
        if (residence == HostStorage::mapped)
            log.warning(
                "{}",
                cuts ? "weights are copied, not mapped: this rank has some of their columns"
                     : "weights of several tensors each are copied, not mapped: their codes and scales are "
                       "brought together");
        return Storage::memory;
    }
    return choose_host_storage(residence, bytes, packs, log) == HostStorage::owned ? Storage::memory
                                                                                   : Storage::mapped;
}

}  // namespace

uint64_t DeviceWeights::bytes() const {
    uint64_t total = 0;
    for (const WeightSpec* weight : weights) total += weight->bytes();
    return total;
}

std::vector<Storage> choose_storage(std::span<const DeviceWeights> parts,
                                    std::optional<HostStorage> residence, const std::string& packed_file,
                                    const Logger& log) {
    Storage on_host = Storage::packed;
    if (!packed_file.empty()) {
        check_packed_file(parts, residence, packed_file);
    } else if (std::ranges::any_of(parts, is_on_host)) {
        on_host = host_storage(parts, residence, log);
    }
    std::vector<Storage> all;
    for (const DeviceWeights& part : parts) all.push_back(is_on_host(part) ? on_host : Storage::device);
    return all;
}

HostStorage choose_host_storage(std::optional<HostStorage> wanted, uint64_t bytes, bool packs,
                                const Logger& log) {
    if (wanted) return *wanted;
    if (!packs) return HostStorage::mapped;
    const uint64_t available = available_memory_bytes();
    if (bytes <= available - available / 10) return HostStorage::owned;
    log.warning(
        "weights of {} bytes stay in their file, where they are read more slowly than from a packed file: "
        "of {} bytes of available memory, less than a tenth would be left",
        bytes, available);
    return HostStorage::mapped;
}

}  // namespace minim::weights
