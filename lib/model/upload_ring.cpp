#include "model/upload_ring.h"

#include <algorithm>

namespace minim::model {

UploadRing::UploadRing(const backend::Backend& backend, std::byte* to, const ReadWeights& read,
                       checkpoint::LoadCounter& counter)
    : backend_(backend), to_(to), read_(read), counter_(counter) {
    for (size_t i = 0; i < k_pieces; ++i)
        pieces_.push_back(
            {backend.allocate_staging(k_piece_bytes, "weights on their way"), backend.reserve({})});
}

// What is left of the current piece, once what it held before has arrived.
std::span<std::byte> UploadRing::room() {
    const Piece& piece = pieces_[current_];
    if (filled_ == 0) backend_.synchronize(*piece.stream);
    return {piece.memory->data() + filled_, k_piece_bytes - filled_};
}

void UploadRing::advance(uint64_t bytes) {
    filled_ += bytes;
    if (filled_ == k_piece_bytes) send();
}

void UploadRing::send() {
    const Piece& piece = pieces_[current_];
    backend_.upload(*piece.stream, to_, piece.memory->data(), filled_);
    to_ += filled_;
    filled_ = 0;
    current_ = (current_ + 1) % k_pieces;
}

void UploadRing::append(const std::byte* from, uint64_t bytes) {
    while (bytes > 0) {
        std::span<std::byte> out = room();
        out = out.first(std::min<uint64_t>(out.size(), bytes));
        read_(from, out);
        counter_.add(out.size());
        from += out.size();
        bytes -= out.size();
        advance(out.size());
    }
}

void UploadRing::skip(uint64_t bytes) {
    while (bytes > 0) {
        const uint64_t count = std::min<uint64_t>(room().size(), bytes);
        bytes -= count;
        advance(count);
    }
}

void UploadRing::finish() {
    if (filled_ > 0) send();
    for (const Piece& piece : pieces_) backend_.synchronize(*piece.stream);
}

}  // namespace minim::model
