// SPDX-License-Identifier: Apache-2.0
#include "base/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_calls.h"
#include "base/format_text.h"
#include "base/io_error.h"

namespace minim {
namespace {

// Permissions before the process's umask.
constexpr mode_t k_usual_mode = 0666;
constexpr mode_t k_owner_mode = 0600;
constexpr mode_t k_group_permissions = 0070;
constexpr mode_t k_permissions = 0777;

std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return path.substr(0, std::max<size_t>(slash, 1));
}

// Resolves symbolic links; the last one may point to a file that does not exist yet.
std::string follow_links(const std::string& path) {
    constexpr int k_max_links = 40;  // the limit of Linux
    std::string at = path;
    for (int i = 0; i < k_max_links; ++i) {
        char to[PATH_MAX];
        const ssize_t length = ::readlink(at.c_str(), to, sizeof(to));
        if (length < 0) return at;  // not a link, or unreadable: opening it reports the error
        const std::string_view text(to, length);
        at = text.starts_with('/') ? std::string(text) : format_text("{}/{}", folder_of(at), text);
    }
    fail_io(path, "write", ELOOP);
}

// Returns the path of an open file without a name, "/proc/self/fd/N"; empty without a /proc.
std::string place_of(int descriptor) {
    return format_text("/proc/self/fd/{}", descriptor);
}

// Returns 0 or an errno. A sandbox may allow only one of these calls.
int rename_to(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) == 0) return 0;
    const int code = errno;
    if (!is_refusal(code)) return code;
    if (::renameat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str()) == 0) return 0;
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), 0) == 0) return 0;
    return code;
}

// Returns `path` with a random ending: a name beside it. A long name is cut first, because file systems take names up to their
// own limit only: 255 bytes, 143 where they are encrypted.
std::string name_beside(const std::string& path) {
    constexpr size_t k_ending = 17;
    constexpr size_t k_safe_length = 143;
    std::random_device random;
    const std::string ending = format_text(".{:08x}{:08x}", random(), random());
    const size_t name = path.rfind('/') + 1;  // 0 without a slash
    if (path.size() - name + k_ending <= k_safe_length) return path + ending;
    size_t end = path.size() - k_ending;
    while (end > name && (static_cast<uint8_t>(path[end]) & 0xC0U) == 0x80U) --end;  // not inside a character
    return path.substr(0, end) + ending;
}

// Gives an open file without a name its name. Returns false, with errno, if that is refused.
bool give_name(int descriptor, const std::string& name) {
    return ::linkat(AT_FDCWD, place_of(descriptor).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace

NewFile::Draft::~Draft() {
    if (descriptor >= 0) ::close(descriptor);
    if (!name.empty()) ::unlink(name.c_str());
}

NewFile::NewFile(std::string path, uint64_t bytes, Readers readers) : path_(std::move(path)) {
    if (path_.empty()) fail(Status::invalid, "the file path is empty");
    target_ = follow_links(path_);
    folder_ = folder_of(target_);
    struct stat old {};
    const bool is_there = ::stat(target_.c_str(), &old) == 0;
    if (is_there && !S_ISREG(old.st_mode)) fail_io(path_, "write", S_ISDIR(old.st_mode) ? EISDIR : EINVAL);
    open_draft(is_there || readers == Readers::owner ? k_owner_mode : k_usual_mode);
    if (is_there) take_permissions(old);
    // Fails now instead of at the end if the disk is too full, on file systems that support it.
    make_room(draft_.descriptor, path_, bytes);
}

void NewFile::open_draft(mode_t mode) {
    // The kernel removes a file without a name, however this process ends.
    if (can_name_later()) {
        draft_.descriptor = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
        if (draft_.descriptor >= 0) return;
    }
    std::string name = name_beside(target_);
    draft_.descriptor = ::open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode);
    if (draft_.descriptor < 0) fail_io(path_, "write", errno);
    draft_.name = std::move(name);
}

// Tries with an empty file whether one without a name can get a name: once all is written it would be too late to find out.
bool NewFile::can_name_later() const {
    Draft trial;
    trial.descriptor = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, k_owner_mode);
    if (trial.descriptor < 0) return false;
    std::string name = name_beside(target_);
    if (!give_name(trial.descriptor, name)) return false;
    trial.name = std::move(name);
    return true;
}

