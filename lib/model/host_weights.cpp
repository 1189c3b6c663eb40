#include "model/host_weights.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <string_view>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory_info.h"
#include "model/tasks_that_throw.h"

namespace minim::model {
namespace {

using backend::ExpertStack;
using backend::Matrix;
using backend::Vector;
using checkpoint::k_load_block_bytes;

// Of every matrix: a cache line, and the widest vector.
constexpr uint64_t k_alignment = 64;
// What a thread reads at a time: it packs out of the second-level cache. A job has k_load_block_bytes of them. Packed files
// hash by pieces: another size is another version of them.
constexpr uint64_t k_piece_bytes = uint64_t{128} << 10;
// How far the system is asked to read ahead of the threads.
constexpr uint64_t k_ahead_bytes = uint64_t{32} << 20;
// Memory made present in one job, and by one thread: a huge page.
constexpr uint64_t k_present_job_bytes = uint64_t{64} << 20;
constexpr uint64_t k_present_bytes = uint64_t{2} << 20;

constexpr const char* k_what = "weights in host memory";

uint64_t unit_bytes(const backend::Backend& backend, const Matrix& shape) {
    return shape.packed ? static_cast<uint64_t>(backend.pack_rows_together() * shape.row_bytes) : 1;
}

// The most bytes of a piece.
uint64_t piece_bytes(const backend::Backend& backend, const Matrix& shape) {
    const uint64_t unit = unit_bytes(backend, shape);
    return std::max(k_piece_bytes / unit, uint64_t{1}) * unit;
}

// As it lies `at` bytes into what is held of a run.
uint64_t hash_of_piece(std::span<const std::byte> held, uint64_t at) {
    return hash_bytes(held, at);
}

}  // namespace

// The runs in the order of the file, piece by piece.
class HostWeights::Cursor {
  public:
    explicit Cursor(const HostWeights& all) : all_(all) {}

    // Of no bytes at the end.
    Piece next() {
        while (run_ < all_.file_order_.size()) {
            const Run& run = all_.runs_[all_.file_order_[run_]];
            const uint64_t total = bytes_of(run.shape);
            if (at_ == total) {
                ++run_;
                at_ = 0;
                continue;
            }
            const uint64_t count = std::min(total - at_, piece_bytes(all_.backend_, run.shape));
            return {&run, std::exchange(at_, at_ + count), count};
        }
        return {};
    }

    // The pieces of a job: of k_load_block_bytes together or one piece more, as bytes(piece) counts them, which it returns.
    template <typename Bytes>
    uint64_t next_job(std::vector<Piece>& pieces, const Bytes& bytes) {
        pieces.clear();
        uint64_t count = 0;
        for (Piece piece; count < k_load_block_bytes && (piece = next()).bytes > 0; count += bytes(piece))
            pieces.push_back(piece);
        return count;
    }

  private:
    const HostWeights& all_;
    size_t run_ = 0;
    uint64_t at_ = 0;
};

// What is to be read, and into which buffer: one a memory node for the rows that are split among them, and a last one
// for everything else.
struct HostWeights::Collector {
    HostWeights& all;

