// SPDX-License-Identifier: Apache-2.0
// An earlier output of a conversion, from which tensors are taken that would be made again with the same bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "convert/importance.h"
#include "convert/options.h"
#include "convert/plan.h"

namespace minim::convert {

// The metadata key that says how tensors were encoded.
inline constexpr std::string_view k_encoders_key = "minim.encoders";

// Returns its value: the version of the encoders, the effort, and the importance data by hash.
std::string encoders_text(const Options& options, const Importance* importance);

// A tensor of the earlier output, with the hashes that its metadata state.
struct EarlierTensor {
    const checkpoint::Tensor* tensor = nullptr;
    uint64_t hash = 0;
    uint64_t source_hash = 0;
};

class EarlierOutput {
  public:
    // Throws what opening throws, and invalid for a file without the hashes of its tensors.
    EarlierOutput(const std::string& path, const std::string& encoders, const Logger& log);

    const checkpoint::Checkpoint& checkpoint() const { return checkpoint_; }
    // Returns the tensor that a planned one may be, if the source's bytes are the same; null: there is none.
    const EarlierTensor* find(const PlannedTensor& tensor) const;

  private:
    checkpoint::Checkpoint checkpoint_;
    bool has_same_encoders_ = false;
    std::map<std::string, EarlierTensor, std::less<>> tensors_;
};

}  // namespace minim::convert