// Copies the permissions of the file that will be replaced, and its owner and group if this process may set them.
void NewFile::take_permissions(const struct stat& old) const {
    mode_t mode = old.st_mode & k_permissions;
    struct stat own {};
    if (::fstat(draft_.descriptor, &own) != 0) fail_io(path_, "write", errno);
    if (own.st_uid != old.st_uid || own.st_gid != old.st_gid) {
        // The old group's permissions must not be given to another group.
        if (::fchown(draft_.descriptor, old.st_uid, old.st_gid) != 0 &&
            ::fchown(draft_.descriptor, own.st_uid, old.st_gid) != 0)
            mode &= ~k_group_permissions;
    }
    if ((own.st_mode & k_permissions) == mode) return;  // some file systems have one mode for all files
    // If permissions cannot be set, the file keeps its first ones: only its owner can use it.
    if (::fchmod(draft_.descriptor, mode) != 0 && !is_refusal(errno))
        fail_io(path_, "set the permissions", errno);
}

void NewFile::write(std::span<const std::byte> data) {
    write_at(appended_, data);
    appended_ += data.size();
}

void NewFile::write_at(uint64_t offset, std::span<const std::byte> data) const {
    write_all_at(draft_.descriptor, path_, offset, data);
}

void NewFile::start_flush(uint64_t offset, uint64_t bytes) const noexcept {
    ::sync_file_range(draft_.descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                      SYNC_FILE_RANGE_WRITE);
}

void NewFile::wait_for_flush(uint64_t offset, uint64_t bytes) const noexcept {
    ::sync_file_range(draft_.descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

// Copies the finished file over the target. The room is reserved before the first byte of the old file is lost.
void NewFile::overwrite() const {
    struct stat info {};
    if (::fstat(draft_.descriptor, &info) != 0) fail_io(path_, "write", errno);
    Draft to;  // a new target is removed if it cannot be completed
    if (::access(target_.c_str(), F_OK) != 0) to.name = target_;
    to.descriptor = ::open(target_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, info.st_mode & k_permissions);
    if (to.descriptor < 0) fail_io(path_, "write", errno);
    make_room(to.descriptor, path_, static_cast<uint64_t>(info.st_size), FALLOC_FL_KEEP_SIZE);
    std::vector<std::byte> block(size_t{1} << 20);
    off_t at = 0;
    while (at < info.st_size) {
        const ssize_t got = ::pread(draft_.descriptor, block.data(), block.size(), at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail_io(path_, "write", got < 0 ? errno : EIO);
        write_all_at(to.descriptor, path_, static_cast<uint64_t>(at), std::span(block).first(got));
        at += got;
    }
    if (::ftruncate(to.descriptor, info.st_size) != 0) fail_io(path_, "write", errno);
    flush_file(to.descriptor, path_);
    to.name.clear();
}

void NewFile::commit() {
    flush_file(draft_.descriptor, path_);
    if (draft_.name.empty()) {
        std::string name = name_beside(target_);
        if (!give_name(draft_.descriptor, name)) fail_io(path_, "write", errno);
        draft_.name = std::move(name);
    }
    const int code = rename_to(draft_.name, target_);
    if (code == 0) {
        draft_.name.clear();
    } else if (is_refusal(code) || code == EBUSY || code == EXDEV) {
        overwrite();  // for instance a file that is mounted into a container: it can be written, not replaced
    } else {
        fail_io(path_, "write", code);
    }
    // Flushes the folder, and with it the name. A failure does not undo the rename.
    const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    ::fsync(folder);
    ::close(folder);
}

}  // namespace minim
