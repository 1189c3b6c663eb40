#include "model/host_weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory_info.h"

namespace minim::model {
namespace {

using backend::ExpertStack;
using backend::Matrix;
using backend::Vector;
using checkpoint::k_load_block_bytes;

// Of every matrix: a cache line, and the widest vector.
constexpr uint64_t k_alignment = 256;
// What a thread reads at a time: it packs out of the second-level cache. A job has k_load_block_bytes of them.
constexpr uint64_t k_piece_bytes = uint64_t{128} << 10;
// How far the system is asked to read ahead of the threads.
constexpr uint64_t k_ahead_bytes = uint64_t{32} << 20;
// Memory made present in one job, and by one thread: a huge page.
constexpr uint64_t k_present_job_bytes = uint64_t{64} << 20;
constexpr uint64_t k_present_bytes = uint64_t{2} << 20;

constexpr const char* k_what = "weights in host memory";

// The first exception of the tasks of a job; tasks that come after it do nothing.
class FirstError {
  public:
    template <typename Task>
    void run(const Task& task) noexcept {
        if (failed_.load(std::memory_order_relaxed)) return;
        try {
            task();
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (error_ == nullptr) error_ = std::current_exception();
            failed_.store(true, std::memory_order_relaxed);
        }
    }
    void rethrow() const {
        if (error_ != nullptr) std::rethrow_exception(error_);
    }

  private:
    std::atomic<bool> failed_{false};
    std::mutex mutex_;
    std::exception_ptr error_;
};

uint64_t unit_bytes(const backend::Backend& backend, const Matrix& shape) {
    return shape.packed ? static_cast<uint64_t>(backend.pack_rows_together() * shape.row_bytes) : 1;
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
            const uint64_t unit = unit_bytes(all_.backend_, run.shape);
            const uint64_t left = total - at_;
            const uint64_t count =
                left < unit ? left : std::min(left, std::max(k_piece_bytes / unit, uint64_t{1}) * unit);
            return {&run, std::exchange(at_, at_ + count), count};
        }
        return {};
    }

  private:
    const HostWeights& all_;
    size_t run_ = 0;
    uint64_t at_ = 0;
};

// What is to be read, and where it will lie.
struct HostWeights::Collector {
    HostWeights& all;

    void add(const std::byte* from, const Matrix& shape) {
        if (bytes_of(shape) > 0) all.runs_.push_back({from, shape, 0});
    }
    void matrix(Matrix& matrix, MatrixUse use) {
        if (all.shares_head_ && &matrix == &all.weights_.output) return;
        Matrix shape = matrix;
        shape.packed = use == MatrixUse::product && all.backend_.packs(matrix.format);
        add(matrix.data, shape);
    }
    void vector(Vector& vector) {
        const auto bytes = vector.size * static_cast<int64_t>(sizeof(float));
        add(reinterpret_cast<const std::byte*>(vector.data),
            {.format = Format::f32, .rows = 1, .cols = vector.size, .row_bytes = bytes});
    }
    void stack(ExpertStack& stack) {
        Matrix shape = stack.expert.empty() ? Matrix() : stack.matrix(0);
        shape.packed = all.backend_.packs(stack.format);
        for (const std::byte* expert : stack.expert) add(expert, shape);
    }
};

// Where it lies: visits in the order of the Collector.
struct HostWeights::Assigner {
    HostWeights& all;
    size_t next = 0;

    const std::byte* take(uint64_t bytes) { return bytes == 0 ? nullptr : all.runs_[next++].to; }
    void matrix(Matrix& matrix, MatrixUse use) {
        if (all.shares_head_ && &matrix == &all.weights_.output) {
            matrix.data = all.weights_.embedding.data;
            return;
        }
        matrix.packed = use == MatrixUse::product && all.backend_.packs(matrix.format);
        matrix.data = take(bytes_of(matrix));
    }
    void vector(Vector& vector) {
        vector.data = reinterpret_cast<const float*>(take(static_cast<uint64_t>(vector.size)));
    }
    void stack(ExpertStack& stack) {
        const auto bytes = static_cast<uint64_t>(stack.rows * stack.row_bytes);
        stack.packed = all.backend_.packs(stack.format);
        for (const std::byte*& expert : stack.expert) expert = take(bytes);
    }
};

