// SPDX-License-Identifier: Apache-2.0
#include "find_model.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "folder.h"

namespace program {

namespace fs = std::filesystem;

namespace {

fs::path cache_folder() {
    const auto variable = [](const char* name) -> std::string {
        const char* value = std::getenv(name);
        return value == nullptr ? "" : value;
    };
    if (const std::string hub = variable("HF_HUB_CACHE"); !hub.empty()) return hub;
    if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
    if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
        return fs::path(cache) / "huggingface" / "hub";
    return fs::path(variable("HOME")) / ".cache" / "huggingface" / "hub";
}

// Returns the snapshot that refs/main names, or any other if there is none.
fs::path snapshot_of(const fs::path& repository) {
    std::ifstream ref(repository / "refs" / "main");
    std::string commit;
    std::error_code error;
    if (ref >> commit && fs::is_directory(repository / "snapshots" / commit, error))
        return repository / "snapshots" / commit;
    const fs::path snapshots = repository / "snapshots";
    const std::vector<std::string> names = names_in_folder(snapshots.string(), error);
    return names.empty() ? fs::path() : snapshots / names.front();
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

// Returns whether a folder is a checkpoint in safetensors files.
bool is_checkpoint(const fs::path& folder) {
    std::error_code error;
    if (!fs::exists(folder / "config.json", error)) return false;
    const std::vector<std::string> names = names_in_folder(folder.string(), error);
    return std::any_of(names.begin(), names.end(),
                       [](const std::string& name) { return name.ends_with(".safetensors"); });
}

// Adds the GGUF files below `folder`; of split files, only the first part. Links to folders are not followed.
void add_gguf_files(const fs::path& folder, std::vector<fs::path>& files) {
    std::error_code error;
    for (const std::string& name : names_in_folder(folder.string(), error)) {
        const fs::path path = folder / name;
        if (fs::is_directory(fs::symlink_status(path, error))) {
            add_gguf_files(path, files);
        } else if (!gguf_name(name).empty()) {
            files.push_back(path);
        }
    }
}

std::string choose_file(const fs::path& snapshot, const std::string& quant, const std::string& missing) {
    std::vector<fs::path> files;
    add_gguf_files(snapshot, files);
    std::sort(files.begin(), files.end());
    if (!quant.empty()) {
        std::erase_if(files, [&](const fs::path& file) {
            const std::string name = lower(fs::relative(file, snapshot).string());
            return name.find(lower(quant)) == std::string::npos;
        });
        if (files.empty()) throw std::runtime_error(missing);
    }
    if (files.empty()) {
        if (fs::exists(snapshot / "config.json")) return snapshot.string();  // safetensors
        throw std::runtime_error(missing);
    }
    // IQ4_XS and UD-IQ4_XS both match "IQ4_XS": take the file with the shortest name.
    const auto is_shorter = [](const fs::path& a, const fs::path& b) {
        return a.filename().string().size() < b.filename().string().size();
    };
    if (quant.empty() && files.size() > 1) {
        std::string names;
        for (const fs::path& file : files) names += "\n  " + file.filename().string();
        throw std::runtime_error(
            fmt::format("{} has several models; name one, as ORG/NAME:QUANT:{}", snapshot.string(), names));
    }
    return std::min_element(files.begin(), files.end(), is_shorter)->string();
}

// Returns whether the name is ORG/NAME[:QUANT].
bool is_repository(const std::string& name) {
    const std::string repository = name.substr(0, name.rfind(':'));
    return std::count(repository.begin(), repository.end(), '/') == 1 && repository.front() != '/' &&
           repository.front() != '.' && repository.back() != '/' && !repository.ends_with(".gguf");
}

}  // namespace

std::string gguf_name(const std::string& file) {
    constexpr std::string_view k_extension = ".gguf";
    constexpr std::string_view k_part = "-00001-of-00001";  // of five digits each
    if (!file.ends_with(k_extension)) return {};
    std::string name = file.substr(0, file.size() - k_extension.size());
    if (name.size() <= k_part.size()) return name;
    const size_t begin = name.size() - k_part.size();
    for (size_t i = 0; i < k_part.size(); ++i) {
        const bool is_digit = k_part[i] == '0' || k_part[i] == '1';
        const char c = name[begin + i];
        if (is_digit ? c < '0' || c > '9' : c != k_part[i]) return name;
    }
    const bool is_first = name.compare(begin, 6, "-00001") == 0;
    return is_first ? name.substr(0, begin) : std::string();
}

std::vector<GivenModel> models_in(const std::string& folder) {
    std::vector<GivenModel> models;
    const auto add_file = [&](const fs::path& file, const std::string& name) {
        if (!name.empty() && !name.starts_with("mmproj")) models.push_back({name, file.string()});
    };
    std::error_code error;
    for (const std::string& name : names_in_folder(folder, error)) {
        const fs::path path = fs::path(folder) / name;
        std::error_code ignored;
        if (name.starts_with('.')) continue;
        if (!fs::is_directory(path, ignored)) {
            add_file(path, gguf_name(name));
        } else if (is_checkpoint(path)) {
            models.push_back({name, path.string()});
        } else {
            const size_t n_before = models.size();
            for (const std::string& file : names_in_folder(path.string(), ignored))
                add_file(path / file, gguf_name(file));
            if (models.size() == n_before + 1) models.back().name = name;
        }
    }
    if (error)
        throw std::runtime_error(
            fmt::format("--models-dir: the folder '{}' cannot be read: {}", folder, error.message()));
    if (models.empty())
        throw std::runtime_error(fmt::format(
            "--models-dir: the folder '{}' has no GGUF file and no folder with a checkpoint", folder));
    std::ranges::sort(models, {}, &GivenModel::name);
    return models;
}

std::string find_model(const std::string& name) {
    std::error_code error;
    if (fs::exists(name, error)) return name;
    const size_t colon = name.rfind(':');
    const std::string repository = name.substr(0, colon);
    const std::string quant = colon == std::string::npos ? "" : name.substr(colon + 1);
    if (!is_repository(name))
        throw std::runtime_error(fmt::format("model '{}': no such file or folder", name));

    std::string folder = "models--" + repository;
    folder.replace(folder.find('/'), 1, "--");
    const fs::path cache = cache_folder();
    const std::string include = quant.empty() ? "" : fmt::format(" --include '*{}*'", quant);
    const std::string missing = fmt::format(
        "model '{}' is not in the cache {}, and minim downloads nothing; download it with\n  hf download "
        "{}{}",
        name, cache.string(), repository, include);
    const fs::path snapshot = snapshot_of(cache / folder);
    if (snapshot.empty()) throw std::runtime_error(missing);
    return choose_file(snapshot, quant, missing);
}

std::string find_model_or_keep(const std::string& name) {
    std::error_code error;
    return name.empty() || fs::exists(name, error) || !is_repository(name) ? name : find_model(name);
}

}  // namespace program
