// SPDX-License-Identifier: Apache-2.0
// Files as the checkpoint readers need them: mapped read-only, or read part by part into buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace minim {

// An open file, read-only. Every error names the path.
class File {
  public:
    // Throws not_found or io. A folder is not a file: io.
    explicit File(std::string path);
    ~File();
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    const std::string& path() const noexcept { return path_; }
    uint64_t size() const noexcept { return size_; }  // the size when the file was opened
    int64_t changed_ns() const noexcept {
        return changed_ns_;
    }  // the modification time at that moment, since 1970

    // Fills `out` with the bytes from `offset` on. Continues short reads. Throws format with reason `truncated` if the file ends
    // too early.
    void read_at(uint64_t offset, std::span<std::byte> out) const;

    // Throws format with reason `truncated` if the file has become smaller since it was opened.
    void check_size() const;

    // Advises the system that later reads are mostly in file order, so that it reads further ahead.
    void expect_reads_in_order() const noexcept;
    // Advises the system to read a range before its use. A refusal changes only speed.
    void read_ahead(uint64_t offset, uint64_t bytes) const noexcept;
    // Advises the system that a range is not read again: its whole pages leave the page cache. A refusal changes only speed.
    void forget(uint64_t offset, uint64_t bytes) const noexcept;

  private:
    friend class MappedFile;
    std::string path_;
    int descriptor_ = -1;
    uint64_t size_ = 0;
    int64_t changed_ns_ = 0;
};

// Maps the whole file read-only. The size is checked again after mapping. If the file shrinks later, access raises SIGBUS, as
// always with mmap; the documentation for hosts says so. An empty file gives an
// empty span. Some file systems map no files: io, with the system's code.
class MappedFile {
  public:
    explicit MappedFile(const File& file);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

  private:
    const std::byte* data_ = nullptr;
    uint64_t size_ = 0;
};

// Prefaults the pages of a mapping. Throws io if the file cannot be read, or has shrunk.
void make_mapped_present(std::span<const std::byte> mapped);

}  // namespace minim
