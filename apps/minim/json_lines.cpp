// SPDX-License-Identifier: Apache-2.0
#include "json_lines.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "failure.h"

namespace cli {
namespace {

// Returns the message of an error of the JSON library without its code: "[json.exception.parse_error.101] ".
std::string_view reason_of(const nlohmann::json::exception& error) {
    const std::string_view text = error.what();
    const size_t end = text.find("] ");
    return end == std::string_view::npos ? text : text.substr(end + 2);
}

}  // namespace

void for_each_json_line(
    const std::string& path,
    const std::function<void(const nlohmann::json& line, const std::string& place)>& use) {
    std::error_code error;
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    const bool is_folder = std::filesystem::is_directory(path, error);
    if (!file || is_folder) {
        const int code = is_folder ? EISDIR : errno;
        fail(code == ENOENT ? MINIM_E_NOT_FOUND : MINIM_E_IO,
             fmt::format("cannot read '{}': {}", path, std::strerror(code)), code);
    }
    std::string text;
    for (int64_t n = 1; std::getline(file, text); ++n) {
        if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
        const std::string place = fmt::format("'{}', line {}", path, n);
        try {
            const nlohmann::json line = nlohmann::json::parse(text);
            if (!line.is_object()) fail(MINIM_E_INVALID, fmt::format("{} is no JSON object", place));
            use(line, place);
        } catch (const nlohmann::json::exception& bad) {
            fail(MINIM_E_INVALID, fmt::format("{}: {}", place, reason_of(bad)));
        }
    }
    if (file.bad()) fail(MINIM_E_IO, fmt::format("cannot read '{}' to its end", path));
}

}  // namespace cli
