// SPDX-License-Identifier: Apache-2.0
// A GGUF model in one file, or split into parts PREFIX-00001-of-00003.gguf. Part 0 (file 00001) has the metadata, later
// ones have only split.no, split.count and split.tensors.count; each has its own alignment and
// data section.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/contents.h"

namespace minim::checkpoint {

struct PartName {
    std::string prefix;
    uint64_t number = 0;  // from 1
    uint64_t count = 0;
    std::string ending = ".gguf";  // as it is spelled
};

// Parses a file name (without folder). Returns nothing if it is not the name of a part.
std::optional<PartName> parse_part_name(std::string_view file_name);
std::string part_file_name(const PartName& name);

// Reads all parts. `path` may be any of them: its name gives the others.
Contents open_gguf(const std::string& path);

}  // namespace minim::checkpoint
