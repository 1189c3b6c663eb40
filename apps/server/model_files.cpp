// SPDX-License-Identifier: Apache-2.0
#include "model_files.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "options/find_model.h"
#include "options/folder.h"

namespace server {

namespace {

namespace fs = std::filesystem;

// Returns the name of a model without one of its own: that of its file or folder, or ORG/NAME[:QUANT] as it was given.
std::string usual_name(const std::string& given, const std::string& path) {
    if (given != path) return given;  // from the cache of downloaded models
    const fs::path file = fs::path(path).lexically_normal();
    const std::string last = (file.has_filename() ? file : file.parent_path()).filename().string();
    const std::string stem = program::gguf_name(last);
    return stem.empty() ? last : stem;
}

bool is_same_file(const std::string& a, const std::string& b) {
    std::error_code error;
    return fs::equivalent(a, b, error);
}

void check_names(const std::vector<ModelFile>& models) {
    for (auto one = models.begin(); one != models.end(); ++one) {
        const auto has_its_name = [&](const ModelFile& other) { return other.names == one->names; };
        const auto other = std::find_if(models.begin(), one, has_its_name);
        if (other != one)
            throw std::runtime_error(
                fmt::format("two models have the name '{}': {} and {}; -m NAME=PATH "
                            "gives another one",
                            one->names.front(), other->path, one->path));
    }
}

}  // namespace

std::vector<ModelFile> list_models(const Options& options) {
    std::vector<ModelFile> models;
    for (const program::GivenModel& given : options.models) {
        ModelFile& model = models.emplace_back();
        model.path = program::find_model(given.path);
        if (!given.name.empty()) {
            model.names = {given.name};
        } else if (program::are_several(options)) {
            model.names = {usual_name(given.path, model.path)};
        }
    }
    if (!program::are_several(options)) {
        if (!options.names.empty()) models.front().names = options.names;
        return models;
    }
    if (!options.models_dir.empty()) {
        const std::vector<ModelFile> named = models;
        for (const auto& [name, path] : program::models_in(options.models_dir)) {
            const auto is_same = [&file = path](const ModelFile& one) {
                return is_same_file(one.path, file);
            };
            if (std::ranges::none_of(named, is_same)) models.push_back({path, {name}});
        }
    }
    check_names(models);
    return models;
}

uint64_t file_bytes(const std::string& path) {
    std::error_code error;
    const fs::path file(path);
    const bool is_folder = fs::is_directory(file, error);
    const std::string stem = program::gguf_name(file.filename().string());
    const bool has_parts = !stem.empty() && stem + ".gguf" != file.filename().string();
    if (!is_folder && !has_parts) return fs::file_size(file, error);
    uint64_t bytes = 0;
    const fs::path folder = is_folder ? file : file.parent_path() / ".";
    for (const std::string& name : program::names_in_folder(folder.string(), error)) {
        const bool is_part = name.starts_with(stem + "-") && name.ends_with(".gguf");
        if (is_folder ? name.ends_with(".safetensors") : is_part)
            bytes += fs::file_size(folder / name, error);
    }
    return bytes;
}

}  // namespace server
