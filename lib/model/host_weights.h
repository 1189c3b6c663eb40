// Weights read into host memory and packed on their way there: a few megabytes at a time by all threads of the backend,
// each of which reads rows into a small buffer of its own and writes them to their place in the order that the kernels
// read. Nothing is read or written twice, and while the threads pack, the system reads ahead.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "checkpoint/load_counter.h"
#include "model/upload_ring.h"
#include "model/visit_weights.h"

namespace minim::model {

class HostWeights {
  public:
    // Takes the memory for the weights of a device that computes on the host's. The arguments must outlive it.
    // Throws out_of_memory.
    HostWeights(const Share& share, Weights& weights);

    uint64_t bytes() const noexcept { return bytes_; }  // that read() will read

    // `weights` points into the buffers afterwards. Throws out_of_memory, cancelled and what `read` throws.
    void read(const ReadWeights& read, checkpoint::LoadCounter& counter);
    std::vector<Buffer> take_buffers() { return std::move(buffers_); }

  private:
    // Rows that lie together in the checkpoint and in memory.
    struct Run {
        const std::byte* from;
        backend::Matrix shape;  // `packed`: they are to be
        size_t buffer;
        std::byte* to = nullptr;
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

    const backend::RowSplit* split_of(int64_t n_rows);
    size_t common_buffer() const;
    void take_memory();
    void make_present(std::span<const Piece> pieces);
    void read_pieces(std::span<const Piece> pieces, const ReadWeights& read);

    const Share& share_;
    Weights& weights_;
    const backend::Backend& backend_;
    const bool shares_head_;            // one tensor is embedding and output head: it stays one, and rows
    std::vector<Run> runs_;             // as visit_share() meets them
    std::vector<uint32_t> file_order_;  // of the runs
    std::vector<Buffer> buffers_;
    std::vector<uint64_t> present_bytes_;  // a buffer
    uint64_t bytes_ = 0;
    uint64_t thread_bytes_ = 0;  // of scratch
    Buffer scratch_;
};

}  // namespace minim::model
