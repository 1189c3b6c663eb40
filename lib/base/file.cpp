// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/io_error.h"

namespace minim {
File::File(std::string path) : path_(std::move(path)) {
    if (path_.empty()) fail(Status::invalid, "the file path is empty");
    // An open descriptor is copied: opening it again would need /proc, and permission for its path.
    if (const std::optional<int> open = descriptor_of(path_)) {
        descriptor_ = ::fcntl(*open, F_DUPFD_CLOEXEC, 0);
    } else {
        // Non-blocking: opening a pipe that nobody writes to would wait for ever. It has no effect on files.
        descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
    if (descriptor_ < 0) fail_io(path_, "open", errno);
    struct stat info {};
    int code = ::fstat(descriptor_, &info) != 0 ? errno : 0;
    if (code == 0 && !S_ISREG(info.st_mode)) code = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    if (code != 0) {
        ::close(descriptor_);
        fail_io(path_, "read", code);
    }
    size_ = static_cast<uint64_t>(info.st_size);
    changed_ns_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

File::~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      changed_ns_(other.changed_ns_) {}

File& File::operator=(File&& other) noexcept {
    if (this != &other) {
        if (descriptor_ >= 0) ::close(descriptor_);
        path_ = std::move(other.path_);
        descriptor_ = std::exchange(other.descriptor_, -1);
        size_ = other.size_;
        changed_ns_ = other.changed_ns_;
    }
    return *this;
}

void File::read_at(uint64_t offset, std::span<std::byte> out) const {
    constexpr size_t k_largest_read = size_t{1} << 30;  // one call never moves more than about 2 GiB
    if (offset > static_cast<uint64_t>(std::numeric_limits<off_t>::max()) - out.size()) {
        fail_file(Reason::truncated, "{}: ends at byte {}, {} bytes wanted from {}", path_, size_, out.size(),
                  offset);
    }
    size_t done = 0;
    while (done < out.size()) {
        const size_t wanted = std::min(out.size() - done, k_largest_read);
        const ssize_t got =
            ::pread(descriptor_, out.data() + done, wanted, static_cast<off_t>(offset + done));
        if (got < 0) {
            if (errno == EINTR) continue;
            fail_io(path_, "read", errno);
        }
        if (got == 0) {
            fail_file(Reason::truncated, "{}: ends at byte {}, {} bytes wanted from {}", path_, offset + done,
                      out.size(), offset);
        }
        done += got;
    }
}

void File::check_size() const {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0 || static_cast<uint64_t>(info.st_size) < size_)
        fail_file(Reason::truncated, "{}: shrank while it was being opened", path_);
}

void File::expect_reads_in_order() const noexcept {
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

void File::read_ahead(uint64_t offset, uint64_t bytes) const noexcept {
    ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

void File::forget(uint64_t offset, uint64_t bytes) const noexcept {
    ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

namespace {

// Returns 0 or an errno.
int advise(std::span<const std::byte> mapped, int advice) noexcept {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t before = reinterpret_cast<uintptr_t>(mapped.data()) % page;
    auto* begin = const_cast<std::byte*>(mapped.data()) - before;
    return ::madvise(begin, mapped.size() + before, advice) == 0 ? 0 : errno;
}

}  // namespace

void make_mapped_present(std::span<const std::byte> mapped) {
    if (mapped.empty()) return;
#ifdef MADV_POPULATE_READ
    const int code = advise(mapped, MADV_POPULATE_READ);
    if (code == 0) return;
    const bool is_unknown = code == EINVAL || code == ENOSYS || code == EPERM;
    if (!is_unknown) fail_io("a mapped file", "read", code);
#endif
    // Kernels before 5.14, and sandboxes: read a byte of each page.
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    const volatile std::byte* bytes = mapped.data();
    for (size_t at = 0; at < mapped.size(); at += page) static_cast<void>(bytes[at]);
    static_cast<void>(bytes[mapped.size() - 1]);
}

MappedFile::MappedFile(const File& file) : size_(file.size()) {
    if (size_ == 0) return;
    void* block = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor_, 0);
    // Some file systems (9p, FUSE with direct I/O) map files privately only.
    if (block == MAP_FAILED) block = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
    if (block == MAP_FAILED) fail_io(file.path(), "map", errno);
    try {
        file.check_size();
    } catch (...) {
        ::munmap(block, size_);
        throw;
    }
    data_ = static_cast<const std::byte*>(block);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    if (this != &other) {
        if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

}  // namespace minim
