// Brings the bytes of the tensors into reach.
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

// Called on the loading thread with bytes done and bytes in all: at 0, at least every 4 MiB, at the end;
// never decreasing. Returning false cancels.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

// Which tensors to load; empty for all.
using TensorFilter = std::function<bool(const Tensor&)>;

// data[i] is where the bytes of tensor i are mapped, nullptr for one that was not wanted: aligned as the file has it,
// which for safetensors is anywhere.
struct Residents {
    std::vector<MappedFile> maps;
    std::vector<const std::byte*> data;
};

Residents load_tensors(const Contents& contents, Residence how, const Progress& progress,
                       const CancelToken* cancel, const TensorFilter& wanted);

}  // namespace minim::checkpoint