    void add(const std::byte* from, const Matrix& shape, size_t buffer) {
        if (bytes_of(shape) > 0) all.runs_.push_back({from, shape, all.held(shape), buffer});
    }
    void add_rows(const std::byte* from, Matrix shape) {
        const backend::RowSplit* split = all.split_of(shape.rows);
        if (split == nullptr) return add(from, shape, all.common_buffer());
        for (size_t k = 0; k + 1 < split->first_row.size(); ++k) {
            shape.rows = split->first_row[k + 1] - split->first_row[k];
            add(from + split->first_row[k] * shape.row_bytes, shape, k);
        }
    }
    void matrix(Matrix& matrix, MatrixUse use) {
        if (all.shares_head_ && &matrix == &all.weights_.output) return;
        Matrix shape = matrix;
        if (use == MatrixUse::rows) return add(matrix.data, shape, all.common_buffer());
        shape.packed = all.backend_.packs(matrix.format);
        add_rows(matrix.data, shape);
    }
    void vector(Vector& vector) {
        const auto bytes = vector.size * static_cast<int64_t>(sizeof(float));
        add(reinterpret_cast<const std::byte*>(vector.data),
            {.format = Format::f32, .rows = 1, .cols = vector.size, .row_bytes = bytes}, all.common_buffer());
    }
    void stack(ExpertStack& stack) {
        Matrix shape = stack.expert.empty() ? Matrix() : stack.matrix(0);
        shape.packed = all.backend_.packs(stack.format);
        for (const std::byte* expert : stack.expert) add_rows(expert, shape);
    }
};

// Where it lies now: visits in the order of the Collector.
struct HostWeights::Assigner {
    HostWeights& all;
    const std::function<const std::byte*(const Run&)>& place;
    size_t next = 0;

    template <typename Rows>
    static void hold(Rows& rows, const Matrix& held) {
        rows.format = held.format;
        rows.row_bytes = held.row_bytes;
    }

