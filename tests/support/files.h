// SPDX-License-Identifier: Apache-2.0
// Reads files without the library, so that tests can check what it wrote.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/temporary_folder.h"

namespace minim::test {

// Returns the content of a file. Throws std::runtime_error if it cannot be opened.
inline std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::ostringstream text;  // reads blocks, where iterators ask for each character
    text << file.rdbuf();
    return std::move(text).str();
}

inline size_t n_files(const TemporaryFolder& folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

}  // namespace minim::test
