// SPDX-License-Identifier: Apache-2.0
#include "convert/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/file_calls.h"
#include "base/format_text.h"
#include "base/io_error.h"

namespace minim::convert {
namespace {

constexpr mode_t k_file_mode = 0666;  // before the process's umask
constexpr size_t k_largest_call = size_t{1} << 30;

}  // namespace

PartFile::PartFile(std::string path, uint64_t bytes) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, k_file_mode);
    if (descriptor_ < 0) fail_io(path_, "write", errno);
    try {
        reserve(bytes);
    } catch (...) {
        ::close(descriptor_);
        throw;
    }
}

PartFile::~PartFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

PartFile::PartFile(PartFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

void PartFile::reserve(uint64_t bytes) const {
    make_room(descriptor_, path_, bytes);
    // Sets the size where the file system does not reserve, and cuts a longer file.
    if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0)
        fail_io(path_, format_text("make room for {} bytes", bytes), errno);
}

void PartFile::write_at(uint64_t offset, std::span<const std::byte> data) const {
    write_all_at(descriptor_, path_, offset, data);
}

void PartFile::read_at(uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t n = ::pread(descriptor_, out.data(), std::min(out.size(), k_largest_call),
                                  static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail_io(path_, "read", n < 0 ? errno : EIO);
        out = out.subspan(n);
        offset += static_cast<uint64_t>(n);
    }
}

void PartFile::flush() const {
    flush_file(descriptor_, path_);
}

void flush_folder(const std::string& path) {
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;  // the names are there all the same
    ::fsync(folder);
    ::close(folder);
}

}  // namespace minim::convert
