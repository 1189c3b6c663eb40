// SPDX-License-Identifier: Apache-2.0
// Importance data as encoders use it: a weight for the square errors of each input of each matrix.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/importance_file.h"
#include "convert/source.h"

namespace minim::convert {

class Importance {
  public:
    // Reads a file. Only tensors whose name has one of the texts of `include` (empty: all) and none of `exclude` have data.
    Importance(const std::string& path, std::vector<std::string> include, std::vector<std::string> exclude);

    // Returns whether there is data for a tensor.
    bool has(std::string_view tensor) const { return find(tensor) != nullptr; }
    // Throws invalid, naming the entry, if its size does not fit the tensor. Does nothing without an entry.
    void check(const SourceTensor& tensor) const;
    // Returns the weight of each column of a matrix: the mean square of its input, over the rows that reached it. An expert that few rows
    // reached also gets some of the mean of all experts. Empty: no data.
    std::vector<float> of_matrix(const SourceTensor& tensor, int64_t matrix) const;
    // Returns the largest magnitude of the matrix's inputs; of those of all experts if no row reached this one. 0: unknown.
    float input_peak(const SourceTensor& tensor, int64_t matrix) const;

    // Returns the mean of gate * norm of the output of each expert, over the rows that reached it, given the stack's name; -1 for an
    // expert without rows. Throws invalid, naming the entry, if there is no such data.
    std::vector<double> expert_norms(std::string_view stack, int64_t n_expert) const;

    const std::string& file_name() const noexcept { return file_name_; }  // without folder
    std::string dataset() const;                                          // the first one's name, or ""
    int64_t n_entries() const noexcept { return std::ssize(data_.entries); }
    int64_t n_chunks() const noexcept { return data_.chunks; }
    uint64_t hash() const noexcept { return hash_; }  // of the file and the selection of tensors

  private:
    const checkpoint::ImportanceEntry* find(std::string_view tensor) const;

    std::string file_name_;
    std::vector<std::string> include_;
    std::vector<std::string> exclude_;
    checkpoint::ImportanceData data_;
    uint64_t hash_ = 0;
};

}  // namespace minim::convert
