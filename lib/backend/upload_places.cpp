// SPDX-License-Identifier: Apache-2.0
#include "backend/upload_places.h"

#include <vector>

namespace minim::backend {

std::unique_ptr<Memory> upload_places(const Backend& device, const ExpertWeights& weights) {
    const std::vector<ExpertPlace> places = places_of(weights);
    const uint64_t bytes = places.size() * sizeof(ExpertPlace);
    std::unique_ptr<Memory> table = device.allocate(bytes, "a table of experts", MemoryUse::weights);
    device.write(table->data(), reinterpret_cast<const std::byte*>(places.data()), bytes);
    return table;
}

}  // namespace minim::backend
