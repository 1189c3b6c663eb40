// SPDX-License-Identifier: Apache-2.0
// How the bytes of tensors are loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/cancel.h"
#include "base/file.h"
#include "checkpoint/contents.h"

namespace minim::checkpoint {

enum class Residence {
    mapped,  // in the files, mapped read-only: pages come in on first use and can be dropped by the system
    owned,  // read with Checkpoint::read() into memory of the process or a device; mapped, so that they have a place
};

// Called on the loading thread with the bytes done (never decreasing) and the total: at 0, at least every 4 MiB, at the end.
// Returning false cancels the load.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

// Which tensors to load; empty for all.
using TensorFilter = std::function<bool(const Tensor&)>;

// data[i] is the address of the mapped bytes of tensor i, nullptr for one that was not selected. It has the alignment of the
// file; safetensors have none.
struct Residents {
    std::vector<MappedFile> maps;
    std::vector<const std::byte*> data;
};

Residents load_tensors(const Contents& contents, Residence how, const Progress& progress,
                       const CancelToken* cancel, const TensorFilter& wanted);

}  // namespace minim::checkpoint
