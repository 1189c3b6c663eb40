#include "input.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "failure.h"

namespace cli {
namespace {

struct CloseFile {
    void operator()(std::FILE* file) const noexcept {
        if (file != stdin) std::fclose(file);
    }
};

[[noreturn]] void fail_input(const std::string& path) {
    const int os_code = errno;
    fail(os_code == ENOENT ? MINIM_E_NOT_FOUND : MINIM_E_IO,
         fmt::format("cannot read '{}': {}", path, std::strerror(os_code)), os_code);
}

}  // namespace

std::string input_text(const Options& options) {
    if (options.text) return *options.text;
    const std::string& path = options.text_file;
    const std::unique_ptr<std::FILE, CloseFile> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
    if (!file) fail_input(path);
    std::string text;
    std::array<char, 65536> block;
    while (const size_t length = std::fread(block.data(), 1, block.size(), file.get())) {
        text.append(block.data(), length);
    }
    if (std::ferror(file.get()) != 0) fail_input(path);
    return text;
}

}  // namespace cli
