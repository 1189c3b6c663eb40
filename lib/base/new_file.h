// A file that gets its name when it is whole: whoever opens the path finds the old file or the new one,
// whatever happens to this process meanwhile.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace minim {

// Who may read a file that was not there before.
enum class Readers : uint8_t {
    usual,  // as the process's umask has it
    owner,  // nobody else: it holds what somebody said
};

// Every error names the path. A file that is not committed leaves nothing behind.
class NewFile {
  public:
    // A file of `bytes` bytes to be called `path`, whose folder must exist. Where the path is a symbolic link, the file that it
    // points to is replaced, and the link stays. A file that is replaced passes on its permissions. Throws invalid, not_found or
    // io: also where the disk has no room for it.
    NewFile(std::string path, uint64_t bytes, Readers readers = Readers::usual);
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    // Appends.
    void write(std::span<const std::byte> data);
    // Anywhere; any thread. Appending goes on where it was.
    void write_at(uint64_t offset, std::span<const std::byte> data) const;

    // What was written there goes to the disk now, and is waited for, instead of all of it at the end. Advice only.
    void start_flush(uint64_t offset, uint64_t bytes) const noexcept;
    void wait_for_flush(uint64_t offset, uint64_t bytes) const noexcept;

    // Waits until the bytes are on the disk, then gives the file its name, in place of any file that had it.
    void commit();

  private:
    // What must not outlive this object.
    struct Draft {
        int descriptor = -1;
        std::string name;  // a temporary one beside the path, or none at all

        ~Draft();
    };

    void open_draft(mode_t mode);
    void take_permissions(const struct stat& old) const;
    std::string free_name() const;

    std::string path_;    // as the caller has it
    std::string target_;  // what it leads to
    std::string folder_;  // of the target
    Draft draft_;
    uint64_t appended_ = 0;
};

}  // namespace minim
