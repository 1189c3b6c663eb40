// SPDX-License-Identifier: Apache-2.0
// The header of one GGUF file, versions 2 and 3:
//
//   magic "GGUF" | u32 version | u64 tensors | u64 metadata entries | entries | tensor records | padding |
//   data
//
// A tensor record is: name (u64 length, bytes), u32 dimensions, u64 each (contiguous one first), u32 type,
// u64 offset from the start of the data section, which is the first multiple of general.alignment after the
// last record.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/byte_source.h"
#include "checkpoint/metadata.h"
#include "checkpoint/tensor.h"

namespace minim::checkpoint {

// Most tensors and most metadata entries that a file may declare.
inline constexpr uint64_t k_count_cap = uint64_t{1} << 20;

struct GgufHeader {
    uint32_t version = 0;
    uint64_t alignment = 0;
    Metadata metadata;
    std::vector<Tensor>
        tensors;  // in the order of the records; part is 0, offset counts from the start of the file
};

// Reads the header. Every tensor of the result lies inside the file and overlaps no other. Offsets may be in any order
// and leave gaps; padding after the last tensor may be missing. Throws Error with the reason if anything else is wrong.
GgufHeader read_gguf_header(const ByteSource& source);

}  // namespace minim::checkpoint