    const std::byte* take(uint64_t bytes) { return bytes == 0 ? nullptr : place(all.runs_[next++]); }
    void take_parts(const backend::RowSplit& split, int64_t row_bytes, std::vector<const std::byte*>& parts) {
        for (size_t k = 0; k + 1 < split.first_row.size(); ++k)
            parts.push_back(
                take(static_cast<uint64_t>((split.first_row[k + 1] - split.first_row[k]) * row_bytes)));
    }
    void matrix(Matrix& matrix, MatrixUse use) {
        if (all.shares_head_ && &matrix == &all.weights_.output) {
            matrix.data = all.weights_.embedding.data;
            return;
        }
        const bool is_product = use == MatrixUse::product;
        matrix.packed = is_product && all.backend_.packs(matrix.format);
        matrix.split = is_product ? all.split_of(matrix.rows) : nullptr;
        hold(matrix, all.held(matrix));
        if (matrix.split == nullptr) {
            matrix.data = take(bytes_of(matrix));
            return;
        }
        std::vector<const std::byte*>& parts = all.weights_.parts.emplace_back();
        take_parts(*matrix.split, matrix.row_bytes, parts);
        matrix.part = parts.data();
        matrix.data = parts.front();
    }
    void vector(Vector& vector) {
        vector.data = reinterpret_cast<const float*>(take(static_cast<uint64_t>(vector.size)));
    }
    void stack(ExpertStack& stack) {
        stack.packed = all.backend_.packs(stack.format);
        if (!stack.expert.empty()) hold(stack, all.held(stack.matrix(0)));
        const auto bytes = static_cast<uint64_t>(stack.rows * stack.row_bytes);
        stack.split = all.split_of(stack.rows);
        for (const std::byte*& expert : stack.expert) {
            if (stack.split == nullptr) {
                expert = take(bytes);
                continue;
            }
            const size_t first = stack.part.size();
            take_parts(*stack.split, stack.row_bytes, stack.part);
            expert = stack.part[first];
        }
    }
};

HostWeights::HostWeights(const Share& share, Weights& weights, const ExpandedFormats& expanded, Place place)
    : share_(share),
      weights_(weights),
      backend_(*share.backend),
      expanded_(expanded),
      place_(place),
      shares_head_(share.has_embedding && share.has_output && weights.output.data == weights.embedding.data) {
    Collector collector{*this};
    visit_share(share_, weights_, collector);
    find_places();
    if (place_ == Place::memory) take_memory();
}

// As it will be in its place.
Matrix HostWeights::held(const Matrix& shape) const {
    Matrix held = shape;
    if (!shape.packed || !expanded_.contains(shape.format)) return held;
    held.format = expanded_.held(shape.format);
    held.row_bytes = row_bytes(held.format, held.cols);
    return held;
}

// Null where rows are not split. The same for matrices of as many rows.
const backend::RowSplit* HostWeights::split_of(int64_t n_rows) {
    const HostMemory& memory = backend_.host_memory();
    if (place_ == Place::file || memory.n_nodes() == 1) return nullptr;
    for (const backend::RowSplit& split : weights_.splits)
        if (split.first_row.back() == n_rows) return &split;
    const int64_t granule = std::max(backend_.pack_rows_together(), backend::k_split_rows);
    weights_.splits.push_back({memory.rows_of_nodes(n_rows, granule)});
    return &weights_.splits.back();
}

size_t HostWeights::common_buffer() const {
    const int32_t n_nodes = place_ == Place::file ? 1 : backend_.host_memory().n_nodes();
    return n_nodes == 1 ? 0 : static_cast<size_t>(n_nodes);
}

// Matrices lie in the order of the file, so that memory fills from front to back.
void HostWeights::find_places() {
    file_order_.resize(runs_.size());
    for (size_t i = 0; i < runs_.size(); ++i) file_order_[i] = static_cast<uint32_t>(i);
    std::ranges::stable_sort(
        file_order_, [&](uint32_t a, uint32_t b) { return std::less<>()(runs_[a].from, runs_[b].from); });
    place_bytes_.resize(common_buffer() + 1);
    if (place_ == Place::file) place_bytes_[0] = first_packed_byte(runs_.size());
    for (const uint32_t i : file_order_) {
        Run& run = runs_[i];
        bytes_ += bytes_of(run.shape);
        held_bytes_ += bytes_of(run.held);
        run.to = align_up(place_bytes_[run.buffer], k_alignment);
        place_bytes_[run.buffer] = run.to + bytes_of(run.held);
    }
}

void HostWeights::take_memory() {
    for (uint64_t& bytes : place_bytes_) bytes = align_up(bytes, k_alignment);
    const uint64_t total = std::accumulate(place_bytes_.begin(), place_bytes_.end(), uint64_t{0});
    const uint64_t available = available_memory_bytes();
    if (total > available) fail_out_of_memory(k_what, total, available);
    const HostMemory& memory = backend_.host_memory();
    for (size_t b = 0; b < place_bytes_.size(); ++b) {
        const int32_t node = b == common_buffer() ? HostMemory::k_any_node : static_cast<int32_t>(b);
        buffers_.push_back(memory.take(place_bytes_[b], k_what, node, Buffer::Presence::later));
    }
    present_bytes_.resize(buffers_.size());
    take_scratch();
}

void HostWeights::take_scratch() {
    for (const Run& run : runs_) {
        if (run.shape.packed) rows_bytes_ = std::max(rows_bytes_, piece_bytes(backend_, run.shape));
        if (run.held.format != run.shape.format)
            expanded_bytes_ = std::max(expanded_bytes_, unit_bytes(backend_, run.held));
    }
    rows_bytes_ = align_up(rows_bytes_, k_alignment);
    expanded_bytes_ = align_up(expanded_bytes_, k_alignment);
    scratch_ = Buffer(static_cast<uint64_t>(backend_.n_threads()) * (rows_bytes_ + expanded_bytes_),
                      "packing weights");
}

// The memory the pieces go to, and a good deal of what comes after it: by all threads, as zeroing takes its time.
void HostWeights::make_present(std::span<const Piece> pieces) {
    for (size_t b = 0; b < buffers_.size(); ++b) {
        const Buffer& buffer = buffers_[b];
        uint64_t end = 0;
        for (const Piece& piece : pieces) {
            if (piece.run->buffer != b) continue;
            end = std::max(end, piece.to() + piece.held_bytes());
        }
        const uint64_t from = present_bytes_[b];
        if (end <= from) continue;
        end = std::min(buffer.size(), align_up(end + k_present_job_bytes, k_present_bytes));
        run_tasks_that_throw(backend_,
                             static_cast<int64_t>((end - from + k_present_bytes - 1) / k_present_bytes),
                             [&](int64_t i, int32_t) {
                                 const uint64_t at = from + static_cast<uint64_t>(i) * k_present_bytes;
                                 buffer.make_present(at, std::min(k_present_bytes, end - at), k_what);
                             });
        present_bytes_[b] = end;
    }
}

void HostWeights::hold_piece(const Piece& piece, const ReadWeights& read, int32_t thread,
                             std::byte* to) const {
    const Run& run = *piece.run;
    if (!run.shape.packed) return read(run.from + piece.at, {to, piece.bytes});
    std::byte* rows = scratch_.data() + static_cast<uint64_t>(thread) * (rows_bytes_ + expanded_bytes_);
    read(run.from + piece.at, {rows, piece.bytes});
    pack_piece(piece, rows, rows + rows_bytes_, to);
}

// `expanded` has room for a panel.
void HostWeights::pack_piece(const Piece& piece, const std::byte* rows, std::byte* expanded,
                             std::byte* to) const {
    const Run& run = *piece.run;
    const int64_t n_rows = static_cast<int64_t>(piece.bytes) / run.shape.row_bytes;
    Matrix part = run.held;
    if (run.held.format == run.shape.format) {
        part.rows = n_rows;
        return backend_.pack_rows(part, rows, to);
    }
    for (int64_t r = 0; r < n_rows; r += part.rows) {
        part.rows = std::min(backend_.pack_rows_together(), n_rows - r);
        expand_rows(run.shape.format, rows + r * run.shape.row_bytes, part.rows, run.shape.row_bytes,
                    part.cols, expanded);
        backend_.pack_rows(part, expanded, to + r * part.row_bytes);
    }
}

// All pieces, some megabytes at a time, the system reading ahead.
void HostWeights::for_each_job(checkpoint::LoadCounter& counter,
                               const std::function<void(std::span<const Piece>)>& job) {
    Cursor ahead(*this);
    Cursor cursor(*this);
    uint64_t done = 0;
    uint64_t asked = 0;
    std::vector<Piece> pieces;
    while (true) {
        while (asked < done + k_ahead_bytes) {
            const Piece piece = ahead.next();
            if (piece.bytes == 0) break;
            read_ahead({piece.run->from + piece.at, piece.bytes});
            asked += piece.bytes;
        }
        const uint64_t count = cursor.next_job(pieces, [](const Piece& piece) { return piece.bytes; });
        if (count == 0) return;
        job(pieces);
        done += count;
        counter.add(count);
    }
}

void HostWeights::assign(const std::function<const std::byte*(const Run&)>& place) {
    Assigner assigner{*this, place};
    visit_share(share_, weights_, assigner);
}

void HostWeights::read(const ReadWeights& read, checkpoint::LoadCounter& counter) {
    for_each_job(counter, [&](std::span<const Piece> pieces) {
        make_present(pieces);
        run_tasks_that_throw(backend_, std::ssize(pieces), [&](int64_t i, int32_t thread) {
            const Piece& piece = pieces[static_cast<size_t>(i)];
            hold_piece(piece, read, thread, buffers_[piece.run->buffer].data() + piece.to());
        });
    });
    scratch_ = Buffer();
    assign([&](const Run& run) { return buffers_[run.buffer].data() + run.to; });
}

// ---- packed files ----

// Of which weights these are and how they are held: layers of one model have the same shapes.
uint64_t HostWeights::contents_hash() const {
    const int64_t parts[] = {share_.first_layer, share_.n_layer, share_.has_embedding ? 1 : 0,
                             share_.has_output ? 1 : 0};
    uint64_t hash = hash_bytes(std::as_bytes(std::span(backend_.name())));
    hash = hash_bytes(std::as_bytes(std::span(parts)), hash);
    hash = hash_bytes(std::as_bytes(std::span(share_.expert_layers)), hash);
    for (const Run& run : runs_) {
        const std::string_view name = traits(run.held.format).name;
        const int64_t numbers[] = {run.held.rows, run.held.cols, run.held.row_bytes,
                                   run.shape.packed ? backend_.pack_rows_together() : 0};
        hash = hash_bytes(std::as_bytes(std::span(name)), hash);
        hash = hash_bytes(std::as_bytes(std::span(numbers)), hash);
    }
    return hash;
}

std::unique_ptr<PackedWriter> HostWeights::begin_file(const std::string& path) const {
    return std::make_unique<PackedWriter>(path, place_bytes_[0], backend_);
}

void HostWeights::write(PackedWriter& writer, const PackedOrigin& origin, const ReadWeights& read,
                        checkpoint::LoadCounter& counter) {
    take_scratch();
    std::vector<std::atomic<uint64_t>> hashes(runs_.size());
    for_each_job(counter, [&](std::span<const Piece> pieces) {
        const uint64_t end = pieces.back().to() + pieces.back().held_bytes();
        writer.make_room(end);
        run_tasks_that_throw(backend_, std::ssize(pieces), [&](int64_t i, int32_t thread) {
            const Piece& piece = pieces[static_cast<size_t>(i)];
            std::byte* to = writer.place(piece.to());
            hold_piece(piece, read, thread, to);
            hashes[index_of(*piece.run)] += hash_of_piece({to, piece.held_bytes()}, piece.held_at());
        });
        writer.write(end);
    });
    scratch_ = Buffer();
    std::vector<PackedRun> table;
    for (size_t i = 0; i < runs_.size(); ++i) table.push_back({runs_[i].to, hashes[i]});
    PackedHeader header = {};
    header.model = origin.model;
    header.origin = origin.origin;
    header.contents = contents_hash();
    header.expanded = expanded_.bits();
    writer.finish(header, table);
}

bool HostWeights::fits(PackedFile& file) const {
    if (file.contents() != contents_hash() || !file.read_runs(runs_.size())) return false;
    const uint64_t first = first_packed_byte(runs_.size());
    const uint64_t size = file.bytes().size();
    for (size_t i = 0; i < runs_.size(); ++i) {
        const uint64_t at = file.runs()[i].at;
        const uint64_t bytes = bytes_of(runs_[i].held);
        if (at % k_alignment != 0 || at < first || bytes > size || at > size - bytes) return false;
    }
    return true;
}

void HostWeights::map(const PackedFile& file) {
    for (size_t i = 0; i < runs_.size(); ++i) runs_[i].to = file.runs()[i].at;
    assign([&](const Run& run) { return file.bytes().data() + run.to; });
}

void HostWeights::check(const PackedFile& file, checkpoint::LoadCounter& counter) const {
    std::vector<std::atomic<uint64_t>> hashes(runs_.size());
    Cursor cursor(*this);
    std::vector<Piece> pieces;
    while (const uint64_t count =
               cursor.next_job(pieces, [](const Piece& piece) { return piece.held_bytes(); })) {
        run_tasks_that_throw(backend_, std::ssize(pieces), [&](int64_t i, int32_t) {
            const Piece& piece = pieces[static_cast<size_t>(i)];
            const size_t r = index_of(*piece.run);
            const auto held = file.bytes().subspan(file.runs()[r].at + piece.held_at(), piece.held_bytes());
            make_mapped_present(held);
            hashes[r] += hash_of_piece(held, piece.held_at());
        });
        counter.add(count);
    }
    for (size_t i = 0; i < runs_.size(); ++i)
        if (hashes[i] != file.runs()[i].hash)
            fail_file(Reason::value, "{}: the packed weights at byte {} are not those that were written",
                      file.path(), file.runs()[i].at);
}

}  // namespace minim::model
