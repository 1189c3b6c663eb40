// Where the weights of each device end up: the only place that decides it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "checkpoint/load.h"
#include "weights/spec.h"

namespace minim::weights {

// The weights of one device, in an order that does not change.
struct Part {
    const backend::Backend* backend = nullptr;
    std::vector<const WeightSpec*> weights;
    uint64_t table_bytes = 0;  // Storage::device: room behind the weights for tables of where experts lie

    uint64_t bytes() const;  // as the checkpoint's formats have them
};

enum class Storage : uint8_t {
    device,  // copied into the device's own memory
    memory,  // copied into host memory, packed
    mapped,  // left in the checkpoint's mapped files
    packed,  // mapped from a packed file, which is made if need be
};

// For parts on the host. `residence` is the caller's wish; without one, weights are copied if the kernels gain by packing and a
// tenth of the available memory stays free, for the KV cache and for others; left in their file for want of memory, they
// are worth a warning. A packed file holds the weights of one backend. Assembled matrices lie in no file as they are
// computed with: they are copied. Throws invalid if packed_file contradicts the parts or the residence.
std::vector<Storage> choose_storage(std::span<const Part> parts,
                                    std::optional<checkpoint::Residence> residence,
                                    const std::string& packed_file, const Logger& log);

// The same for `bytes` of weights on the host that are one tensor each and go to no packed file. `packs`: kernels gain.
checkpoint::Residence choose_residence(std::optional<checkpoint::Residence> wanted, uint64_t bytes,
                                       bool packs, const Logger& log);

}  // namespace minim::weights
