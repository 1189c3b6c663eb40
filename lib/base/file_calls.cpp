// SPDX-License-Identifier: Apache-2.0
#include "base/file_calls.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/format_text.h"
#include "base/io_error.h"

namespace minim {

bool is_refusal(int code) noexcept {
    switch (code) {
        case EINVAL:
        case ENOSYS:
        case EOPNOTSUPP:
        case ENOTTY:
        case EPERM:
        case EACCES:
            return true;
        default:
            return false;
    }
}

void make_room(int descriptor, std::string_view path, uint64_t bytes, int mode) {
    if (bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) fail_io(path, "write", EFBIG);
    if (bytes == 0) return;
    const int code = ::fallocate(descriptor, mode, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    if (code == ENOSPC || code == EDQUOT || code == EFBIG)
        fail_io(path, format_text("make room for {} bytes", bytes), code);
}

void write_all_at(int descriptor, std::string_view path, uint64_t offset, std::span<const std::byte> data) {
    constexpr size_t k_largest_write = size_t{1} << 30;  // one call never moves more than about 2 GiB
    while (!data.empty()) {
        const ssize_t done = ::pwrite(descriptor, data.data(), std::min(data.size(), k_largest_write),
                                      static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) fail_io(path, "write", done < 0 ? errno : EIO);
        data = data.subspan(static_cast<size_t>(done));
        offset += static_cast<uint64_t>(done);
    }
}

void flush_file(int descriptor, std::string_view path) {
    while (::fsync(descriptor) != 0) {
        if (is_refusal(errno) || errno == EROFS) return;
        if (errno != EINTR) fail_io(path, "write", errno);
    }
}

}  // namespace minim
