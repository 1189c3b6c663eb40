// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory_info.h"
#include "weights/load.h"
#include "weights/mapped.h"
#include "weights/packed_file.h"
#include "weights/target.h"
#include "weights/tasks_that_throw.h"

namespace minim::weights {
namespace {

constexpr uint64_t k_packed_alignment = 64;

// Returns the number of runs, which does not depend on their positions.
uint64_t n_runs_of(std::span<const WeightSpec* const> weights) {
    uint64_t n = 0;
    for (const WeightSpec* weight : weights) n += weight->bytes() > 0 ? 1 : 0;
    return n;
}

// Hash of a packed piece, seeded with its offset in the run.
uint64_t hash_of_piece(std::span<const std::byte> stored, uint64_t at) {
    return hash_bytes(stored, at);
}

class PackedTarget : public Target {
  public:
    PackedTarget(const DeviceWeights& part, uint64_t part_hash, const Reader& reader,
                 const PlaceOptions& options, const Logger& log);

    uint64_t bytes_to_read() const override;
    void read(checkpoint::LoadCounter& counter) override;
    PlacedWeights finish() override;

  private:
    void plan(const UnpackedFormats& unpacked);
    uint64_t contents_hash() const;
    bool fits(PackedFile& file) const;
    void write(checkpoint::LoadCounter& counter);
    void check(checkpoint::LoadCounter& counter) const;

