// SPDX-License-Identifier: Apache-2.0
#include "weights/load.h"

#include <algorithm>
#include <utility>

#include "base/buffer.h"
#include "base/checked.h"
#include "weights/tasks_that_throw.h"

namespace minim::weights {
namespace {

using backend::Matrix;
using checkpoint::k_load_block_bytes;

// The bytes that a thread reads at a time: it packs them from the second-level cache. Packed files have a hash for
// each piece, so another size needs a new version of their format.
constexpr uint64_t k_piece_bytes = uint64_t{128} << 10;
// The bytes that the system is asked to read ahead of the threads.
constexpr uint64_t k_ahead_bytes = uint64_t{32} << 20;
constexpr uint64_t k_scratch_alignment = 64;

// Returns the most bytes of a piece of the run.
uint64_t piece_bytes(const BufferLayout& layout, const Run& run) {
    const uint64_t unit = layout.unit_bytes(run);
    return std::max(k_piece_bytes / unit, uint64_t{1}) * unit;
}

// The buffers of every thread: rows as they are read, and a panel of rows with unpacked codebooks.
class PackScratch {
  public:
    PackScratch(const BufferLayout& layout, const backend::HostDevice* host) : host_(host) {
        for (const Run& run : layout.runs()) {
            if (run.read.packed) rows_bytes_ = std::max(rows_bytes_, piece_bytes(layout, run));
            if (run.stored.format != run.read.format)
                unpacked_bytes_ = std::max(unpacked_bytes_, static_cast<uint64_t>(host->pack_rows_together() *
                                                                                  run.stored.row_bytes));
        }
        rows_bytes_ = align_up(rows_bytes_, k_scratch_alignment);
        unpacked_bytes_ = align_up(unpacked_bytes_, k_scratch_alignment);
        bytes_ = Buffer(
            static_cast<uint64_t>(host == nullptr ? 1 : host->n_threads()) * (rows_bytes_ + unpacked_bytes_),
            "packing weights");
    }

    void read(const Piece& piece, const Reader& reader, int32_t thread, std::byte* to) const {
        const Run& run = *piece.run;
        const uint64_t from = run.from + piece.at;
        if (!run.read.packed) return reader.read(*run.weight, from, {to, piece.bytes});
        std::byte* rows = bytes_.data() + static_cast<uint64_t>(thread) * (rows_bytes_ + unpacked_bytes_);
        reader.read(*run.weight, from, {rows, piece.bytes});
        pack(piece, rows, rows + rows_bytes_, to);
    }

  private:
    // `expanded` has room for a panel.
    void pack(const Piece& piece, const std::byte* rows, std::byte* unpacked, std::byte* to) const {
        const Run& run = *piece.run;
        const int64_t n_rows = static_cast<int64_t>(piece.bytes) / run.read.row_bytes;
        Matrix part = run.stored;
        if (run.stored.format == run.read.format) {
            part.rows = n_rows;
            return host_->pack_rows(part, rows, to);
        }
        for (int64_t r = 0; r < n_rows; r += part.rows) {
            part.rows = std::min(host_->pack_rows_together(), n_rows - r);
            expand_rows(run.read.format, rows + r * run.read.row_bytes, part.rows, run.read.row_bytes,
                        part.cols, unpacked);
            host_->pack_rows(part, unpacked, to + r * part.row_bytes);
        }
    }

    const backend::HostDevice* host_;
    uint64_t rows_bytes_ = 0;
    uint64_t unpacked_bytes_ = 0;
    Buffer bytes_;
};

}  // namespace

Piece PieceCursor::next() {
    while (run_ < layout_.file_order().size()) {
        const Run& run = layout_.runs()[layout_.file_order()[run_]];
        const uint64_t total = bytes_of(run.read);
        if (at_ == total) {
            ++run_;
            at_ = 0;
            continue;
        }
        const uint64_t count = std::min(total - at_, piece_bytes(layout_, run));
        return {&run, std::exchange(at_, at_ + count), count};
    }
    return {};
}

uint64_t PieceCursor::next_job(std::vector<Piece>& pieces,
                               const std::function<uint64_t(const Piece&)>& bytes) {
    pieces.clear();
    uint64_t count = 0;
    for (Piece piece; count < k_load_block_bytes && (piece = next()).bytes > 0; count += bytes(piece))
        pieces.push_back(piece);
    return count;
}

void load(const BufferLayout& layout, const Reader& reader, const backend::HostDevice* host,
          const PieceTarget& target, checkpoint::LoadCounter& counter) {
    const PackScratch scratch(layout, host);
    PieceCursor ahead(layout);
    PieceCursor cursor(layout);
    uint64_t done = 0;
    uint64_t asked = 0;
    std::vector<Piece> pieces;
    while (true) {
        while (asked < done + k_ahead_bytes) {
            const Piece piece = ahead.next();
            if (piece.bytes == 0) break;
            reader.read_ahead(*piece.run->weight, piece.run->from + piece.at, piece.bytes);
            asked += piece.bytes;
        }
        const uint64_t count = cursor.next_job(pieces, read_bytes);
        if (count == 0) return;
        target.prepare(pieces);
        run_tasks_that_throw(host, std::ssize(pieces), [&](int64_t i, int32_t thread) {
            const Piece& piece = pieces[i];
            scratch.read(piece, reader, thread, target.place(piece));
            if (target.written) target.written(piece);
        });
        if (target.commit) target.commit(pieces);
        done += count;
        counter.add(count);
    }
}

}  // namespace minim::weights
