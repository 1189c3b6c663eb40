// SPDX-License-Identifier: Apache-2.0
// What the readers of GGUF and safetensors return to Checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/metadata.h"
#include "checkpoint/tensor.h"

namespace minim::checkpoint {

enum class Container { gguf, safetensors };

struct Contents {
    Container container = Container::gguf;
    std::vector<File> files;  // kept open: a file replaced meanwhile stays the one whose header was read
    Metadata metadata;        // of the first part; for safetensors the strings of __metadata__
    std::vector<Tensor> tensors;
};

}  // namespace minim::checkpoint
