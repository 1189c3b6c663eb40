// SPDX-License-Identifier: Apache-2.0
// Host weights in a packed file: mapped from one that fits, or written to a new one (packed_file.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/host_device.h"
#include "base/log.h"
#include "checkpoint/load_counter.h"
#include "weights/layout.h"
#include "weights/packed_file.h"
#include "weights/reader.h"

namespace minim::weights {

struct PackedOptions {
    std::string path;
    PackedOrigin origin = {};
    uint64_t part = 0;                  // hash that identifies the part of the model
    Expand expand = Expand::automatic;  // automatic: as in the file, if there is one
    bool checks = false;                // read and check all of an existing file
};

class PackedTarget {
  public:
    // Opens the file, or begins a new one if none has these weights. The arguments must outlive it. Throws what
    // PackedFile and PackedWriter throw, and out_of_memory if the weights must be read and do not fit into memory.
    PackedTarget(std::span<const WeightSpec* const> weights, const backend::HostDevice& backend,
                 const PackedOptions& options, const Logger& log);

    uint64_t bytes_to_read() const;

    // Writes the new file, or checks the existing one. Throws io, cancelled, what reading throws, and format if the
    // file has other weights than were written. On failure there is no new file.
    void finish(const Reader& reader, checkpoint::LoadCounter& counter);

    // Call both after finish().
    PlacedMatrices placed() const;
    PackedFile take_file() { return std::move(*file_); }

  private:
    void plan(const ExpandedFormats& expanded);
    uint64_t contents_hash() const;
    bool fits(PackedFile& file) const;
    void write(const Reader& reader, checkpoint::LoadCounter& counter);
    void check(checkpoint::LoadCounter& counter) const;

    std::span<const WeightSpec* const> weights_;
    const backend::HostDevice& backend_;
    const PackedOptions& options_;
    const Logger& log_;
    std::optional<Layout> layout_;
    std::optional<PackedFile> file_;        // an existing one with the weights,
    std::unique_ptr<PackedWriter> writer_;  // or a new one
};

}  // namespace minim::weights
