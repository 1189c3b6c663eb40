// SPDX-License-Identifier: Apache-2.0
// A model's weights with IQ6_K read the other way. IQ6_K has two upstream readings: matrix kernels use the
// integer value table, which is also ours; the row decoder that made the goldens of mix-ik evaluates the
// cubic that the table rounds. The goldens are met to rounding only with the cubic, so this test makes it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "model/weights.h"

namespace minim::test {

class CubicIq6K {
  public:
    // Copies the views; each IQ6_K matrix becomes F32, decoded by the cubic.
    explicit CubicIq6K(const model::Weights& weights);
    CubicIq6K(const CubicIq6K&) = delete;
    CubicIq6K& operator=(const CubicIq6K&) = delete;

    const model::Weights& weights() const { return weights_; }
    size_t n_replaced() const { return decoded_.size(); }

  private:
    void replace(backend::Matrix& matrix);
    void replace(backend::ExpertStack& stack);
    const std::byte* decode(const std::byte* data, int64_t rows, int64_t cols, int64_t row_bytes);

    model::Weights weights_;
    std::deque<std::vector<float>> decoded_;
};

}  // namespace minim::test
