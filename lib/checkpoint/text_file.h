// SPDX-License-Identifier: Apache-2.0
// The small text files beside the weights: an index, config.json, tokenizer.json, a chat template.
#pragma once

#include <cstdint>
#include <string>

namespace minim::checkpoint {

// Returns the whole file, which must not be larger than `max_bytes` (reason `limit`).
std::string read_text_file(const std::string& path, uint64_t max_bytes);

}  // namespace minim::checkpoint
