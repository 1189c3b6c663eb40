// The host's weights as its kernels read them, in a file: whoever opens the model again maps it, and reads and packs
// nothing. Processes that compute with the same model share its pages.
//
//   PackedHeader
//   PackedRun for every run of rows, as HostWeights meets them
//   the runs, each at a multiple of 64 bytes
//
// Such a file is hostile input: header and runs' places are used once their hashes agree and the places lie in the
// file, the weights' own hashes are there for whoever reads all of them anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_file.h"
#include "weights/expand.h"

namespace minim::weights {

// Of the file's layout, of the order in which panels hold rows (panel/), and of the blocks that no checkpoint has (expanded
// and gathered ones, format/): it goes up when any of them changes.
inline constexpr uint32_t k_packed_version = 1;

// The first four lie where they do in every version.
struct PackedHeader {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint64_t model;     // its fingerprint
    uint64_t origin;    // hash of the sizes of the checkpoint's files and of their last changes
    uint64_t contents;  // hash of which weights the runs hold, in which format and order
    uint64_t expanded;  // ExpandedFormats::bits()
    uint64_t n_runs;
    uint64_t file_bytes;
    uint64_t runs_hash;
    uint64_t hash;  // of everything above
};

struct PackedRun {
    uint64_t at;    // from the start of the file
    uint64_t hash;  // sum of its pieces' hashes
};

// Where the first of n runs lies.
uint64_t first_packed_byte(uint64_t n_runs);

// Writes such a file from front to back, in blocks of a huge page each: the system keeps in huge pages what was written or
// read so, which is worth a fifth of the speed at which a core reads it.
class PackedWriter {
  public:
    // Throws io and out_of_memory, as all of it.
    PackedWriter(const std::string& path, uint64_t file_bytes, const backend::Backend& backend);

    // Memory for the bytes of the file behind those that write() was told of, as far as `end`: zeros, which any thread
    // may fill until the next call.
    void make_room(uint64_t end);
    std::byte* place(uint64_t at) const { return window_.data() + (at - begin_); }
    // All before `end` is there: it goes to the file.
    void write(uint64_t end);
    // The file gets its head and its name. Of the header magic, version and hashes are filled in here.
    void finish(PackedHeader header, std::span<const PackedRun> runs);

  private:
    NewFile file_;
    const backend::Backend& backend_;
    const uint64_t file_bytes_;
    uint64_t begin_ = 0;  // of the window in the file: whole blocks lie before it
    Buffer window_;
};

// Of what a packed file was made.
struct PackedOrigin {
    uint64_t model = 0;
    uint64_t origin = 0;
};
// The model of `fingerprint` in these files.
PackedOrigin origin_of(uint64_t fingerprint, std::span<const File> files);

class PackedFile {
  public:
    // Empty where there is no file, or one that was made by another version or of files that have changed since, or was
    // cut short or altered, which the log says. Throws format where the file is of another kind or of another model, and
    // io.
    static std::optional<PackedFile> open(const std::string& path, const PackedOrigin& origin,
                                          const Logger& log);

    const std::string& path() const noexcept { return path_; }
    uint64_t contents() const noexcept { return header_.contents; }
    ExpandedFormats expanded() const noexcept { return ExpandedFormats::of_bits(header_.expanded); }
    std::span<const std::byte> bytes() const noexcept { return map_.bytes(); }  // of the whole file

    // False where there are more or fewer, or they are not those that were written.
    bool read_runs(uint64_t n_runs);
    std::span<const PackedRun> runs() const noexcept { return runs_; }  // as read

  private:
    explicit PackedFile(const File& file) : path_(file.path()), map_(file) {}

    std::string path_;
    MappedFile map_;
    PackedHeader header_ = {};
    std::vector<PackedRun> runs_;
};

}  // namespace minim::weights
