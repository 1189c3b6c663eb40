// SPDX-License-Identifier: Apache-2.0
// Description of one tensor in a checkpoint: the place of its bytes and how to read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/format.h"

namespace minim::checkpoint {

struct Tensor {
    std::string name;
    std::optional<Format>
        format;  // none for the safetensors types that have no table entry: U8, F8_E4M3, ...
    std::string_view
        type_name;  // as in the file's own vocabulary: "Q4_K", "F8_E4M3"; lives as long as the program
    std::vector<int64_t> shape;  // outermost first, as PyTorch prints it: [experts, out, in]
    uint64_t bytes = 0;
    uint64_t offset = 0;  // of the first byte in the file of its part
    int32_t part = 0;     // which file
    int32_t index = 0;    // position in Checkpoint::tensors()
};

}  // namespace minim::checkpoint
