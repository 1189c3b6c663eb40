// SPDX-License-Identifier: Apache-2.0
// A sharded safetensors checkpoint: an index that names the file (in the same folder) of each tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "checkpoint/contents.h"

namespace minim::checkpoint {

struct IndexEntry {
    std::string tensor;
    uint32_t shard = 0;     // index into SafetensorsIndex::shards
    uint64_t position = 0;  // in the index file
};

struct SafetensorsIndex {
    std::vector<IndexEntry> entries;     // in the order of weight_map; names are unique
    std::vector<std::string> shards;     // file names without any folder, each once
    std::optional<uint64_t> total_size;  // as stated in the index; often wrong
};

// `text` is the whole index, `file` its path for errors.
SafetensorsIndex read_safetensors_index(std::string_view file, std::string_view text);

Contents open_safetensors(const std::string& path);
// Opens each shard once. Tensors of a shard that the index does not list are ignored, with a line in the log.
Contents open_safetensors_index(const std::string& path, const Logger& log);

}  // namespace minim::checkpoint
