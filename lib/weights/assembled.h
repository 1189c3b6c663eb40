// Weight matrices that quantised safetensors folders keep in several tensors: codes, scales, zero points. Each becomes
// rows of one block format while it is read; no number changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "format/format.h"

namespace minim::weights {

struct AssembledMatrix {
    enum class Kind : uint8_t { fp8_blocks, fp8_rows, fp8_whole, nvfp4, mxfp4, awq };

    Kind kind;
    Format format;  // of the rows
    int64_t rows;
    int64_t cols;
    int64_t row_bytes;
    const checkpoint::Tensor* codes;
    const checkpoint::Tensor* scales;
    const checkpoint::Tensor* zeros = nullptr;   // awq
    const checkpoint::Tensor* factor = nullptr;  // nvfp4: of the whole matrix
    bool divides = false;                        // the weights are divided by the factor, not multiplied
};

// Finds a tensor by its name, or null.
using FindTensor = std::function<const checkpoint::Tensor*(const std::string& name)>;

// Returns the tensors of the matrix [rows, cols] whose plain form would be called `name` (X.weight), or nothing if it is
// one plain tensor or absent. Throws format (a tensor is missing or of another shape) and unsupported (a packing that is
// not read), naming the tensor.
std::optional<AssembledMatrix> find_assembled(const FindTensor& find, const std::string& name, int64_t rows,
                                              int64_t cols);

// Reads bytes [at, at + out.size()) of the assembled rows. The checkpoint must be loaded. Any thread. Throws what reading
// throws, and format if a number is NaN.
void read_assembled(const checkpoint::Checkpoint& checkpoint, const AssembledMatrix& matrix, uint64_t at,
                    std::span<std::byte> out);

// Returns the factor of the whole matrix, 1 if it has none. 0 is taken: all weights are 0 then. Throws format for a
// negative factor, for NaN and infinity, and for a divisor of 0.
float read_factor(const checkpoint::Checkpoint& checkpoint, const AssembledMatrix& matrix);

}  // namespace minim::weights
