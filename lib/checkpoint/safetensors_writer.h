// SPDX-License-Identifier: Apache-2.0
// Writes headers of safetensors files (safetensors_header.h describes them), and the index of a model in several files. The tensors'
// bytes are the caller's: a header says where each of them goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf_writer.h"

namespace minim::checkpoint {

// A tensor of a file that is written. Its bytes need not exist yet.
struct NewSafetensor {
    std::string name;
    std::string_view type;  // "BF16", "F8_E4M3"
    std::vector<int64_t> shape;
    uint64_t bytes = 0;
};

// Lays out a file: the tensors one after the other. The header is padded with spaces to a multiple of 8 bytes, and says that the
// tensors are PyTorch's.
NewHeader make_safetensors_header(std::span<const NewSafetensor> tensors);

// Returns the name of a shard, from 1: "model-00001-of-00003.safetensors".
std::string shard_name(int64_t number, int64_t count);

inline constexpr std::string_view k_index_name = "model.safetensors.index.json";

// Returns the index of shards, given the tensors of each.
std::string safetensors_index(std::span<const std::vector<NewSafetensor>> shards);

}  // namespace minim::checkpoint