    const DeviceWeights& part_;
    const uint64_t part_hash_;  // identifies the part of the model
    const Reader& reader_;
    const PlaceOptions& options_;
    const Logger& log_;
    const bool checks_;  // reads and checks all of an existing file
    std::optional<BufferLayout> layout_;
    std::optional<PackedFile> file_;        // an existing one with the weights,
    std::unique_ptr<PackedWriter> writer_;  // or a new one
};

PackedTarget::PackedTarget(const DeviceWeights& part, uint64_t part_hash, const Reader& reader,
                           const PlaceOptions& options, const Logger& log)
    : part_(part),
      part_hash_(part_hash),
      reader_(reader),
      options_(options),
      log_(log),
      checks_(prefaults(part, options)),
      file_(PackedFile::open(options.packed_file, options.origin, log)) {
    const bool as_in_file = file_ && options_.expand == Expand::automatic;
    const auto chosen = [&] { return choose_unpacked(*part_.host, part_.weights, options_.expand, log_); };
    plan(as_in_file ? file_->unpacked() : chosen());
    if (file_ && !fits(*file_)) {
        log_.warning(
            "{}: has other weights of this model, or has them in another format; it is written again",
            options_.packed_file);
        file_.reset();
        if (as_in_file) plan(chosen());
    }
    const uint64_t available = available_memory_bytes();
    if (checks_ && layout_->stored_bytes() > available)
        fail_out_of_memory("packed weights", layout_->stored_bytes(), available);
    if (!file_)
        writer_ = std::make_unique<PackedWriter>(options_.packed_file, layout_->buffer_bytes().front(),
                                                 *part_.host);
}

void PackedTarget::plan(const UnpackedFormats& unpacked) {
    layout_.emplace(part_.weights, part_.host,
                    BufferLayoutOptions{.unpacked = unpacked,
                                        .alignment = k_packed_alignment,
                                        .first_byte = first_packed_byte(n_runs_of(part_.weights))});
}

// Returns a hash of the weights and how they are stored: layers of one model have the same shapes.
uint64_t PackedTarget::contents_hash() const {
    uint64_t hash = part_hash_;
    for (const Run& run : layout_->runs()) {
        const std::string_view name = traits(run.stored.format).name;
        const int64_t numbers[] = {run.stored.rows, run.stored.cols, run.stored.row_bytes,
                                   run.read.packed ? part_.host->pack_rows_together() : 0};
        hash = hash_bytes(std::as_bytes(std::span(name)), hash);
        hash = hash_bytes(std::as_bytes(std::span(numbers)), hash);
    }
    return hash;
}

bool PackedTarget::fits(PackedFile& file) const {
    const std::span<const Run> runs = layout_->runs();
    if (file.contents() != contents_hash() || !file.read_runs(runs.size())) return false;
    const uint64_t first = first_packed_byte(runs.size());
    const uint64_t size = file.bytes().size();
    for (size_t i = 0; i < runs.size(); ++i) {
        const uint64_t at = file.runs()[i].at;
        const uint64_t bytes = bytes_of(runs[i].stored);
        if (at % k_packed_alignment != 0 || at < first || bytes > size || at > size - bytes) return false;
    }
    return true;
}

uint64_t PackedTarget::bytes_to_read() const {
    if (!file_) return layout_->read_bytes();
    return checks_ ? layout_->stored_bytes() : 0;
}

void PackedTarget::read(checkpoint::LoadCounter& counter) {
    if (file_) {
        if (checks_) check(counter);
        return;
    }
    write(counter);
    writer_.reset();
    file_ = PackedFile::open(options_.packed_file, options_.origin, log_);
    if (!file_ || !fits(*file_))
        fail(Status::io, "{}: another file replaced it while it was being written", options_.packed_file);
    log_.info("{}: made, {} bytes of packed weights", options_.packed_file, file_->bytes().size());
}

void PackedTarget::write(checkpoint::LoadCounter& counter) {
    const std::span<const Run> runs = layout_->runs();
    std::vector<std::atomic<uint64_t>> hashes(runs.size());
    const auto end_of = [](std::span<const Piece> pieces) {
        return pieces.back().to() + pieces.back().stored_bytes();
    };
    const PieceTarget target = {[&](std::span<const Piece> pieces) { writer_->make_room(end_of(pieces)); },
                                [&](const Piece& piece) { return writer_->place(piece.to()); },
                                [&](const Piece& piece) {
                                    hashes[piece.run - runs.data()] +=
                                        hash_of_piece({writer_->place(piece.to()), piece.stored_bytes()},
                                                      piece.stored_at());
                                },
                                [&](std::span<const Piece> pieces) { writer_->write(end_of(pieces)); }};
    load(*layout_, reader_, part_.host, target, counter);
    std::vector<PackedRun> table;
    for (size_t i = 0; i < runs.size(); ++i) table.push_back({runs[i].to, hashes[i]});
    PackedHeader header = {};
    header.model = options_.origin.model;
    header.origin = options_.origin.origin;
    header.contents = contents_hash();
    header.unpacked = layout_->unpacked().bits();
    writer_->finish(header, table);
}

void PackedTarget::check(checkpoint::LoadCounter& counter) const {
    const std::span<const Run> runs = layout_->runs();
    std::vector<std::atomic<uint64_t>> hashes(runs.size());
    PieceCursor cursor(*layout_);
    std::vector<Piece> pieces;
    while (const uint64_t count =
               cursor.next_job(pieces, [](const Piece& piece) { return piece.stored_bytes(); })) {
        run_tasks_that_throw(part_.host, std::ssize(pieces), [&](int64_t i, int32_t) {
            const Piece& piece = pieces[i];
            const int64_t r = piece.run - runs.data();
            const auto stored =
                file_->bytes().subspan(file_->runs()[r].at + piece.stored_at(), piece.stored_bytes());
            make_mapped_present(stored);
            hashes[r] += hash_of_piece(stored, piece.stored_at());
        });
        counter.add(count);
    }
    for (size_t i = 0; i < runs.size(); ++i)
        if (hashes[i] != file_->runs()[i].hash)
            fail_file(Reason::value, "{}: the packed weights at byte {} are not those that were written",
                      file_->path(), file_->runs()[i].at);
}

PlacedWeights PackedTarget::finish() {
    const Run* first = layout_->runs().data();
    PlacedWeights placed;
    placed.weights = layout_->placed(
        [&](const Run& run) { return file_->bytes().data() + file_->runs()[&run - first].at; });
    placed.packed = std::move(*file_);
    // All of the file has been written or checked by now. Its pages are prefaulted and locked like those of mapped weights.
    if (checks_) {
        const checkpoint::Progress none;
        checkpoint::LoadCounter silent(0, none, options_.cancel);
        prefault(mapped_blocks(part_.weights, placed.weights.matrices), *part_.host, silent);
    }
    return placed;
}

}  // namespace

std::unique_ptr<Target> packed_target(const DeviceWeights& part, uint64_t part_hash, const Reader& reader,
                                      const PlaceOptions& options, const Logger& log) {
    return std::make_unique<PackedTarget>(part, part_hash, reader, options, log);
}

}  // namespace minim::weights
