// Brings the bytes of the tensors into reach, mapped or copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/buffer.h"
#include "base/cancel.h"
#include "base/file.h"
#include "checkpoint/contents.h"

namespace minim::checkpoint {

enum class Residence {
    mapped,  // the files mapped read-only: pages come in on first use and can be dropped by the system
    owned,   // read into memory of the process, with huge pages where the system grants them
    passing,  // mapped, so that the bytes have a place, but read with Checkpoint::read() on their way to a device
};

// Called on the loading thread with bytes done and bytes in all: at 0, at least every 4 MiB, at the end;
// never decreasing. Returning false cancels.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

// Which tensors to load; empty for all.
using TensorFilter = std::function<bool(const Tensor&)>;

// data[i] is where the bytes of tensor i are, nullptr for one that was not wanted. Owned tensors begin at a
// multiple of 64 bytes; mapped ones as the file has them, which for safetensors is anywhere.
struct Residents {
    std::vector<MappedFile> maps;
    std::vector<Buffer> buffers;
    std::vector<const std::byte*> data;
};

Residents load_tensors(const Contents& contents, Residence how, const Progress& progress,
                       const CancelToken* cancel, const TensorFilter& wanted);

}  // namespace minim::checkpoint
