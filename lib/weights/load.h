// SPDX-License-Identifier: Apache-2.0
// Loads weights: reads pieces in the order of the files, packs them if the layout says so, and writes them to their
// target. All threads work on a job of some megabytes, each with its own buffer, while the system reads ahead.
// Nothing is read or written twice.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/host_device.h"
#include "checkpoint/load_counter.h"
#include "weights/buffer_layout.h"
#include "weights/reader.h"

namespace minim::weights {

// A part of a run: whole panels if it is packed.
struct Piece {
    const Run* run = nullptr;
    uint64_t at = 0;
    uint64_t bytes = 0;

    uint64_t stored_at() const { return run->stored_at(at); }
    uint64_t stored_bytes() const { return run->stored_at(bytes); }
    uint64_t to() const { return run->to + stored_at(); }  // as Run::to
};

inline uint64_t read_bytes(const Piece& piece) {
    return piece.bytes;
}

// The pieces of a layout in the order of the files.
class PieceCursor {
  public:
    explicit PieceCursor(const BufferLayout& layout) : layout_(layout) {}

    // Returns the next piece; at the end, a piece of no bytes.
    Piece next();
    // Fills `pieces` with those of the next job. Returns the sum of their bytes(piece): k_load_block_bytes, or more by
    // less than one piece; less for the last job.
    uint64_t next_job(std::vector<Piece>& pieces, const std::function<uint64_t(const Piece&)>& bytes);

  private:
    const BufferLayout& layout_;
    size_t run_ = 0;
    uint64_t at_ = 0;
};

// The target of pieces. prepare() and commit() are called on the loading thread, before and after each job.
struct PieceTarget {
    std::function<void(std::span<const Piece>)> prepare;      // makes room
    std::function<std::byte*(const Piece&)> place;            // returns where a piece is stored; any thread
    std::function<void(const Piece&)> written = {};           // called once a piece is written; any thread
    std::function<void(std::span<const Piece>)> commit = {};  // called once all of them are written
};

// Loads all runs of the layout on the threads of `host`, which also packs them; null: on the calling thread. Throws
// what reading and the target throw, and cancelled.
void load(const BufferLayout& layout, const Reader& reader, const backend::HostDevice* host,
          const PieceTarget& target, checkpoint::LoadCounter& counter);

}  // namespace minim::weights
