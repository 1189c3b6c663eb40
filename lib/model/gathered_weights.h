// Weight matrices that quantised safetensors folders keep in several tensors: codes, scales, zero points. Each becomes
// rows of one block format, without a change of any number, while it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address_range.h"
#include "checkpoint/checkpoint.h"
#include "format/format.h"

namespace minim::model {

struct GatheredMatrix {
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
    bool divides = false;                        // by the factor
};

// Finds a tensor by its name, or null.
using FindTensor = std::function<const checkpoint::Tensor*(const std::string& name)>;

// The tensors of the matrix whose plain form would be called `name` (X.weight), if it is kept in several: [rows, cols].
// Throws format (one is missing, of another shape) and unsupported (a packing that is not read), naming the tensor.
std::optional<GatheredMatrix> find_gathered(const FindTensor& find, const std::string& name, int64_t rows,
                                            int64_t cols);

// Gives the rows of gathered matrices places, in the order of the file, and fills in what is read from there.
class GatheredWeights {
  public:
    // The checkpoint must be loaded, and outlive this. Throws out_of_memory.
    explicit GatheredWeights(const checkpoint::Checkpoint& checkpoint);

    // Where the rows of the matrix begin. No memory lies there.
    const std::byte* add(const GatheredMatrix& matrix);
    // The factor of the whole matrix; 1 where there is none, 0 where all weights are. Throws format for one that is less, or
    // no number.
    float factor(const GatheredMatrix& matrix) const;

    bool holds(const std::byte* place) const noexcept { return places_.contains(place); }
    // The bytes of rows from a place that add() gave out, or after it. Any thread. Throws what reading throws, and format
    // where a number is NaN.
    void read(const std::byte* place, std::span<std::byte> out) const;

  private:
    void read_rows(const GatheredMatrix& matrix, int64_t first, int64_t count, std::byte* out) const;
    std::vector<float> fp8_scales(const GatheredMatrix& matrix, int64_t scale_row) const;
    void read_fp8(const GatheredMatrix& matrix, int64_t first, int64_t count, std::byte* out) const;
    void read_fp4(const GatheredMatrix& matrix, int64_t first, int64_t count, std::byte* out) const;

    const checkpoint::Checkpoint& checkpoint_;
    AddressRange places_;
    std::vector<uint64_t> part_begin_;  // of each file among all of them
    std::map<const std::byte*, GatheredMatrix, std::less<>> matrices_;
};

}  // namespace minim::model
