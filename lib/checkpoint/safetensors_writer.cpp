// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_writer.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "checkpoint/byte_writer.h"
#include "checkpoint/safetensors_header.h"

namespace minim::checkpoint {

NewHeader make_safetensors_header(std::span<const NewSafetensor> tensors) {
    constexpr size_t k_padding = 8;
    std::string json = R"({"__metadata__":{"format":"pt"})";
    NewHeader header;
    uint64_t at = 0;
    for (const NewSafetensor& tensor : tensors) {
        json += ',';
        json::append_quoted(json, tensor.name);
        json += format_text(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.type,
                            fmt::join(tensor.shape, ","), at, at + tensor.bytes);
        header.offsets.push_back(at);
        at += tensor.bytes;
    }
    json += '}';
    json.resize((json.size() + k_padding - 1) / k_padding * k_padding, ' ');
    if (json.size() > k_json_cap_bytes)
        fail(Status::invalid, "{} tensors make a safetensors header of {} bytes; the format's limit is {}",
             tensors.size(), json.size(), k_json_cap_bytes);
    ByteWriter out;
    out.string(json);
    for (uint64_t& offset : header.offsets) offset += out.bytes.size();
    header.file_bytes = out.bytes.size() + at;
    header.bytes = std::move(out.bytes);
    return header;
}

std::string shard_name(int64_t number, int64_t count) {
    return format_text("model-{:05}-of-{:05}.safetensors", number, count);
}

std::string safetensors_index(std::span<const std::vector<NewSafetensor>> shards) {
    uint64_t total = 0;
    std::string map;
    for (size_t i = 0; i < shards.size(); ++i) {
        const std::string name = shard_name(static_cast<int64_t>(i + 1), static_cast<int64_t>(shards.size()));
        for (const NewSafetensor& tensor : shards[i]) {
            map += map.empty() ? "\n    " : ",\n    ";
            json::append_quoted(map, tensor.name);
            map += format_text(": \"{}\"", name);
            total += tensor.bytes;
        }
    }
    return format_text(
        "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{{}\n  }}\n}}\n", total,
        map);
}

}  // namespace minim::checkpoint
