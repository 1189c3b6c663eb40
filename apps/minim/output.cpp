// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "failure.h"

namespace cli {
namespace {

[[noreturn]] void fail_output() {
    const int os_code = errno;
    if (os_code == EPIPE) throw OutputClosed();
    fail(MINIM_E_IO, fmt::format("cannot write to standard output: {}", std::strerror(os_code)), os_code);
}

bool is_continuation(char c) {
    return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

}  // namespace

void print(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_output();
}

void flush_output() {
    if (std::fflush(stdout) != 0) fail_output();
}

void write_file(const std::string& path, std::string_view text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    if (file.flush()) return;
    const int os_code = errno;
    fail(MINIM_E_IO, fmt::format("{}: cannot write: {}", path, std::strerror(os_code)), os_code);
}

void check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
    for (const std::string& path : outputs) {
        if (path.empty()) continue;
        std::error_code error;
        if (std::filesystem::is_directory(path, error))
            fail(MINIM_E_INVALID, fmt::format("cannot write '{}': it is a folder", path));
        const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
        if (!std::filesystem::is_directory(folder, error))
            fail(MINIM_E_NOT_FOUND,
                 fmt::format("cannot write '{}': there is no folder '{}'", path, folder.string()));
        for (const std::string& input : inputs)
            if (std::filesystem::equivalent(path, input, error))
                fail(MINIM_E_INVALID, fmt::format("cannot write '{}': it is read as '{}'", path, input));
    }
}

void open_log(const std::string& path) {
    if (path.empty()) return;
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (descriptor < 0 || dup2(descriptor, STDERR_FILENO) < 0) {
        const int os_code = errno;
        fail(MINIM_E_IO, fmt::format("--log-file: cannot open '{}': {}", path, std::strerror(os_code)),
             os_code);
    }
    close(descriptor);
}

void print_note(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

std::string printable(std::string_view text, size_t max_bytes) {
    size_t length = text.size();
    if (length > max_bytes) {
        length = max_bytes;
        while (length > 0 && is_continuation(text[length])) --length;
    }
    std::string out;
    for (size_t i = 0; i < length; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto next = i + 1 < length ? static_cast<unsigned char>(text[i + 1]) : 0U;
        if (byte == '\n') {
            out += "\\n";
        } else if (byte == '\t') {
            out += "\\t";
        } else if (byte < 0x20 || byte == 0x7F) {
            out += fmt::format("\\x{:02x}", byte);
        } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F: control characters too
            out += fmt::format("\\u{:04x}", next);
            ++i;
        } else {
            out += text[i];
        }
    }
    if (length < text.size()) out += fmt::format("... ({} bytes)", text.size());
    return out;
}

}  // namespace cli
