// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/foreign_file.h"

#include <algorithm>
#include <span>

#include "base/format_text.h"
#include "checkpoint/file_names.h"
#include "checkpoint/printable.h"

namespace minim::checkpoint {
namespace {

struct KnownFile {
    std::string_view start;  // in small letters
    std::string_view what;
};

constexpr std::string_view k_web_page =
    "it is a web page, not the file: the download was answered with a page, perhaps because it needs a login "
    "or has another address; download the file again";
constexpr std::string_view k_pointer =
    "it is a Git LFS pointer, which stands for the file: fetch the file itself with `git lfs pull`";

// The first bytes of text files, after white space and a byte order mark.
constexpr KnownFile k_texts[] = {
    {"version https://git-lfs.github.com/spec/", k_pointer},
    {"version https://hawser.github.com/spec/", k_pointer},
    {"# xet version",
     "it is a Xet pointer, which stands for the file: fetch the file itself with `git xet` or `hf download`"},
    {"/annex/objects/",
     "it is a git-annex pointer, which stands for the file: fetch the file itself with `git annex get`"},
    {"<!doctype html", k_web_page},
    {"<html", k_web_page},
    {"<head", k_web_page},
    {"<body", k_web_page},
    {"<!--", k_web_page},
    {"<?xml",
     "it is an XML text, not the file: most likely a server's error message; download the file again"},
};

constexpr KnownFile k_binaries[] = {
    {"GGUF", "it is a GGUF file: give it a name that ends in .gguf"},
    {"ggml", "it is a file of an older GGML format, which llama.cpp gave up: convert the model to GGUF"},
    {"lmgg", "it is a file of an older GGML format, which llama.cpp gave up: convert the model to GGUF"},
    {"tjgg", "it is a file of an older GGML format, which llama.cpp gave up: convert the model to GGUF"},
    {"PK\x03\x04", "it is a ZIP archive, as PyTorch writes: only safetensors and GGUF files are read"},
    {"\x80\x02", "it is a Python pickle, as PyTorch writes: only safetensors and GGUF files are read"},
    {"\x80\x04", "it is a Python pickle, as PyTorch writes: only safetensors and GGUF files are read"},
    {"\x1f\x8b", "it is compressed with gzip: unpack it first"},
    {"\x28\xb5\x2f\xfd", "it is compressed with zstd: unpack it first"},
    {"\xfd"
     "7zXZ",
     "it is compressed with xz: unpack it first"},
    {"7z\xbc\xaf", "it is a 7-Zip archive: unpack it first"},
    {"BZh", "it is compressed with bzip2: unpack it first"},
    {"\x04\x22\x4d\x18", "it is compressed with LZ4: unpack it first"},
    {"Rar!", "it is a RAR archive: unpack it first"},
    {"PK\x05\x06", "it is an empty ZIP archive"},
    {"%PDF", "it is a PDF document"},
    {"\x7f"
     "ELF",
     "it is a program"},
    {"\x93NUMPY", "it is a NumPy array: only safetensors and GGUF files are read"},
    {"\x89HDF", "it is an HDF5 file: only safetensors and GGUF files are read"},
};

template <size_t n>
std::string_view find(const KnownFile (&kinds)[n], std::string_view start) {
    for (const KnownFile& kind : kinds) {
        if (start.starts_with(kind.start)) return kind.what;
    }
    return {};
}

bool is_text(char c) {
    return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

std::string describe_foreign(std::string_view start) {
    start = start.substr(0, k_foreign_bytes);
    if (const std::string_view what = find(k_binaries, start); !what.empty()) return std::string(what);
    std::string_view text = start;
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    return std::string(find(k_texts, in_small_letters(text)));
}

std::string describe_foreign(const ByteSource& source) {
    std::string start(std::min(source.size(), k_foreign_bytes), '\0');
    source.read_at(0, std::as_writable_bytes(std::span(start)));
    std::string what = describe_foreign(start);
    constexpr size_t k_min_zeros = 24;  // a header has others among them
    if (what.empty() && start.size() >= k_min_zeros && std::ranges::count(start, '\0') == std::ssize(start))
        return "it begins with zeros alone: most likely a download that has not finished; download the file "
               "again";
    constexpr size_t k_shortest_text = 4;  // fewer bytes may be the start of a number
    if (!what.empty() || start.size() < k_shortest_text || !std::ranges::all_of(start, is_text)) return what;
    constexpr size_t k_shown = 60;
    return format_text("it is a text, which begins with {}", printable(start, k_shown));
}

}  // namespace minim::checkpoint
