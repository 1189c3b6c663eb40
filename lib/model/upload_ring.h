// Weights on their way from the files into a device's memory: a few pieces of host memory in turn, each with a stream of
// its own, so that one is read into while those before it travel. That is all the host memory a load takes, however
// large the model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/load_counter.h"

namespace minim::model {

// Fills `out` with the weights that begin at `from`.
using ReadWeights = std::function<void(const std::byte* from, std::span<std::byte> out)>;

class UploadRing {
  public:
    static constexpr uint64_t k_piece_bytes = checkpoint::k_load_block_bytes;
    static constexpr size_t k_pieces = 4;

    // Fills the device's memory from `to` on. The arguments must outlive it. Throws out_of_memory and
    // out_of_device_memory.
    UploadRing(const backend::Backend& backend, std::byte* to, const ReadWeights& read,
               checkpoint::LoadCounter& counter);

    // The next bytes. Throws what reading throws, cancelled and device_lost.
    void append(const std::byte* from, uint64_t bytes);
    // Leaves the next bytes unspecified.
    void skip(uint64_t bytes);
    // Waits until everything has arrived. Throws device_lost.
    void finish();

  private:
    struct Piece {
        std::unique_ptr<backend::Memory> memory;
        std::unique_ptr<backend::Scratch> stream;  // ends before the memory that it reads
    };
    std::span<std::byte> room();
    void advance(uint64_t bytes);
    void send();

    const backend::Backend& backend_;
    std::byte* to_;  // of the piece being filled
    const ReadWeights& read_;
    checkpoint::LoadCounter& counter_;
    std::vector<Piece> pieces_;
    size_t current_ = 0;
    uint64_t filled_ = 0;  // of the current piece
};

}  // namespace minim::model
