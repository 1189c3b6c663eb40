// SPDX-License-Identifier: Apache-2.0
#include "weights/upload_ring.h"

namespace minim::weights {

UploadRing::UploadRing(const backend::Backend& backend, uint64_t piece_bytes) : backend_(backend) {
    for (size_t i = 0; i < k_pieces; ++i)
        pieces_.push_back(
            {backend.allocate_staging(piece_bytes, "weights on their way"), backend.reserve({})});
}

std::byte* UploadRing::room() {
    const Piece& piece = pieces_[current_];
    backend_.synchronize(*piece.stream);
    return piece.memory->data();
}

void UploadRing::send(std::byte* to, uint64_t bytes) {
    const Piece& piece = pieces_[current_];
    backend_.upload(*piece.stream, to, piece.memory->data(), bytes);
    current_ = (current_ + 1) % k_pieces;
}

void UploadRing::finish() {
    for (const Piece& piece : pieces_) backend_.synchronize(*piece.stream);
}

}  // namespace minim::weights
