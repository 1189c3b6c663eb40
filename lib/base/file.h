// Files as the checkpoint readers want them: mapped read-only, or read piece by piece into memory of ours.
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
    uint64_t size() const noexcept { return size_; }             // as found when opened
    int64_t changed_ns() const noexcept { return changed_ns_; }  // its last change by then, since 1970

    // Fills `out` from `offset`. Short reads are continued; the end of the file before that is `truncated`.
    void read_at(uint64_t offset, std::span<std::byte> out) const;

    // Reads to come go through the file in order, by and large: the system reads further ahead. Advice only.
    void expect_reads_in_order() const noexcept;

  private:
    friend class MappedFile;
    std::string path_;
    int descriptor_ = -1;
    uint64_t size_ = 0;
    int64_t changed_ns_ = 0;
};

// The whole file mapped read-only. A file that shrinks while mapped raises SIGBUS on access: that is the
// nature of mmap and documented for the host; the size is checked again after mapping. An empty file gives an
// empty span.
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

// Brings the pages of a mapping into the process. Throws io where the file cannot be read, or has shrunk.
void make_mapped_present(std::span<const std::byte> mapped);

// Asks for pages of a mapping ahead of their use. Advice only: a refusal changes speed.
void read_ahead(std::span<const std::byte> mapped) noexcept;

}  // namespace minim
