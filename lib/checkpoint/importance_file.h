// SPDX-License-Identifier: Apache-2.0
// Importance data: for each weight matrix, sums of squares of its inputs over the rows of a text. Quantisers weigh errors with
// them. There are two kinds of files, which other programs read and write too.
//
// GGUF: general.type = imatrix, imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size, and F32 tensors for each weight:
//
//   NAME.in_sum2   [matrices, columns]   sums of squares of each input
//   NAME.counts    [matrices, 1]         rows that reached the matrix
//   NAME.in_max    [matrices, 1]         largest magnitude of an input (minim's own, optional)
//   NAME.out_norm  [matrices, 1]         sum of gate * norm of the output (minim's own, optional, ffn_down_exps only)
//
// The older form (.dat) has no counts, and does not say how many matrices an entry has:
//
//   i32 entries | for each: i32 length, name, i32 calls, i32 values, F32 values: mean square * calls
//   i32 chunks | i32 length, dataset     (may be missing)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/byte_source.h"

namespace minim::checkpoint {

enum class ImportanceForm : uint8_t { gguf, dat };

// The data of one weight: all matrices of one stack of experts, or one matrix.
struct ImportanceEntry {
    std::string name;  // of the weight in GGUF: "blk.0.attn_q.weight"
    int64_t columns = 0;
    int64_t matrices = 1;
    std::vector<float> sums;      // [matrices, columns], of at least 0; without counts: mean squares * calls
    std::vector<float> counts;    // [matrices]; empty: from an older file
    int64_t calls = 0;            // of an older file
    std::vector<float> in_max;    // [matrices], or empty
    std::vector<float> out_norm;  // [matrices], or empty

    bool has_counts() const noexcept { return !counts.empty(); }
};

struct ImportanceData {
    ImportanceForm form = ImportanceForm::gguf;  // of the file that was read
    std::vector<std::string> datasets;           // names of texts
    int64_t chunks = 0;
    int64_t chunk_size = 0;                // tokens; 0: unknown, as in an older file
    std::vector<ImportanceEntry> entries;  // in the order of their names
    // What the data was collected from, so that a run can be continued; 0: unknown. Only in GGUF files that minim wrote.
    uint64_t text_hash = 0;
    uint64_t model_hash = 0;

    const ImportanceEntry* find(std::string_view name) const;  // null: there is none
};

// Returns the form that a file's name stands for: dat if it ends in .dat.
ImportanceForm importance_form_of(std::string_view path);

// Read a file of either form. Entries have positive sizes, sums and counts are finite and not negative. Throw Error with the
// reason and the entry if anything is wrong, and not_found or io for the path.
ImportanceData read_importance(const std::string& path);
ImportanceData parse_importance(const ByteSource& source);

// Returns the bytes of a file. Throws invalid, naming the entry, for an entry without counts in a GGUF file, for one with counts
// in an older file if the chunk size is unknown, and for sizes that the form cannot hold.
std::vector<std::byte> importance_bytes(const ImportanceData& data, ImportanceForm form);
// Replaces the file atomically. Throws as importance_bytes() and NewFile.
void write_importance(const std::string& path, const ImportanceData& data, ImportanceForm form);

// Gives the entries of an older file counts: a call stands for a chunk of that many rows. Does nothing for entries with counts.
// Throws invalid if the chunk size is not positive.
void give_counts(ImportanceData& data, int64_t chunk_size);

// Adds sums, counts, norms and chunks of `more` to `data`, and takes the larger magnitudes. Entries and datasets that only `more`
// has are added. An older entry counts as one for each matrix of its weight. `in_max` and `out_norm` stay only if both have them.
// Throws invalid, naming the entry, for entries without counts or of different sizes; `data` is then unchanged.
void merge_importance(ImportanceData& data, const ImportanceData& more);

// Throws invalid, naming the entry, unless it has columns or matrices * columns values.
void check_importance_size(const ImportanceEntry& entry, int64_t columns, int64_t matrices);

}  // namespace minim::checkpoint
