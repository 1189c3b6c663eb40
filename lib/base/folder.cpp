// SPDX-License-Identifier: Apache-2.0
#include "base/folder.h"

#include <dirent.h>

#include <cerrno>
#include <memory>
#include <new>
#include <string_view>

namespace minim {

std::vector<std::string> names_in_folder(const std::string& folder, std::error_code& error) {
    struct Close {
        void operator()(DIR* open) const noexcept { closedir(open); }
    };
    error.clear();
    std::vector<std::string> names;
    const std::unique_ptr<DIR, Close> open(opendir(folder.c_str()));
    if (open == nullptr) {
        if (errno == ENOMEM) throw std::bad_alloc();
        error.assign(errno, std::generic_category());
        return names;
    }
    for (;;) {
        errno = 0;
        const dirent* entry = readdir(open.get());
        if (entry == nullptr) break;
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) error.assign(errno, std::generic_category());
    return names;
}

}  // namespace minim
