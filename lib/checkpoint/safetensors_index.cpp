// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_index.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "base/format_text.h"
#include "checkpoint/byte_source.h"
#include "checkpoint/json_reader.h"
#include "checkpoint/name_order.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/text_file.h"

namespace minim::checkpoint {
namespace {

// Returns whether no system can take the name for a folder, a drive or a stream: shards are in the folder of their
// index.
bool is_plain_file_name(std::string_view name) {
    constexpr size_t k_longest_name = 255;
    if (name.empty() || name.size() > k_longest_name || name == "." || name == "..") return false;
    return name.find_first_of(std::string_view("/\\:\0", 4)) == std::string_view::npos;
}

void read_weight_map(JsonReader& json, std::string_view file, SafetensorsIndex& index) {
    std::map<std::string, uint32_t, std::less<>> known;  // a tree: hostile names cannot slow it
    std::string tensor;
    json.begin_object("weight_map");
    while (json.next_member(tensor)) {
        const uint64_t at = json.position();
        std::string shard = json.string("a value of weight_map");
        if (!is_plain_file_name(shard)) {
            fail_at(file, Reason::value, at, "tensor {}: {} is not the name of a file in the same folder",
                    printable(tensor), printable(shard));
        }
        const auto [place, is_new] = known.try_emplace(shard, static_cast<uint32_t>(index.shards.size()));
        if (is_new) index.shards.push_back(std::move(shard));
        index.entries.push_back({tensor, place->second, at});
    }
    const auto& entries = index.entries;
    if (const auto repeated =
            find_repeated(entries, order_by_name(entries, &IndexEntry::tensor), &IndexEntry::tensor)) {
        fail_at(file, Reason::duplicate, entries[*repeated].position, "tensor {} appears twice in weight_map",
                printable(entries[*repeated].tensor));
    }
}

void read_index_metadata(JsonReader& json, SafetensorsIndex& index) {
    json.begin_object("metadata");
    std::string key;
    while (json.next_member(key)) {
        if (key == "total_size") {
            index.total_size = json.optional_whole_number();
        } else {
            json.skip_value();
        }
    }
}

SafetensorsHeader open_shard(const std::string& path, std::vector<File>& files) {
    try {
        files.emplace_back(path);
    } catch (const Error& error) {
        if (error.status() != Status::not_found) throw;
        // A missing shard means a damaged checkpoint, not a wrong path of the caller.
        throw Error(Status::io, Reason::io, format_text("a shard of the index is missing: {}", error.what()),
                    error.facts());
    }
    return read_safetensors_header(ByteSource(files.back()));
}

// Moves the listed tensors of one shard into the contents.
void take_listed(const SafetensorsIndex& index, std::span<const uint32_t> listed, SafetensorsHeader& header,
                 std::string_view file, Contents& contents, const Logger& log) {
    const auto part = static_cast<int32_t>(contents.files.size() - 1);
    const std::string& shard = contents.files.back().path();
    const std::vector<uint32_t> order = order_by_name(header.tensors, &Tensor::name);
    std::vector<bool> is_listed(header.tensors.size());
    for (const uint32_t i : listed) {
        const IndexEntry& entry = index.entries[i];
        const auto found = find_by_name(header.tensors, order, &Tensor::name, entry.tensor);
        if (!found) {
            fail_at(file, Reason::value, entry.position, "tensor {} is not in {}", printable(entry.tensor),
                    shard);
        }
        is_listed[*found] = true;
    }
    for (size_t i = 0; i < header.tensors.size(); ++i) {
        Tensor& tensor = header.tensors[i];
        if (!is_listed[i]) {
            log.info("{}: tensor {} is not listed in the index and ignored", shard, printable(tensor.name));
            continue;
        }
        tensor.part = part;
        contents.tensors.push_back(std::move(tensor));
    }
}

}  // namespace

SafetensorsIndex read_safetensors_index(std::string_view file, std::string_view text) {
    JsonReader json(file, text, 0);
    SafetensorsIndex index;
    bool has_map = false;
    bool has_metadata = false;
    std::string key;
    json.begin_object("the index");
    while (json.next_member(key)) {
        if (key == "weight_map") {
            if (has_map) json.fail_here(Reason::duplicate, "weight_map appears twice");
            has_map = true;
            read_weight_map(json, file, index);
        } else if (key == "metadata") {
            if (has_metadata) json.fail_here(Reason::duplicate, "metadata appears twice");
            has_metadata = true;
            read_index_metadata(json, index);
        } else {
            json.skip_value();
        }
    }
    json.end_of_text(false);
    if (!has_map) fail_at(file, Reason::format, 0, "weight_map is missing");
    return index;
}

Contents open_safetensors(const std::string& path) {
    Contents contents;
    contents.container = Container::safetensors;
    contents.files.emplace_back(path);
    SafetensorsHeader header = read_safetensors_header(ByteSource(contents.files.back()));
    contents.metadata = std::move(header.metadata);
    contents.tensors = std::move(header.tensors);
    return contents;
}

Contents open_safetensors_index(const std::string& path, const Logger& log) {
    const SafetensorsIndex index = read_safetensors_index(path, read_text_file(path, k_json_cap_bytes));
    std::vector<std::vector<uint32_t>> listed(index.shards.size());
    for (uint32_t i = 0; i < index.entries.size(); ++i) listed[index.entries[i].shard].push_back(i);

    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    Contents contents;
    contents.container = Container::safetensors;
    for (size_t i = 0; i < index.shards.size(); ++i) {
        SafetensorsHeader header = open_shard((folder / index.shards[i]).string(), contents.files);
        if (i == 0) contents.metadata = std::move(header.metadata);
        take_listed(index, listed[i], header, path, contents, log);
    }
    uint64_t bytes = 0;
    for (const Tensor& tensor : contents.tensors) bytes += tensor.bytes;
    if (index.total_size && *index.total_size != bytes) {
        log.warning("{}: total_size is {}, the tensors have {} bytes", path, *index.total_size, bytes);
    }
    return contents;
}

}  // namespace minim::checkpoint
