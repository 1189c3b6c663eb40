// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/choose_file.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "checkpoint/byte_source.h"
#include "checkpoint/file_names.h"
#include "checkpoint/gguf_header.h"
#include "checkpoint/gguf_parts.h"

namespace minim::checkpoint {
namespace {

namespace fs = std::filesystem;

// Returns the GGUF files of the folder, each split set as its first part; in order.
std::set<std::string> gguf_sets(const std::string& folder) {
    std::set<std::string> sets;
    std::error_code error;
    for (const std::string& name : names_in_folder(folder, error)) {
        const bool is_hidden = name.starts_with('.');  // "._model.gguf", as macOS leaves beside each file
        if (ends_in(name, ".gguf") && !is_hidden) {
            if (auto part = parse_part_name(name)) {
                part->number = 1;
                sets.insert(part_file_name(*part));
            } else {
                sets.insert(name);
            }
        }
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

// Returns the names in a folder, in order, without hidden ones.
std::vector<std::string> names_in(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> names = names_in_folder(folder, error);
    std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
    std::ranges::sort(names);
    return names;
}

bool holds_model(const std::string& folder) {
    return std::ranges::any_of(names_in(folder), [](const std::string& name) {
        return ends_in(name, ".gguf") || ends_in(name, ".safetensors");
    });
}

// Returns the folders with models below a folder, at most two levels down ("snapshots/COMMIT" of a download cache).
std::vector<std::string> folders_with_models(const std::string& folder, int levels = 2) {
    std::vector<std::string> found;
    std::error_code error;
    for (const std::string& name : names_in(folder)) {
        const std::string path = (fs::path(folder) / name).string();
        if (!fs::is_directory(path, error)) continue;
        if (holds_model(path)) found.push_back(name);
        if (levels == 1) continue;
        for (const std::string& inner : folders_with_models(path, levels - 1))
            found.push_back((fs::path(name) / inner).string());
    }
    return found;
}

std::string listed(const std::vector<std::string>& names) {
    constexpr size_t k_max_listed = 5;
    std::string list;
    for (size_t i = 0; i < std::min(names.size(), k_max_listed); ++i)
        list += (list.empty() ? "" : ", ") + names[i];
    return names.size() > k_max_listed ? list + ", ..." : list;
}

// Throws not_found, with what the folder holds in place of a model.
[[noreturn]] void fail_no_model(const std::string& folder, const std::vector<std::string>& names,
                                const std::vector<std::string>& shards) {
    const std::string head = folder + ": the folder holds no model: no model.safetensors, index or GGUF file";
    if (!shards.empty())
        fail(Status::not_found,
             "{}: the folder holds {} safetensors files ({}), and no model.safetensors.index.json "
             "that says which belong together: download it too",
             folder, shards.size(), listed(shards));
    for (const std::string& name : names)
        if (const std::string why = describe_name(name); !why.empty())
            fail(Status::not_found, "{}; it holds {}: {}", head, name, why);
    if (const std::vector<std::string> below = folders_with_models(folder); !below.empty())
        fail(Status::not_found, "{}; folders in it do, open one of them: {}", head, listed(below));
    for (const std::string& name : names)
        for (const char* ending : {".bin", ".pth", ".pt", ".ckpt", ".onnx", ".npz", ".h5", ".msgpack", ".zip",
                                   ".tar", ".gz", ".zst", ".7z", ".rar", ".xz"})
            if (ends_in(name, ending))
                fail(Status::not_found, "{}; it holds {}: only safetensors and GGUF files are read", head,
                     name);
    fail(Status::not_found, "{}", head);
}

// Returns the one safetensors model of a folder that has no usual name: an index, or a single file.
std::string safetensors_file(const std::string& folder) {
    const std::vector<std::string> names = names_in(folder);
    std::vector<std::string> indexes;
    std::vector<std::string> files;
    for (const std::string& name : names) {
        if (ends_in(name, ".safetensors.index.json")) indexes.push_back(name);
        if (ends_in(name, ".safetensors")) files.push_back(name);
    }
    if (indexes.size() == 1) return (fs::path(folder) / indexes.front()).string();
    if (indexes.size() > 1)
        fail(Status::invalid, "{}: the folder holds {} safetensors models, open one of them: {}", folder,
             indexes.size(), listed(indexes));
    const bool is_whole = files.size() == 1 && files.front().find("-of-") == std::string::npos;
    if (is_whole) return (fs::path(folder) / files.front()).string();
    fail_no_model(folder, names, files);
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
    if (sets.empty()) return safetensors_file(path);
    if (sets.size() > 1) {
        fail(Status::invalid, "{}: the folder holds {} GGUF models, open one of them: {}", path, sets.size(),
             listed({sets.begin(), sets.end()}));
    }
    return (fs::path(path) / *sets.begin()).string();
}

}  // namespace minim::checkpoint
