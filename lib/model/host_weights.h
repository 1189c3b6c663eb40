// Weights read into host memory and packed on their way there: a few megabytes at a time by all threads of the backend,
// each of which reads rows into a small buffer of its own and writes them to their place in the order that the kernels
// read, expanded where that is wanted. Nothing is read or written twice, and while the threads pack, the system reads ahead.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "checkpoint/load_counter.h"
#include "model/expand_weights.h"
#include "model/upload_ring.h"
#include "model/visit_weights.h"

namespace minim::model {

class HostWeights {
  public:
    // Takes the memory for the weights of a device that computes on the host's. The arguments must outlive it.
    // Throws out_of_memory.
    HostWeights(const Share& share, Weights& weights, const ExpandedFormats& expanded);

    uint64_t bytes() const noexcept { return bytes_; }  // that read() will read

    // `weights` points into the buffers afterwards. Throws out_of_memory, cancelled and what `read` throws.
    void read(const ReadWeights& read, checkpoint::LoadCounter& counter);
    std::vector<Buffer> take_buffers() { return std::move(buffers_); }

  private:
    // Rows that lie together in the checkpoint and in memory.
    struct Run {
        const std::byte* from;
        backend::Matrix shape;  // in the checkpoint
        backend::Matrix held;   // in memory
        size_t buffer;
        std::byte* to = nullptr;

        // Where a row that begins `at` bytes into the run lies in memory; any byte of rows that stay as they are.
        uint64_t held_at(uint64_t at) const {
            if (held.row_bytes == shape.row_bytes) return at;
            return at / static_cast<uint64_t>(shape.row_bytes) * static_cast<uint64_t>(held.row_bytes);
        }
    };
    // Of a run: whole panels where it is packed.
    struct Piece {
        const Run* run = nullptr;
        uint64_t at = 0;
        uint64_t bytes = 0;
    };
    class Cursor;
    struct Collector;
    struct Assigner;

    backend::Matrix held(const backend::Matrix& shape) const;
    const backend::RowSplit* split_of(int64_t n_rows);
    size_t common_buffer() const;
    void take_memory();
    void make_present(std::span<const Piece> pieces);
    void read_pieces(std::span<const Piece> pieces, const ReadWeights& read);
    void pack_piece(const Piece& piece, const std::byte* rows, std::byte* expanded) const;

    const Share& share_;
    Weights& weights_;
    const backend::Backend& backend_;
    const ExpandedFormats expanded_;
    const bool shares_head_;            // one tensor is embedding and output head: it stays one, and rows
    std::vector<Run> runs_;             // as visit_share() meets them
    std::vector<uint32_t> file_order_;  // of the runs
    std::vector<Buffer> buffers_;
    std::vector<uint64_t> present_bytes_;  // a buffer
    uint64_t bytes_ = 0;
    uint64_t rows_bytes_ = 0;      // of a thread's scratch: a piece
    uint64_t expanded_bytes_ = 0;  // and a panel of it, expanded
    Buffer scratch_;
};

}  // namespace minim::model
