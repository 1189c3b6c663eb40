// SPDX-License-Identifier: Apache-2.0
// Replaces a file atomically: the new file gets its name once it is complete, so the path always shows the old file or
// the new one, even if this process dies.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace minim {

// Permissions of a file that did not exist before.
enum class Readers : uint8_t {
    usual,  // as the process's umask allows
    owner,  // only the owner can read the file: it contains private text
};

// Every error names the path. A file that is not committed leaves nothing behind.
class NewFile {
  public:
    // Creates a file of `bytes` bytes that will be named `path`; its folder must exist. If the path is a symbolic link, its
    // target is replaced and the link stays. A replaced file passes on its permissions. Throws invalid, not_found, or io (also
    // if the disk is too full).
    NewFile(std::string path, uint64_t bytes, Readers readers = Readers::usual);
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    // Appends.
    void write(std::span<const std::byte> data);
    // Writes at any offset, from any thread. Does not change where write() appends.
    void write_at(uint64_t offset, std::span<const std::byte> data) const;

    // start_flush() begins to flush a range to the disk, and wait_for_flush() waits for that, so that commit() has less to wait
    // for. Failures are ignored.
    void start_flush(uint64_t offset, uint64_t bytes) const noexcept;
    void wait_for_flush(uint64_t offset, uint64_t bytes) const noexcept;

    // Blocks until the bytes are on the disk, then gives the file its name, in place of any file that had it. A file that the
    // system lets nobody replace, such as one that is mounted into a container, is overwritten.
    void commit();

  private:
    // The unfinished file. The destructor closes it, and removes it if it has a temporary name.
    struct Draft {
        int descriptor = -1;
        std::string name;  // a temporary one beside the path, or empty

        ~Draft();
    };

    void open_draft(mode_t mode);
    bool can_name_later() const;
    void take_permissions(const struct stat& old) const;
    void overwrite() const;

    std::string path_;    // as given
    std::string target_;  // the path with links resolved
    std::string folder_;  // of the target
    Draft draft_;
    uint64_t appended_ = 0;
};

}  // namespace minim
