#include "checkpoint/choose_file.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "base/error.h"
#include "checkpoint/gguf_parts.h"

namespace minim::checkpoint {
namespace {

namespace fs = std::filesystem;

// The GGUF files of the folder, each split set as its first part; in order.
std::set<std::string> gguf_sets(const std::string& folder) {
    std::set<std::string> sets;
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    while (!error && entry != fs::directory_iterator()) {
        const fs::path& path = entry->path();
        if (path.extension() == ".gguf") {
            const std::string name = path.filename().string();
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

}  // namespace

std::string choose_file(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return path;
    for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
        const fs::path file = fs::path(path) / name;
        if (fs::exists(file, error)) return file.string();
    }
    const std::set<std::string> sets = gguf_sets(path);
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
