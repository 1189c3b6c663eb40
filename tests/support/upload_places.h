// SPDX-License-Identifier: Apache-2.0
// The table of a layer's experts in a device's memory.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"

namespace minim::test {

// Copies places_of(weights) to the device and returns that memory, which `weights.places` may point to. The copy is complete
// when the call returns. Throws out_of_device_memory or device_lost.
inline std::unique_ptr<backend::Memory> upload_places(const backend::Backend& device,
                                                      const backend::ExpertWeights& weights) {
    const std::vector<backend::ExpertPlace> places = backend::places_of(weights);
    const uint64_t bytes = places.size() * sizeof(backend::ExpertPlace);
    std::unique_ptr<backend::Memory> table =
        device.allocate(bytes, "a table of experts", backend::MemoryUse::weights);
    device.write(table->data(), reinterpret_cast<const std::byte*>(places.data()), bytes);
    return table;
}

}  // namespace minim::test
