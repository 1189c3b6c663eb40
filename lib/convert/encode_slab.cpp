// SPDX-License-Identifier: Apache-2.0
#include "convert/encode_slab.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/format_text.h"
#include "format/format.h"
#include "weights/tasks_that_throw.h"

namespace minim::convert {
namespace {

// Some rows of one matrix.
struct Chunk {
    int64_t matrix = 0;
    int64_t first = 0;  // in the matrix
    int64_t count = 0;
    int64_t at = 0;  // of its first row in the slab
};

std::vector<Chunk> chunks_of(const EncodeTask& task, SlabRows slab) {
    std::vector<Chunk> chunks;
    const int64_t n_rows = task.source->n_rows;
    for (int64_t row = slab.first; row < slab.first + slab.count;) {
        const int64_t in_matrix = row % n_rows;
        const int64_t count = std::min({task.chunk_rows, n_rows - in_matrix, slab.first + slab.count - row});
        chunks.push_back({row / n_rows, in_matrix, count, row - slab.first});
        row += count;
    }
    return chunks;
}

// Returns "row R" or "row R of expert E".
std::string row_text(const EncodeTask& task, const Chunk& chunk, int64_t row) {
    if (task.source->n_matrices_of_stack() == 1) return format_text("row {}", chunk.first + row);
    return format_text("row {} of expert {}", chunk.first + row, task.source->number_in_stack(chunk.matrix));
}

// Decodes the rows of a chunk and multiplies them by the factor of the matrix. Throws format for a number that is not finite.
void decode_chunk(const EncodeTask& task, const Chunk& chunk, const std::byte* rows, std::vector<float>& x) {
    const SourceTensor& source = *task.source;
    const int64_t n_columns = source.n_columns;
    x.resize(chunk.count * n_columns);
    decode_rows(source.format, rows + chunk.at * source.row_bytes, chunk.count, source.row_bytes, n_columns,
                x.data());
    if (!task.source_factors.empty() && task.source_factors[chunk.matrix] != 1.0F)
        for (float& value : x) value *= task.source_factors[chunk.matrix];
    const auto bad = std::ranges::find_if(x, [](float value) { return !std::isfinite(value); });
    if (bad == x.end()) return;
    const int64_t at = bad - x.begin();
    fail_file(Reason::value, "tensor {} has {} in {}, column {}", shown(source.name),
              std::isnan(*bad) ? "NaN" : "infinity", row_text(task, chunk, at / n_columns), at % n_columns);
}

// Adds the errors of one row. `weights`: of the columns; null: all 1. Eight sums side by side let the compiler use vectors.
void add_errors(const float* x, const float* y, const float* weights, int64_t n, ErrorSums& sums) {
    constexpr int64_t k_lanes = 8;
    double error[k_lanes] = {};
    double square[k_lanes] = {};
    double weighted_error[k_lanes] = {};
    double weighted_square[k_lanes] = {};
    for (int64_t begin = 0; begin < n; begin += k_lanes) {
        const int64_t count = std::min(k_lanes, n - begin);
        for (int64_t lane = 0; lane < count; ++lane) {
            const int64_t i = begin + lane;
            const double value = static_cast<double>(x[i]);
            const double difference = value - static_cast<double>(y[i]);
            error[lane] += difference * difference;
            square[lane] += value * value;
            if (weights == nullptr) continue;
            const double weight = static_cast<double>(weights[i]);
            weighted_error[lane] += weight * difference * difference;
            weighted_square[lane] += weight * value * value;
        }
    }
    for (int64_t lane = 0; lane < k_lanes; ++lane) {
        sums.error += error[lane];
        sums.square += square[lane];
        sums.weighted_error += weights == nullptr ? error[lane] : weighted_error[lane];
        sums.weighted_square += weights == nullptr ? square[lane] : weighted_square[lane];
    }
}

// Returns the importance of each matrix of the chunks that has any.
std::map<int64_t, std::vector<float>> importance_of(const EncodeTask& task,
                                                    const std::vector<Chunk>& chunks) {
    std::map<int64_t, std::vector<float>> importance;
    if (task.importance == nullptr) return importance;
    for (const Chunk& chunk : chunks) {
        if (importance.contains(chunk.matrix)) continue;
        std::vector<float> weights = task.importance->of_matrix(*task.source, chunk.matrix);
        if (!weights.empty()) importance.emplace(chunk.matrix, std::move(weights));
    }
    return importance;
}

// Calls encode(). Its errors then name the tensor and the rows.
template <class Encode>
void with_place(const EncodeTask& task, const Chunk& chunk, const Encode& encode) {
    try {
        encode();
    } catch (const Error& error) {
        throw Error(error.status(), error.reason(),
                    format_text("tensor {}, rows counted from {}: {}", shown(task.source->name),
                                row_text(task, chunk, 0), error.what()),
                    error.facts());
    }
}

void encode_chunk(const EncodeTask& task, const Chunk& chunk, const std::vector<float>& x,
                  const std::vector<float>* importance, std::byte* out) {
    with_place(task, chunk, [&] {
        encode_rows({.format = task.type,
                     .x = x.data(),
                     .n_rows = chunk.count,
                     .n_columns = task.source->n_columns,
                     .importance = importance == nullptr ? nullptr : importance->data(),
                     .out = out,
                     .effort = task.effort,
                     .factor = task.type_factors.empty() ? 1.0F : task.type_factors[chunk.matrix]});
    });
}

// Decodes each chunk and calls encode(chunk, x, importance, y), which encodes it and writes to `y` what that stands for.
template <class Encode>
ErrorSums encode_chunks(const EncodeTask& task, SlabRows slab, std::span<const std::byte> rows,
                        const ThreadPool& threads, const Encode& encode) {
    const std::vector<Chunk> chunks = chunks_of(task, slab);
    const auto importance = importance_of(task, chunks);
    const int64_t n_columns = task.source->n_columns;
    std::vector<ErrorSums> sums(chunks.size());
    weights::FirstError first_error;
    struct Scratch {
        std::vector<float> x;
        std::vector<float> y;
    };
    std::vector<Scratch> scratch(threads.n_threads());
    threads.run(std::ssize(chunks), [&](int64_t i, int32_t thread) {
        first_error.run([&] {
            const Chunk& chunk = chunks[i];
            auto& [x, y] = scratch[thread];
            decode_chunk(task, chunk, rows.data(), x);
            const auto found = importance.find(chunk.matrix);
            const std::vector<float>* weights = found == importance.end() ? nullptr : &found->second;
            y.resize(x.size());
            encode(chunk, x, weights, y);
            for (int64_t row = 0; row < chunk.count; ++row)
                add_errors(x.data() + row * n_columns, y.data() + row * n_columns,
                           weights == nullptr ? nullptr : weights->data(), n_columns, sums[i]);
        });
    });
    first_error.rethrow();
    ErrorSums all;
    for (const ErrorSums& one : sums) {
        all.error += one.error;
        all.square += one.square;
        all.weighted_error += one.weighted_error;
        all.weighted_square += one.weighted_square;
    }
    return all;
}

}  // namespace

ErrorSums encode_slab(const EncodeTask& task, SlabRows slab, std::span<const std::byte> rows,
                      std::span<std::byte> out, const ThreadPool& threads) {
    const int64_t n_columns = task.source->n_columns;
    const int64_t out_bytes = row_bytes(task.type, n_columns);
    return encode_chunks(task, slab, rows, threads,
                         [&](const Chunk& chunk, const std::vector<float>& x,
                             const std::vector<float>* weights, std::vector<float>& y) {
                             std::byte* to = out.data() + chunk.at * out_bytes;
                             encode_chunk(task, chunk, x, weights, to);
                             decode_rows(task.type, to, chunk.count, out_bytes, n_columns, y.data());
                             if (!task.type_factors.empty())
                                 for (float& value : y) value *= task.type_factors[chunk.matrix];
                         });
}

ErrorSums compare_slab(const EncodeTask& task, SlabRows slab, std::span<const std::byte> rows,
                       std::span<const std::byte> encoded, const ThreadPool& threads) {
    const int64_t n_columns = task.source->n_columns;
    const int64_t bytes = row_bytes(task.type, n_columns);
    return encode_chunks(
        task, slab, rows, threads,
        [&](const Chunk& chunk, const std::vector<float>&, const std::vector<float>*, std::vector<float>& y) {
            decode_rows(task.type, encoded.data() + chunk.at * bytes, chunk.count, bytes, n_columns,
                        y.data());
        });
}

ErrorSums encode_folder_slab(const EncodeTask& task, FolderLayout layout, std::span<const Piece> pieces,
                             SlabRows slab, std::span<const std::byte> rows, std::span<std::byte> out,
                             const ThreadPool& threads) {
    // The bytes of codes and of scales in `out`.
    struct Place {
        const Piece* piece = nullptr;
        std::byte* begin = nullptr;
    };
    Place codes;
    Place scales;
    size_t at = 0;
    for (const Piece& piece : pieces) {
        if (piece.content == PieceContent::codes) codes = {&piece, out.data() + at};
        if (piece.content == PieceContent::scales) scales = {&piece, out.data() + at};
        at += piece.bytes_of(slab.first, slab.count);
    }
    const auto encode = [&](const Chunk& chunk, const std::vector<float>& x,
                            const std::vector<float>* weights, std::vector<float>& y) {
        EncodeFolderPart part = {
            .layout = layout, .x = x.data(), .n_rows = chunk.count, .n_columns = task.source->n_columns};
        part.importance = weights == nullptr ? nullptr : weights->data();
        part.effort = task.effort;
        part.factor = task.type_factors.empty() ? 1.0F : task.type_factors.front();
        part.source_rows = rows.data() + chunk.at * task.source->row_bytes;
        part.source_format = task.source->format;
        part.codes = codes.begin + codes.piece->bytes_before(chunk.at);
        part.scales = scales.begin + scales.piece->bytes_before(chunk.at);
        part.decoded = y.data();
        with_place(task, chunk, [&] { encode_folder_part(part); });
    };
    return encode_chunks(task, slab, rows, threads, encode);
}

void update_largest(const EncodeTask& task, SlabRows slab, std::span<const std::byte> rows,
                    std::vector<float>& largest, const ThreadPool& threads) {
    const std::vector<Chunk> chunks = chunks_of(task, slab);
    std::vector<float> of_chunk(chunks.size());
    std::vector<std::vector<float>> scratch(threads.n_threads());
    weights::FirstError first_error;
    threads.run(std::ssize(chunks), [&](int64_t i, int32_t thread) {
        first_error.run([&] {
            std::vector<float>& x = scratch[thread];
            decode_chunk(task, chunks[i], rows.data(), x);
            for (const float value : x) of_chunk[i] = std::max(of_chunk[i], std::fabs(value));
        });
    });
    first_error.rethrow();
    for (size_t i = 0; i < chunks.size(); ++i)
        largest[chunks[i].matrix] = std::max(largest[chunks[i].matrix], of_chunk[i]);
}

}  // namespace minim::convert
