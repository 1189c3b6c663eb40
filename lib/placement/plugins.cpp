// SPDX-License-Identifier: Apache-2.0
#include "placement/plugins.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/folder.h"

namespace minim::placement {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view k_prefix = "libminim-";
constexpr std::string_view k_suffix = ".so";
constexpr std::string_view k_link_kind = "mpi";  // of the plug-in that has no devices

// Returns the plug-in folder beside this library, or beside the program if the library is linked statically. The folder's name
// has the version of the ABI, because libraries of several versions may be in one place.
fs::path own_folder() {
    Dl_info info = {};
    if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr)
        return {};
    std::error_code ignored;
    const fs::path file = fs::canonical(info.dli_fname, ignored);
    return file.parent_path() / MINIM_PLUGIN_FOLDER;
}

std::vector<fs::path> folders() {
    std::vector<fs::path> all;
    if (const char* path = std::getenv("MINIM_PLUGIN_PATH")) {
        std::string_view rest = path;
        while (!rest.empty()) {
            const size_t end = std::min(rest.find(':'), rest.size());
            if (end > 0) all.emplace_back(rest.substr(0, end));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
    }
    if (const fs::path own = own_folder(); !own.empty()) all.push_back(own);
    return all;
}

std::string joined(const std::vector<fs::path>& paths) {
    std::string text;
    for (const fs::path& path : paths) text.append(text.empty() ? "" : ", ").append(path.string());
    return text.empty() ? "no folder" : text;
}

// Returns what a function of this name in a library says of its plug-in, if that speaks this version of its interface.
template <typename Plugin>
const Plugin& open_plugin(const fs::path& file, const char* name, uint32_t interface, const char* build) {
    // The library is never unloaded: an exception in flight may be from the plug-in.
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
        const char* why = ::dlerror();
        fail(Status::unsupported, "{} cannot be loaded: {}", file.string(),
             why == nullptr ? "no reason given" : why);
    }
    const auto function = reinterpret_cast<const Plugin* (*)()>(::dlsym(library, name));
    if (function == nullptr) fail(Status::unsupported, "{} has no {}", file.string(), name);
    const Plugin* plugin = function();
    if (plugin->interface != interface)
        fail(Status::unsupported, "{} speaks version {} of the plug-in interface, this library {}",
             file.string(), plugin->interface, interface);
    if (std::strcmp(plugin->build, build) != 0)
        fail(Status::unsupported, "{} was built by compiler {}, this library by {}", file.string(),
             plugin->build, build);
    return *plugin;
}

// Returns the file of a plug-in. Throws not_found.
fs::path find_plugin(std::string_view kind) {
    const std::string name = std::string(k_prefix).append(kind).append(k_suffix);
    const std::vector<fs::path> searched = folders();
    for (const fs::path& folder : searched) {
        std::error_code ignored;
        fs::path file = folder / name;
        if (fs::exists(file, ignored)) return file;
    }
    fail(Status::not_found, "no plug-in {} in {}", name, joined(searched));
}

}  // namespace

const backend::Plugin& load_plugin(std::string_view kind) {
    return open_plugin<backend::Plugin>(find_plugin(kind), backend::k_plugin_function,
                                        backend::k_plugin_interface, backend::k_plugin_build);
}

const ranks::LinkPlugin& load_link_plugin() {
    return open_plugin<ranks::LinkPlugin>(find_plugin(k_link_kind), ranks::k_link_plugin_function,
                                          ranks::k_link_interface, ranks::k_link_build);
}

std::vector<std::string> plugin_kinds() {
    std::set<std::string> kinds;
    for (const fs::path& folder : folders()) {
        std::error_code error;
        for (const std::string& name : names_in_folder(folder.string(), error)) {
            if (name.size() <= k_prefix.size() + k_suffix.size() || !name.starts_with(k_prefix) ||
                !name.ends_with(k_suffix))
                continue;
            std::string kind = name.substr(k_prefix.size(), name.size() - k_prefix.size() - k_suffix.size());
            if (kind != k_link_kind) kinds.insert(std::move(kind));
        }
    }
    return {kinds.begin(), kinds.end()};
}

}  // namespace minim::placement
