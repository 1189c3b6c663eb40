// SPDX-License-Identifier: Apache-2.0
// Changes of GGUF metadata that a user asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf_writer.h"

namespace minim::convert {

struct MetadataEdit {
    enum class Kind : uint8_t {
        set,    // `text` is "VALUE" or "TYPE:VALUE"
        text,   // `text` is a string, whatever it looks like
        unset,  // removes the key
    };
    Kind kind = Kind::set;
    std::string key;
    std::string text = {};
};

// Replaces the value of a key, or appends the key.
void put(checkpoint::MetaEntries& entries, std::string_view key, checkpoint::MetaValue value);
// Removes a key; does nothing without it.
void remove(checkpoint::MetaEntries& entries, std::string_view key);

// Makes the changes in their order. A key that is there keeps its place and type. The type of a new one is said, or deduced: bool, u32,
// i64, f32, else string. Throws invalid for a value that is not of the type, an array, a key to remove that is not there, and a key
// that the tensors or the vocabulary decide, naming the key.
void edit_metadata(const std::vector<MetadataEdit>& edits, checkpoint::MetaEntries& entries);

}  // namespace minim::convert
