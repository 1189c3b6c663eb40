// SPDX-License-Identifier: Apache-2.0
// Encodes rows of a tensor on all threads: decodes them, multiplies them by the factor of their matrix, encodes them, and decodes the
// result to sum up the errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "convert/folder_layout.h"
#include "convert/importance.h"
#include "convert/journal.h"
#include "convert/source.h"
#include "format/encode/encode_rows.h"

namespace minim::convert {

// What encoding the rows of a tensor needs beside their bytes.
struct EncodeTask {
    const SourceTensor* source = nullptr;
    Format type = Format::f32;
    EncodeEffort effort = EncodeEffort::full;
    const Importance* importance = nullptr;  // null: none
    std::vector<float> source_factors =
        {};  // of each matrix: what the decoded numbers are multiplied by; empty: 1
    std::vector<float> type_factors =
        {};  // of each matrix, for NVFP4: what the encoded numbers are multiplied by; empty: 1
    int64_t chunk_rows = 1;  // rows that a thread encodes at a time
};

// Rows [first, first + count) of all matrices together.
struct SlabRows {
    int64_t first = 0;
    int64_t count = 0;
};

// Writes the encoded rows to `out`. `rows`: their bytes in the source's format. Returns the sums of the errors, which do not depend on
// the number of threads. Throws invalid or format, naming the tensor, row and column, for a number that is not finite or cannot be encoded.
ErrorSums encode_slab(const EncodeTask& task, SlabRows slab, std::span<const std::byte> rows,
                      std::span<std::byte> out, const ThreadPool& threads);

// Returns the sums of the errors of rows that were encoded before.
ErrorSums compare_slab(const EncodeTask& task, SlabRows slab, std::span<const std::byte> rows,
                       std::span<const std::byte> encoded, const ThreadPool& threads);

// As encode_slab(), of one matrix of a folder. `out`: of each piece the bytes of these rows, one piece after the other. Only codes and scales
// are written.
ErrorSums encode_folder_slab(const EncodeTask& task, FolderLayout layout, std::span<const Piece> pieces,
                             SlabRows slab, std::span<const std::byte> rows, std::span<std::byte> out,
                             const ThreadPool& threads);

// Returns the largest magnitude in each matrix, given some rows: updates `largest`, one for each matrix.
void update_largest(const EncodeTask& task, SlabRows slab, std::span<const std::byte> rows,
                    std::vector<float>& largest, const ThreadPool& threads);

}  // namespace minim::convert
