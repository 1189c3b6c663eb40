// SPDX-License-Identifier: Apache-2.0
#include "key_file.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>

namespace program {

std::vector<std::string> read_key_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(fmt::format("the file '{}' cannot be read", path));
    // Bytes that no header field can have: the file is damaged, or of another kind.
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    std::vector<std::string> keys;
    std::string line;
    for (int64_t n = 1; std::getline(file, line); ++n) {
        while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
        if (line.empty() || line.front() == '#') continue;
        if (std::ranges::any_of(line, is_control))
            throw std::runtime_error(
                fmt::format("the file '{}' has a control character in line {}", path, n));
        keys.push_back(line);
    }
    if (file.bad()) throw std::runtime_error(fmt::format("the file '{}' cannot be read to its end", path));
    if (keys.empty()) throw std::runtime_error(fmt::format("the file '{}' has no key", path));
    return keys;
}

}  // namespace program