HostWeights::HostWeights(Weights& weights, const StageOfWeights& stage, const backend::Backend& backend)
    : weights_(weights),
      stage_(stage),
      backend_(backend),
      shares_head_(stage.is_first && stage.is_last && weights.output.data == weights.embedding.data) {
    Collector collector{*this};
    visit_stage(weights_, stage_, collector);
    take_memory();
}

// Matrices lie in the order of the file, so that memory fills from front to back.
void HostWeights::take_memory() {
    file_order_.resize(runs_.size());
    for (size_t i = 0; i < runs_.size(); ++i) file_order_[i] = static_cast<uint32_t>(i);
    std::ranges::stable_sort(
        file_order_, [&](uint32_t a, uint32_t b) { return std::less<>()(runs_[a].from, runs_[b].from); });
    uint64_t total = 0;
    thread_bytes_ = 0;
    for (const Run& run : runs_) {
        bytes_ += bytes_of(run.shape);
        total += align_up(bytes_of(run.shape), k_alignment);
        if (run.shape.packed)
            thread_bytes_ = std::max({thread_bytes_, k_piece_bytes, unit_bytes(backend_, run.shape)});
    }
    const uint64_t available = available_memory_bytes();
    if (total > available) fail_out_of_memory(k_what, total, available);
    buffers_.emplace_back(total, k_what, Buffer::Presence::later);
    present_bytes_.resize(buffers_.size());
    uint64_t used = 0;
    for (const uint32_t i : file_order_) {
        Run& run = runs_[i];
        run.to = buffers_[run.buffer].data() + used;
        used += align_up(bytes_of(run.shape), k_alignment);
    }
    thread_bytes_ = align_up(thread_bytes_, k_alignment);
    scratch_ = Buffer(static_cast<uint64_t>(backend_.n_threads()) * thread_bytes_, "packing weights");
}

// The memory the pieces go to, and a good deal of what comes after it: by all threads, as zeroing takes its time.
void HostWeights::make_present(std::span<const Piece> pieces) {
    for (size_t b = 0; b < buffers_.size(); ++b) {
        const Buffer& buffer = buffers_[b];
        uint64_t end = 0;
        for (const Piece& piece : pieces) {
            if (piece.run->buffer != b) continue;
            const auto begin = static_cast<uint64_t>(piece.run->to - buffer.data()) + piece.at;
            end = std::max(end, begin + piece.bytes);
        }
        const uint64_t from = present_bytes_[b];
        if (end <= from) continue;
        end = std::min(buffer.size(), align_up(end + k_present_job_bytes, k_present_bytes));
        FirstError error;
        backend_.run_tasks(static_cast<int64_t>((end - from + k_present_bytes - 1) / k_present_bytes),
                           [&](int64_t i, int32_t) {
                               error.run([&] {
                                   const uint64_t at = from + static_cast<uint64_t>(i) * k_present_bytes;
                                   buffer.make_present(at, std::min(k_present_bytes, end - at), k_what);
                               });
                           });
        error.rethrow();
        present_bytes_[b] = end;
    }
}

void HostWeights::read_pieces(std::span<const Piece> pieces, const ReadWeights& read) {
    FirstError error;
    backend_.run_tasks(std::ssize(pieces), [&](int64_t i, int32_t thread) {
        error.run([&] {
            const Piece& piece = pieces[static_cast<size_t>(i)];
            const Run& run = *piece.run;
            if (!run.shape.packed) return read(run.from + piece.at, {run.to + piece.at, piece.bytes});
            std::byte* rows = scratch_.data() + static_cast<uint64_t>(thread) * thread_bytes_;
            read(run.from + piece.at, {rows, piece.bytes});
            Matrix shape = run.shape;
            shape.rows = static_cast<int64_t>(piece.bytes) / shape.row_bytes;
            backend_.pack_rows(shape, rows, run.to + piece.at);
        });
    });
    error.rethrow();
}

void HostWeights::read(const ReadWeights& read, checkpoint::LoadCounter& counter) {
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
        pieces.clear();
        uint64_t count = 0;
        for (Piece piece; count < k_load_block_bytes && (piece = cursor.next()).bytes > 0;
             count += piece.bytes)
            pieces.push_back(piece);
        if (pieces.empty()) break;
        make_present(pieces);
        read_pieces(pieces, read);
        done += count;
        counter.add(count);
    }
    scratch_ = Buffer();
    Assigner assigner{*this};
    visit_stage(weights_, stage_, assigner);
}

}  // namespace minim::model
