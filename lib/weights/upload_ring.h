// SPDX-License-Identifier: Apache-2.0
// Staging memory for uploading weights to a device: a ring of pieces, each with a stream of its own, so that one is
// filled while those before it are copied. A load takes no other host memory, however large the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/load_counter.h"

namespace minim::weights {

class UploadRing {
  public:
    static constexpr uint64_t k_piece_bytes = checkpoint::k_load_block_bytes;
    static constexpr size_t k_pieces = 4;

    // The backend must outlive it. Throws out_of_memory and out_of_device_memory.
    explicit UploadRing(const backend::Backend& backend, uint64_t piece_bytes = k_piece_bytes);

    // Returns the memory of the current piece, once its last contents have arrived. Throws device_lost.
    std::byte* room();
    // Sends the first `bytes` of the current piece, at most its size, and moves on to the next.
    void send(std::byte* to, uint64_t bytes);
    // Blocks until everything has arrived. Throws device_lost.
    void finish();

  private:
    struct Piece {
        std::unique_ptr<backend::Memory> memory;
        std::unique_ptr<backend::Scratch> stream;  // ends before the memory that it reads
    };

    const backend::Backend& backend_;
    std::vector<Piece> pieces_;
    size_t current_ = 0;
};

}  // namespace minim::weights
