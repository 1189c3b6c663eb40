// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/choose_file.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/byte_source.h"
#include "checkpoint/gguf_header.h"
#include "checkpoint/gguf_parts.h"

namespace minim::checkpoint {
namespace {

namespace fs = std::filesystem;

// Returns the GGUF files of the folder, each split set as its first part; in order.
std::set<std::string> gguf_sets(const std::string& folder) {
    std::set<std::string> sets;
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    while (!error && entry != fs::directory_iterator()) {
        const fs::path& path = entry->path();
        const std::string name = path.filename().string();
        const bool is_hidden = name.starts_with('.');  // "._model.gguf", as macOS leaves beside each file
        if (path.extension() == ".gguf" && !is_hidden) {
            if (auto part = parse_part_name(name)) {
                part->number = 1;
                sets.insert(part_file_name(*part));
            } else {
                sets.insert(name);
            }
        }
        entry.increment(error);
    }
    if (error) fail_file(Reason::io, "{}: cannot list the folder: {}", folder, error.message());
    return sets;
}

// Returns whether the metadata of the file name something other than a model: an importance matrix, a projector, an adapter.
bool holds_no_model(const std::string& path) {
    constexpr std::string_view k_others[] = {"imatrix", "clip", "controlvector"};  // their architectures
    try {
        const File file(path);
        const GgufHeader header = read_gguf_header(ByteSource(file));
        const auto type = header.metadata.string("general.type");
        if (type) return *type != "model";
        const auto architecture = header.metadata.string("general.architecture");
        return !architecture || std::ranges::find(k_others, *architecture) != std::end(k_others);
    } catch (const Error&) {
        return false;  // damaged or missing: it stays in the list, from which the caller chooses
    }
}

// Removes the files that are not models, if a model is among them.
void drop_what_is_no_model(const std::string& folder, std::set<std::string>& sets) {
    std::set<std::string> models = sets;
    std::erase_if(
        models, [&](const std::string& name) { return holds_no_model((fs::path(folder) / name).string()); });
    if (!models.empty()) sets = std::move(models);
}

}  // namespace

std::string choose_file(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return path;
    for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
        const fs::path file = fs::path(path) / name;
        if (fs::exists(file, error)) return file.string();
    }
    std::set<std::string> sets = gguf_sets(path);
    if (sets.size() > 1) drop_what_is_no_model(path, sets);
    if (sets.empty()) {
        fail(Status::not_found, "{}: the folder holds no model: no model.safetensors, index or GGUF file",
             path);
    }
    if (sets.size() > 1) {
        constexpr size_t k_most_listed = 5;
        std::string list;
        size_t listed = 0;
        for (const std::string& name : sets) {
            if (listed++ == k_most_listed) break;
            list += (list.empty() ? "" : ", ") + name;
        }
        fail(Status::invalid, "{}: the folder holds {} GGUF models, open one of them: {}{}", path,
             sets.size(), list, sets.size() > k_most_listed ? ", ..." : "");
    }
    return (fs::path(path) / *sets.begin()).string();
}

}  // namespace minim::checkpoint
