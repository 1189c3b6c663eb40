// SPDX-License-Identifier: Apache-2.0
// A file of the output while it is made: written at any offset, read back, flushed. Its size is reserved at the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace minim::convert {

// Every error names the path and is io.
class PartFile {
  public:
    // Opens or creates the file, and reserves `bytes`. Bytes that are there stay.
    PartFile(std::string path, uint64_t bytes);
    ~PartFile();
    PartFile(PartFile&& other) noexcept;
    PartFile& operator=(PartFile&&) = delete;
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;

    const std::string& path() const noexcept { return path_; }
    void write_at(uint64_t offset, std::span<const std::byte> data) const;
    void read_at(uint64_t offset, std::span<std::byte> out) const;
    // Blocks until all bytes are on the disk.
    void flush() const;

  private:
    void reserve(uint64_t bytes) const;

    std::string path_;
    int descriptor_ = -1;
};

// Flushes a folder: the names in it.
void flush_folder(const std::string& path);

}  // namespace minim::convert
