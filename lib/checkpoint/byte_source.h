// SPDX-License-Identifier: Apache-2.0
// The source of a header's bytes, and a reader over them that never trusts a length. The input is hostile: each read first
// checks the bytes that are left, and each error names the file and the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format_text.h"

namespace minim::checkpoint {

// A file, or bytes in memory under a name (tests and fuzzers); neither is owned.
class ByteSource {
  public:
    explicit ByteSource(const File& file) : name_(file.path()), size_(file.size()), file_(&file) {}
    ByteSource(std::string_view name, std::span<const std::byte> bytes)
        : name_(name), size_(bytes.size()), memory_(bytes) {}

    std::string_view name() const noexcept { return name_; }
    uint64_t size() const noexcept { return size_; }

    // Fills `out` from `offset`. Throws `truncated` if the source ends before `out` is full.
    void read_at(uint64_t offset, std::span<std::byte> out) const;

  private:
    std::string_view name_;
    uint64_t size_;
    const File* file_ = nullptr;
    std::span<const std::byte> memory_;
};

// Throws the error of a bad file: "FILE: TEXT (byte OFFSET)", with the offset in the facts too.
[[noreturn]] void throw_bad_file(std::string_view file, Reason reason, uint64_t offset,
                                 std::string_view text);

template <typename... Args>
[[noreturn]] void fail_at(std::string_view file, Reason reason, uint64_t offset,
                          fmt::format_string<Args...> text, Args&&... args) {
    throw_bad_file(file, reason, offset, format_text(text, std::forward<Args>(args)...));
}

// Reads little-endian fields front to back through a small window.
class HeaderReader {
  public:
    explicit HeaderReader(const ByteSource& source);

    std::string_view file() const noexcept { return source_.name(); }
    uint64_t file_size() const noexcept { return source_.size(); }
    uint64_t position() const noexcept { return position_; }
    uint64_t left() const noexcept { return source_.size() - position_; }

    // Fills `out`. `what` names the field in the error if the file ends inside it.
    void read(std::span<std::byte> out, std::string_view what);

    template <typename T>
    requires std::is_arithmetic_v<T> T number(std::string_view what) {
        T value;
        read(std::as_writable_bytes(std::span(&value, 1)), what);
        return value;
    }

    // Reads the u64 length of a string and returns it. Throws if the string is longer than `cap` or ends after the
    // file.
    uint64_t string_length(std::string_view what, uint64_t cap);
    // Reads a string (length and bytes) and appends it to `out`.
    void append_string(std::string& out, std::string_view what, uint64_t cap);

  private:
    const ByteSource& source_;
    std::vector<std::byte>
        window_;  // holds the bytes [window_start_, window_start_ + window_size_) of the source
    uint64_t window_start_ = 0;
    size_t window_size_ = 0;
    uint64_t position_ = 0;
};

}  // namespace minim::checkpoint
