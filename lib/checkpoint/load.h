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
    owned,  // read with Checkpoint::read() or view() into memory of the process or a device; nothing is mapped
};

// Called on the loading thread with the bytes done (never decreasing) and the total: at the start, at least every 4
// MiB, and at the end. Returning false cancels the load.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

// Returns whether to load a tensor. Empty: all are loaded.
using TensorFilter = std::function<bool(const Tensor&)>;

// data[i] is the address of the mapped bytes of tensor i, nullptr for one that was not selected or is not mapped. The addresses
// are aligned as in the file; safetensors files do not align tensors.
struct Residents {
    std::vector<MappedFile> maps;
    std::vector<const std::byte*> data;
    std::vector<bool> is_loaded;
};

Residents load_tensors(const Contents& contents, Residence how, const Progress& progress,
                       const CancelToken* cancel, const TensorFilter& wanted);

}  // namespace minim::checkpoint
