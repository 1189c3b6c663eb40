// SPDX-License-Identifier: Apache-2.0
#include "input.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "failure.h"

namespace cli {
namespace {

struct CloseFile {
    void operator()(std::FILE* file) const noexcept {
        if (file != stdin) std::fclose(file);
    }
};

constexpr std::string_view k_byte_order_mark = "\xEF\xBB\xBF";

std::string name_of_source(const Options& options) {
    if (options.text) return "-p";
    return options.text_file == "-" ? "standard input" : fmt::format("'{}'", options.text_file);
}

[[noreturn]] void fail_input(const Options& options) {
    const int os_code = errno;
    fail(os_code == ENOENT ? MINIM_E_NOT_FOUND : MINIM_E_IO,
         fmt::format("cannot read {}: {}", name_of_source(options), std::strerror(os_code)), os_code);
}

// Returns the length of the well-formed sequence at the start of `text`, which is not empty; 0 if there is none (Unicode, table
// 3-7).
size_t sequence_length(std::string_view text) {
    const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const uint8_t lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;  // excludes overlong forms
    const uint8_t highest = lead == 0xED   ? 0x9F
                            : lead == 0xF4 ? 0x8F
                                           : 0xBF;  // excludes surrogates and values above U+10FFFF
    if (byte(1) < lowest || byte(1) > highest) return 0;
    for (size_t i = 2; i < length; ++i) {
        if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
    }
    return length;
}

// Returns the position of the first byte that is not UTF-8; the text's size if there is none.
size_t utf8_end(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        const size_t length = sequence_length(text.substr(at));
        if (length == 0) break;
        at += length;
    }
    return at;
}

// Returns whether the text has a byte order mark of UTF-16 at the start, or begins with ASCII characters that each have a zero
// byte beside them.
bool looks_like_utf16(std::string_view text) {
    if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return true;
    if (text.size() < 4 || text.size() % 2 != 0) return false;
    const bool big_endian = text[0] == '\0';
    const std::string_view start = text.substr(0, 16);
    for (size_t i = 0; i < start.size(); ++i) {
        if ((start[i] == '\0') != ((i % 2 == 0) == big_endian)) return false;
    }
    return true;
}

}  // namespace

std::string input_text(const Options& options) {
    if (options.text) return *options.text;
    const std::string& path = options.text_file;
    const std::unique_ptr<std::FILE, CloseFile> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
    if (!file) fail_input(options);
    std::string text;
    std::array<char, 65536> block;
    while (const size_t length = std::fread(block.data(), 1, block.size(), file.get())) {
        text.append(block.data(), length);
    }
    if (std::ferror(file.get()) != 0) fail_input(options);
    return text;
}

std::string utf8_text(std::string text, const std::string& source) {
    if (looks_like_utf16(text))
        fail(MINIM_E_INVALID,
             fmt::format("{}: the text is not UTF-8 but UTF-16, as its bytes 0 and 1 show: convert it",
                         source));
    if (const size_t end = utf8_end(text); end < text.size())
        fail(MINIM_E_INVALID, fmt::format("{}: the text is not UTF-8 at byte {} ({:#04x}): convert it",
                                          source, end, static_cast<uint8_t>(text[end])));
    if (text.starts_with(k_byte_order_mark)) text.erase(0, k_byte_order_mark.size());
    return text;
}

int32_t specials_of(const std::string& mode) {
    if (mode == "safe") return MINIM_SPECIALS_SAFE;
    return mode == "none" ? MINIM_SPECIALS_NONE : MINIM_SPECIALS_EXACT;
}

std::string prompt_text(const Options& options) {
    return utf8_text(input_text(options), name_of_source(options));
}

}  // namespace cli
