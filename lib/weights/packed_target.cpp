// SPDX-License-Identifier: Apache-2.0
#include "weights/packed_target.h"

#include <atomic>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory_info.h"
#include "weights/load.h"
#include "weights/tasks_that_throw.h"

namespace minim::weights {
namespace {

constexpr uint64_t k_alignment = 64;

// Returns the number of runs, which does not depend on their positions.
uint64_t n_runs_of(std::span<const WeightSpec* const> weights) {
    uint64_t n = 0;
    for (const WeightSpec* weight : weights) n += weight->bytes() > 0 ? 1 : 0;
    return n;
}

uint64_t bytes_of(const backend::Matrix& matrix) {
    return static_cast<uint64_t>(matrix.rows * matrix.row_bytes);
}

// Hash of a packed piece, seeded with its offset in the run.
uint64_t hash_of_piece(std::span<const std::byte> stored, uint64_t at) {
    return hash_bytes(stored, at);
}

}  // namespace

PackedTarget::PackedTarget(std::span<const WeightSpec* const> weights, const backend::HostDevice& backend,
                           const PackedOptions& options, const Logger& log)
    : weights_(weights),
      backend_(backend),
      options_(options),
      log_(log),
      file_(PackedFile::open(options.path, options.origin, log)) {
    const bool as_in_file = file_ && options_.expand == Expand::automatic;
    const auto chosen = [&] { return choose_expanded(backend_, weights_, options_.expand, log_); };
    plan(as_in_file ? file_->expanded() : chosen());
    if (file_ && !fits(*file_)) {
        log_.warning(
            "{}: has other weights of this model, or has them in another format; it is written again",
            options_.path);
        file_.reset();
        if (as_in_file) plan(chosen());
    }
    const uint64_t available = available_memory_bytes();
    if (options_.checks && layout_->stored_bytes() > available)
        fail_out_of_memory("packed weights", layout_->stored_bytes(), available);
    if (!file_)
        writer_ = std::make_unique<PackedWriter>(options_.path, layout_->buffer_bytes().front(), backend_);
}

void PackedTarget::plan(const ExpandedFormats& expanded) {
    layout_.emplace(weights_, &backend_,
                    LayoutOptions{.expanded = expanded,
                                  .alignment = k_alignment,
                                  .first_byte = first_packed_byte(n_runs_of(weights_))});
}

// Returns a hash of the weights and how they are stored: layers of one model have the same shapes.
uint64_t PackedTarget::contents_hash() const {
    uint64_t hash = options_.part;
    for (const Run& run : layout_->runs()) {
        const std::string_view name = traits(run.stored.format).name;
        const int64_t numbers[] = {run.stored.rows, run.stored.cols, run.stored.row_bytes,
                                   run.read.packed ? backend_.pack_rows_together() : 0};
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
        if (at % k_alignment != 0 || at < first || bytes > size || at > size - bytes) return false;
    }
    return true;
}

uint64_t PackedTarget::bytes_to_read() const {
    if (!file_) return layout_->read_bytes();
    return options_.checks ? layout_->stored_bytes() : 0;
}

void PackedTarget::finish(const Reader& reader, checkpoint::LoadCounter& counter) {
    if (file_) {
        if (options_.checks) check(counter);
        return;
    }
    write(reader, counter);
    writer_.reset();
    file_ = PackedFile::open(options_.path, options_.origin, log_);
    if (!file_ || !fits(*file_))
        fail(Status::io, "{}: another file replaced it while it was being written", options_.path);
    log_.info("{}: made, {} bytes of packed weights", options_.path, file_->bytes().size());
}

void PackedTarget::write(const Reader& reader, checkpoint::LoadCounter& counter) {
    const std::span<const Run> runs = layout_->runs();
    std::vector<std::atomic<uint64_t>> hashes(runs.size());
    const auto end_of = [](std::span<const Piece> pieces) {
        return pieces.back().to() + pieces.back().stored_bytes();
    };
    const Target target = {[&](std::span<const Piece> pieces) { writer_->make_room(end_of(pieces)); },
                           [&](const Piece& piece) { return writer_->place(piece.to()); },
                           [&](const Piece& piece) {
                               hashes[static_cast<size_t>(piece.run - runs.data())] += hash_of_piece(
                                   {writer_->place(piece.to()), piece.stored_bytes()}, piece.stored_at());
                           },
                           [&](std::span<const Piece> pieces) { writer_->write(end_of(pieces)); }};
    load(*layout_, reader, &backend_, target, counter);
    std::vector<PackedRun> table;
    for (size_t i = 0; i < runs.size(); ++i) table.push_back({runs[i].to, hashes[i]});
    PackedHeader header = {};
    header.model = options_.origin.model;
    header.origin = options_.origin.origin;
    header.contents = contents_hash();
    header.expanded = layout_->expanded().bits();
    writer_->finish(header, table);
}

void PackedTarget::check(checkpoint::LoadCounter& counter) const {
    const std::span<const Run> runs = layout_->runs();
    std::vector<std::atomic<uint64_t>> hashes(runs.size());
    PieceCursor cursor(*layout_);
    std::vector<Piece> pieces;
    while (const uint64_t count =
               cursor.next_job(pieces, [](const Piece& piece) { return piece.stored_bytes(); })) {
        run_tasks_that_throw(&backend_, std::ssize(pieces), [&](int64_t i, int32_t) {
            const Piece& piece = pieces[static_cast<size_t>(i)];
            const auto r = static_cast<size_t>(piece.run - runs.data());
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

PlacedMatrices PackedTarget::placed() const {
    const Run* first = layout_->runs().data();
    return layout_->placed([&](const Run& run) {
        return file_->bytes().data() + file_->runs()[static_cast<size_t>(&run - first)].at;
    });
}

}  // namespace minim::weights
