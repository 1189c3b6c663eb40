// SPDX-License-Identifier: Apache-2.0
// The index of a sharded checkpoint: any text is either refused with an Error, or is valid JSON whose shards
// are plain file names.
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors_index.h"
#include "json_oracle.h"
#include "require.h"

using minim::checkpoint::IndexEntry;
using minim::checkpoint::SafetensorsIndex;
using minim::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const SafetensorsIndex index = minim::checkpoint::read_safetensors_index("fuzz.index.json", text);
        for (const IndexEntry& entry : index.entries)
            require(entry.shard < index.shards.size(), "a shard exists");
        for (const std::string& shard : index.shards) {
            require(!shard.empty() && shard != ".." && shard.find('/') == std::string::npos,
                    "a shard is a plain name");
        }
        minim::fuzz::require_json(text);
    } catch (const minim::Error& error) {
        require(error.reason() != minim::Reason::none, "a bad file has a reason");
        require(error.status() == minim::Status::format, "a bad file is a format error");
    }
    return 0;
}
