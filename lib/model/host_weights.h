// Weights read into host memory and packed on their way there: a few megabytes at a time by all threads of the backend,
// each of which reads rows into a small buffer of its own and writes them to their place in the order that the kernels
// read, expanded where that is wanted. Nothing is read or written twice, and while the threads pack, the system reads ahead.
// Instead of memory it may be a file that they go to (packed_file.h), to be mapped then and later.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "checkpoint/load_counter.h"
#include "model/expand_weights.h"
#include "model/packed_file.h"
#include "model/upload_ring.h"
#include "model/visit_weights.h"

namespace minim::model {

class HostWeights {
  public:
    enum class Place { memory, file };

    // The weights of a device that computes on the host's memory, which is taken here if it is their place. The arguments
    // must outlive it. Throws out_of_memory.
    HostWeights(const Share& share, Weights& weights, const ExpandedFormats& expanded, Place place);

    uint64_t bytes() const noexcept { return bytes_; }            // that read() or write() will read
    uint64_t held_bytes() const noexcept { return held_bytes_; }  // that check() will

    // Into memory: `weights` points into the buffers afterwards. Throws out_of_memory, cancelled and what `read` throws.
    void read(const ReadWeights& read, checkpoint::LoadCounter& counter);
    std::vector<Buffer> take_buffers() { return std::move(buffers_); }

    // Into a file that begin_file() has made. Throws io, cancelled and what `read` throws: there is no new file then.
    std::unique_ptr<PackedWriter> begin_file(const std::string& path) const;
    void write(PackedWriter& file, const PackedOrigin& origin, const ReadWeights& read,
               checkpoint::LoadCounter& counter);
    // Whether the file holds these weights as they would be written now. Reads its runs.
    bool fits(PackedFile& file) const;
    // Of one that fits: `weights` points into it afterwards.
    void map(const PackedFile& file);
    // Throws format where the weights in it are not those that were written, and cancelled.
    void check(const PackedFile& file, checkpoint::LoadCounter& counter) const;

  private:
    // Rows that lie together in the checkpoint and in memory.
    struct Run {
        const std::byte* from;
        backend::Matrix shape;  // in the checkpoint
        backend::Matrix held;   // in memory
        size_t buffer;
        uint64_t to = 0;  // from the start of the buffer, or of the file

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

        uint64_t held_at() const { return run->held_at(at); }
        uint64_t held_bytes() const { return run->held_at(bytes); }
        uint64_t to() const { return run->to + held_at(); }  // as Run::to
    };
    class Cursor;
    struct Collector;
    struct Assigner;

    backend::Matrix held(const backend::Matrix& shape) const;
    const backend::RowSplit* split_of(int64_t n_rows);
    size_t common_buffer() const;
    void find_places();
    void take_memory();
    void take_scratch();
    size_t index_of(const Run& run) const { return static_cast<size_t>(&run - runs_.data()); }
    uint64_t contents_hash() const;
    void make_present(std::span<const Piece> pieces);
    void for_each_job(checkpoint::LoadCounter& counter,
                      const std::function<void(std::span<const Piece>)>& job);
    void hold_piece(const Piece& piece, const ReadWeights& read, int32_t thread, std::byte* to) const;
    void pack_piece(const Piece& piece, const std::byte* rows, std::byte* expanded, std::byte* to) const;
    void assign(const std::function<const std::byte*(const Run&)>& place);

    const Share& share_;
    Weights& weights_;
    const backend::Backend& backend_;
    const ExpandedFormats expanded_;
    const Place place_;
    const bool shares_head_;             // one tensor is embedding and output head: it stays one, and rows
    std::vector<Run> runs_;              // as visit_share() meets them
    std::vector<uint32_t> file_order_;   // of the runs
    std::vector<uint64_t> place_bytes_;  // a buffer, or the file
    std::vector<Buffer> buffers_;
    std::vector<uint64_t> present_bytes_;  // a buffer
    uint64_t bytes_ = 0;
    uint64_t held_bytes_ = 0;
    uint64_t rows_bytes_ = 0;      // of a thread's scratch: a piece
    uint64_t expanded_bytes_ = 0;  // and a panel of it, expanded
    Buffer scratch_;
};

}  // namespace minim::model
