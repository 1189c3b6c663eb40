// SPDX-License-Identifier: Apache-2.0
// Reads and writes files without the library, so that tests can check what it wrote and choose what it reads.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
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

// Writes a file, or replaces an existing one. Throws std::runtime_error if it cannot.
inline void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + path);
}
inline void write_text(const std::string& path, std::string_view text) {
    write_bytes(path, std::as_bytes(std::span(text)));
}

inline size_t n_files(const TemporaryFolder& folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

}  // namespace minim::test
