// SPDX-License-Identifier: Apache-2.0
// The small text files beside the weights of a safetensors checkpoint.
#pragma once

#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/text_file.h"

namespace minim::model {

inline constexpr uint64_t k_largest_text_file = uint64_t{256} << 20;

// Returns the text of a file of the checkpoint's folder; empty if it does not exist and is not required.
inline std::string side_file(const checkpoint::Checkpoint& checkpoint, const char* name, bool required) {
    try {
        return checkpoint::read_text_file(checkpoint.folder() + "/" + name, k_largest_text_file);
    } catch (const Error& error) {
        if (error.status() == Status::not_found && !required) return {};
        throw;
    }
}

}  // namespace minim::model
