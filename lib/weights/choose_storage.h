// SPDX-License-Identifier: Apache-2.0
// Decides the storage of the weights of each device; nothing else does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/host_device.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "weights/spec.h"

namespace minim::weights {

// The weights of one device, in a fixed order.
struct DeviceWeights {
    const backend::Backend* backend = nullptr;
    std::vector<const WeightSpec*> weights;
    const backend::HostDevice* host = nullptr;  // `backend`, if it computes on host memory; else null
    uint64_t table_bytes = 0;  // Storage::device: room behind the weights for tables of where experts lie

    uint64_t bytes() const;  // of the weights in the checkpoint's formats
};

enum class Storage : uint8_t {
    device,  // copied into the device's own memory
    memory,  // copied into host memory, packed
    mapped,  // left in the checkpoint's mapped files
    packed,  // mapped from a packed file, which is created if needed
};

// Chooses the storage of parts on the host. `residence`: requested by the caller. Without it, weights are copied if
// packing makes the kernels faster and a tenth of the available memory stays free, for the KV cache and for other
// programs. If they stay in their file because memory is short, a warning is logged. A packed file has the weights of
// one backend. Assembled tensors and parts of columns are always copied, with all weights of the host, because no file has them
// in the form that kernels use. Throws
// invalid if packed_file contradicts the parts or `residence`.
std::vector<Storage> choose_storage(std::span<const DeviceWeights> parts,
                                    std::optional<checkpoint::HostStorage> residence,
                                    const std::string& packed_file, const Logger& log);

// Returns the choice for `bytes` of weights on the host that are one tensor each, without a packed file. `packs`:
// packing makes kernels faster.
checkpoint::HostStorage choose_host_storage(std::optional<checkpoint::HostStorage> wanted, uint64_t bytes,
                                            bool packs, const Logger& log);

}  // namespace minim::weights
