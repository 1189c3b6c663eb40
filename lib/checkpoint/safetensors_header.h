// SPDX-License-Identifier: Apache-2.0
// The header of one safetensors file:
//
//   u64 n | n bytes of JSON: {"NAME": {"dtype": "BF16", "shape": [out, in], "data_offsets": [begin, end]},
//   ...} | data
//
// Offsets count from the first byte after the JSON. The ranges tile the data exactly. "__metadata__" is an
// object of strings. Nothing is aligned.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/byte_source.h"
#include "checkpoint/metadata.h"
#include "checkpoint/tensor.h"

namespace minim::checkpoint {

// The format's limit on n; it also applies to the index of a sharded checkpoint.
inline constexpr uint64_t k_json_cap_bytes = 100'000'000;

struct SafetensorsHeader {
    Metadata metadata;  // __metadata__
    std::vector<Tensor>
        tensors;  // in the order of the JSON; part is 0, offset counts from the start of the file
};

// Reads the header. Every tensor of the result lies inside the file and overlaps no other. Throws Error with the reason
// otherwise.
SafetensorsHeader read_safetensors_header(const ByteSource& source);

}  // namespace minim::checkpoint
